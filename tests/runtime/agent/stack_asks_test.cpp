// Tests in which order questions for stacks are answered, and that each of them ends.
#include "troupe/runtime/agent/stack_asks.hpp"

#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "troupe/runtime/base/wait.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {
namespace stack_asks_test {
namespace {

using namespace std::chrono_literals;

class StacksOfAChild : public testing::Test, private StackAsks::Out {
 protected:
  void SetUp() override {
    if (kLeeway > 2) GTEST_SKIP() << "a sanitizer's process has another stack";
    child_ = fork();
    while (child_ == 0) pause();
    ASSERT_TRUE(eventually(
        [&] { return os::thread_states(child_).find("sleeping") != std::string::npos; }));
  }
  void TearDown() override {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  void answer_stacks(const Asker& asker, const std::string& text) override {
    answers.emplace_back(asker.request, text);
  }
  /// Each question is of a process of its own.
  static Asker asker(std::uint64_t request) {
    Asker one;
    one.request = request;
    one.process = ProcessIndex::of(request);
    return one;
  }
  bool ask(std::uint64_t request, std::vector<StackAsks::Target> targets) {
    return asks.ask(asker(request), std::move(targets), now);
  }
  /// Serves as the loop of an agent does, while the time stands still.
  void serve_until(std::size_t count) {
    EXPECT_TRUE(eventually([&] {
      pollfd entry{asks.fd(), POLLIN, 0};
      wait_for({&entry, 1}, 10ms);
      asks.serve(now);
      return answers.size() >= count;
    }));
  }

  Time now = steady_now();
  std::vector<std::pair<std::uint64_t, std::string>> answers;
  StackAsks asks{*this, os::StackLines::By::fork};
  pid_t child_ = 0;
};

TEST_F(StacksOfAChild, AreReadInOrder) {
  ASSERT_TRUE(ask(1, {{"first", child_}, {"second", child_}}));
  ASSERT_TRUE(ask(2, {{"third", child_}}));
  EXPECT_EQ(asks.next_deadline(), now + StackAsks::kLimit);
  serve_until(2);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].first, 1u);
  EXPECT_EQ(answers[1].first, 2u);
  const std::string thread = "\nthread " + std::to_string(child_) + " (";
  for (const char* title : {"first", "second"})
    EXPECT_NE(answers[0].second.find(title + thread), std::string::npos) << answers[0].second;
  EXPECT_EQ(answers[1].second.find("third" + thread), 0u) << answers[1].second;
  EXPECT_EQ(asks.fd(), -1);
  EXPECT_EQ(asks.next_deadline(), Time::max());
}

TEST_F(StacksOfAChild, AreStatesWhenTheTimeIsOver) {
  ASSERT_TRUE(ask(1, {{"first", child_}, {"second", child_}}));
  now += StackAsks::kLimit;
  asks.serve(now);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_NE(answers[0].second.find("second\nthread "), std::string::npos) << answers[0].second;
  EXPECT_NE(answers[0].second.find(": sleeping"), std::string::npos) << answers[0].second;
}

TEST_F(StacksOfAChild, AreNotReadForAnAskerThatHasDied) {
  ASSERT_TRUE(ask(1, {{"first", child_}}));
  ASSERT_TRUE(ask(2, {{"second", child_}}));
  ASSERT_TRUE(ask(3, {{"third", child_}}));
  const pid_t reader = asks.child();
  asks.process_died(ProcessIndex::of(2), now);  // it waits
  EXPECT_EQ(asks.child(), reader);
  asks.process_died(ProcessIndex::of(1), now);  // it is being answered
  EXPECT_NE(asks.child(), reader);
  serve_until(1);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].first, 3u);
  EXPECT_EQ(asks.fd(), -1);
  Asker far;
  far.node = NodeId{1, 2};
  ASSERT_TRUE(asks.ask(far, {{"fourth", child_}}, now));
  asks.process_died(ProcessIndex{}, now);
  EXPECT_NE(asks.fd(), -1) << "the asker is a node";
  asks.node_died(far.node, now);
  EXPECT_EQ(asks.fd(), -1);
  EXPECT_EQ(answers.size(), 1u);
}

TEST_F(StacksOfAChild, HaveABound) {
  std::vector<StackAsks::Target> many(StackAsks::kMostProcesses + 3, {"one", 0x7fffffff});
  many[0].process = child_;
  ASSERT_TRUE(ask(1, std::move(many)));
  for (std::uint64_t i = 2; i <= StackAsks::kMostWaiting; ++i)
    EXPECT_TRUE(ask(i, {{"one", child_}}));
  EXPECT_FALSE(ask(99, {{"one", child_}}));
  now += StackAsks::kLimit;
  asks.serve(now);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_NE(answers[0].second.find("and 3 more processes"), std::string::npos);
}

TEST_F(StacksOfAChild, OfNoProcessAreAnsweredAtOnce) {
  ASSERT_TRUE(ask(7, {}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0], (std::pair<std::uint64_t, std::string>(7, "")));
}

}  // namespace
}  // namespace stack_asks_test
}  // namespace troupe::agent
