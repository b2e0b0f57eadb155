// Tests WaitReasons: REASON-1 to REASON-3.
#include "troupe/runtime/client/wait_reasons.hpp"
#include "parts_world.hpp"

namespace troupe::client::wait_reasons_test {
namespace {

using namespace std::chrono_literals;
struct WaitReasonsTest : WaitingWorld {
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* question = std::get_if<wire::Explain>(&message)) {
      ++asks;
      asked = question->request;
    }
  }

  int asks = 0;
  std::uint64_t asked = 0;  ///< the number of the last question
  Questions questions;
  WaitReasons reasons{static_cast<Calls::Out&>(*this), calls, questions, waits};
};

TEST_F(WaitReasonsTest, LookGetsNoReason) {
  const Handle result = submit();
  Guard lock = gate.guard();
  const Error late = reasons.overdue(lock, entry_of(result), Duration(0));
  EXPECT_EQ(late.code(), Code::timed_out);
  EXPECT_EQ(late.message(), WaitReasons::no_result_after(Duration(0)).message());
  EXPECT_EQ(asks, 0);
}

TEST_F(WaitReasonsTest, AgentSaysWhyATaskWaits) {
  const Handle result = submit();
  arrives = [this] {
    wire::Explained answer;
    answer.request = asked;
    answer.why = "all CPUs are in use";
    EXPECT_TRUE(questions.answer(answer));
  };
  Guard lock = gate.guard();
  const Error late = reasons.overdue(lock, entry_of(result), 1ms);
  EXPECT_NE(late.message().find("all CPUs are in use"), std::string::npos) << late.message();
  EXPECT_EQ(late.outcome(), Outcome::unknown);
  EXPECT_EQ(asks, 1);
}

TEST_F(WaitReasonsTest, LossOfTheAgentIsNoErrorHere) {
  const Handle result = submit();
  arrives = [this] { agent.lose(Error(Code::unavailable, "the node's agent has died")); };
  Guard lock = gate.guard();
  EXPECT_NE(reasons.why(lock, entry_of(result)), "");
  EXPECT_EQ(asks, 1);
}

}  // namespace
}  // namespace troupe::client::wait_reasons_test
