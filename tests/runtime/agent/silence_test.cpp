// Tests Silence: a node is silent when control misses it, or when it owes an answer for too long.
// Each change is told once.
#include "troupe/runtime/agent/silence.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe::agent::silence_test {
namespace {

using namespace std::chrono_literals;

const NodeId kA{0, 1}, kB{0, 2};

struct SilenceTest : testing::Test {
  Silence silence{1500ms};
  Time now = Time{} + 100s;

  /// Returns the changes as text. "1+ 2-": node 1 is silent now, node 2 is silent no more.
  std::string changes() {
    std::string text;
    for (const Silence::Change& change : silence.take_changes())
      text +=
          (text.empty() ? "" : " ") + std::to_string(change.node.low) + (change.silent ? "+" : "-");
    return text;
  }
};

TEST_F(SilenceTest, WhoOwesAnAnswerForTooLongIsSilentUntilItGivesOne) {
  silence.link(kA, Time::max(), now + 1h);
  silence.link(kA, now, now + 1499ms);
  EXPECT_EQ(changes(), "");
  silence.link(kA, now, now + 1500ms);
  EXPECT_EQ(changes(), "1+");
  silence.link(kA, now, now + 20s);
  EXPECT_EQ(changes(), "");
  silence.link(kA, now + 20s, now + 20s);  // it has answered, and owes the next answer
  EXPECT_EQ(changes(), "1-");
}

TEST_F(SilenceTest, WhoControlMissesIsSilentUntilItsListSaysOtherwise) {
  silence.suspect({kA, kB});
  EXPECT_EQ(changes(), "1+ 2+");
  silence.suspect({kB});
  EXPECT_EQ(changes(), "1-");
  silence.link(kB, Time::max(), now);
  EXPECT_EQ(changes(), "") << "control does not hear it, whatever we do";
  silence.suspect({});
  EXPECT_EQ(changes(), "2-");
}

TEST_F(SilenceTest, EitherReasonIsEnough) {
  silence.suspect({kA});
  silence.link(kA, now, now + 2s);
  EXPECT_EQ(changes(), "1+");
  silence.suspect({});
  EXPECT_EQ(changes(), "");
  silence.suspect({kA});
  silence.link(kA, Time::max(), now + 3s);
  EXPECT_EQ(changes(), "");
  silence.suspect({});
  EXPECT_EQ(changes(), "1-");
}

TEST_F(SilenceTest, TheDeadAreNotSilent) {
  silence.suspect({kA});
  silence.link(kA, now, now + 2s);
  silence.forget(kA);
  EXPECT_EQ(changes(), "1+ 1-");
  silence.forget(kB);
  EXPECT_EQ(changes(), "");
}

}  // namespace
}  // namespace troupe::agent::silence_test
