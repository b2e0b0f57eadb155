// Tests WaitReasons: REASON-1 to REASON-3.
#include "troupe/runtime/client/wait_reasons.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace troupe::client::wait_reasons_test {
namespace {

using namespace std::chrono_literals;
using Handle = detail::ObjectHandle;

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing, .name = "mix(int)"};

struct WaitReasonsTest : testing::Test, Calls::Out, Recovery::Out, WorkQueue::Out, IoLoop::Host {
  WaitReasonsTest() {
    values.begin(ProcessIndex{7}, 5, 1);
    waits.begin(loop);
  }
  // Calls::Out and Recovery::Out
  void settle_agent_queue() override {}
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* question = std::get_if<wire::Explain>(&message)) {
      ++asks;
      asked = question->request;
    }
  }
  void collect_released() override {}
  void notify() override { loop.notify(); }
  void fire(const Waiter& waiter, Entry& entry) override { waiter.fire(calls, waiter.who, entry); }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task>) override {}
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool) override {}
  // IoLoop::Host
  Time drain(Time) override {
    if (arrives) std::exchange(arrives, nullptr)();
    return Time::max();
  }
  Time next_timer() const noexcept override { return Time::max(); }
  int socket_fd() const override { return socket.get(); }
  bool wants_write() const override { return false; }
  void socket_ready() noexcept override {}
  bool has_leftovers() const noexcept override { return gate.has_leftovers(); }
  bool watch_peer() noexcept override { return false; }
  bool drain_watched(Time) override { return false; }

  /// The result of a task that waits for a lease.
  Handle submit() {
    detail::Call call;
    call.callable = &kFunction;
    Handle result;
    calls.submit(std::move(call), nullptr, {&result, 1}, false);
    return result;
  }

  Identity self;
  int asks = 0;
  std::uint64_t asked = 0;        ///< the number of the last question
  std::function<void()> arrives;  ///< runs when the loop reads next
  const Fd socket{::eventfd(0, EFD_CLOEXEC)};
  ring::Doorbell bell = ring::Doorbell::create().value();
  Peers peers;
  AgentLink agent;
  StoreUse store;
  WorkerLease lease;
  WorkQueue work{static_cast<WorkQueue::Out&>(*this)};
  EngineGate gate{static_cast<Recovery::Out&>(*this), values, store};
  Calls calls{static_cast<Calls::Out&>(*this), self, peers, values, recovery, work};
  Recovery recovery{static_cast<Recovery::Out&>(*this), values, calls.classes(), true,
                    Bytes{1 << 20}};
  Values values{static_cast<Values::Out&>(*this), recovery, store, calls.classes()};
  IoLoop loop{static_cast<IoLoop::Host&>(*this), bell, gate.lock()};
  Waits waits{self, gate, agent, work, calls, lease};
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
