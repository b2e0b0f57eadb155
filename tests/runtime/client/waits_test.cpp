// Tests Waits: WAIT-1 to WAIT-4.
#include "troupe/runtime/client/waits.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace troupe::client::waits_test {
namespace {

using namespace std::chrono_literals;
using Handle = detail::ObjectHandle;

void run_nothing(detail::Invocation&) {}
const detail::Callable kFunction{.thunk = &run_nothing};

struct WaitsTest : testing::Test,
                   Calls::Out,
                   Recovery::Out,
                   WorkQueue::Out,
                   IoLoop::Host,
                   InPlaceRunner {
  WaitsTest() {
    self.kind = wire::ProcessKind::worker;
    values.begin(ProcessIndex{7}, 5, 1);
    waits.begin(loop);
  }
  // Calls::Out and Recovery::Out
  void settle_agent_queue() override {}
  void tell(const wire::NodeMessage&, BlobView) override {}
  void collect_released() override {}
  void notify() override { loop.notify(); }
  void fire(const Waiter& waiter, Entry& entry) override { waiter.fire(calls, waiter.who, entry); }
  void unparked(Entry&) override {}
  void run_again(std::unique_ptr<Task>) override {}
  // WorkQueue::Out
  void hand_back(ProcessIndex, const wire::HandBack&) override {}
  void drop_refs(const wire::Call&) override {}
  bool is_refused(ProcessIndex) override { return false; }
  void tell_blocked(bool is_blocked) override { said += is_blocked ? "blocked " : "unblocked "; }
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
  // InPlaceRunner
  bool is_allowed() noexcept override { return true; }
  void run(Task& task) noexcept override {
    ++runs;
    Guard lock = gate.guard();
    OutgoingValue value;
    value.kind = wire::Value::Kind::inline_bytes;
    calls.ended_here(task, {&value, 1});
    gate.unlock_and_collect(lock);
  }

  /// Waits for what never comes.
  bool block(Duration timeout) {
    Guard lock = gate.guard();
    return waits.block_until(
        lock, [] { return false; }, steady_now() + timeout);
  }
  /// Returns the error of a wait that must end at once.
  Error ended() {
    try {
      block(1h);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "it did not throw";
    return Error(Code::internal, "");
  }

  Identity self;
  std::string said;
  int runs = 0;
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
};

TEST_F(WaitsTest, WhatIsThereIsReturnedAfterTheLoss) {
  agent.lose(Error(Code::unavailable, "the node's agent has died"));
  waits.end();
  Guard lock = gate.guard();
  EXPECT_TRUE(waits.block_until(
      lock, [] { return true; }, Time::max()));
}

TEST_F(WaitsTest, LossEndsAWaitWithItsReason) {
  arrives = [this] { agent.lose(Error(Code::cancelled, "the job was stopped")); };
  const Error error = ended();
  EXPECT_EQ(error.code(), Code::cancelled);
  EXPECT_EQ(error.message(), "the job was stopped");
  EXPECT_EQ(error.outcome(), Outcome::unknown);
  EXPECT_EQ(waits.no_answer("late").message(), "the job was stopped");
}

TEST_F(WaitsTest, EndOfTheSessionEndsAWait) {
  EXPECT_EQ(waits.no_answer("late").message(), "late");
  arrives = [this] { waits.end(); };
  EXPECT_THROW(block(1ms), Unavailable);
  EXPECT_FALSE(waits.end()) << "it was known";
  EXPECT_EQ(waits.no_answer("late").message(), "the session is over");
}

TEST_F(WaitsTest, WorkerGivesItsCpuBackWhileItWaitsLong) {
  EXPECT_FALSE(block(2ms));
  EXPECT_EQ(said, "blocked unblocked ");
  EXPECT_FALSE(work.is_blocked());
  EXPECT_GE(waits.waited(), 2ms);
}

TEST_F(WaitsTest, ShortWaitGivesNothingBack) {
  bool here = false;
  arrives = [&] { here = true; };
  Guard lock = gate.guard();
  EXPECT_TRUE(waits.block_until(
      lock, [&] { return here; }, Time::max()));
  EXPECT_EQ(said, "");
}

TEST_F(WaitsTest, DriverGivesNothingBack) {
  self.kind = wire::ProcessKind::driver;
  EXPECT_FALSE(block(2ms));
  EXPECT_EQ(said, "");
}

TEST_F(WaitsTest, AwaitedTaskRunsHereAndCountsAsWaiting) {
  EXPECT_FALSE(waits.may_run_awaited());
  waits.runs_in_place(this);
  EXPECT_TRUE(waits.may_run_awaited());
  wire::LeaseGranted granted;
  granted.demand = wire::ResourceDemand{};
  lease.granted(granted);
  Guard lock = gate.guard();
  detail::Call call;
  call.callable = &kFunction;
  Handle result;
  calls.submit(std::move(call), nullptr, {&result, 1}, false);
  EXPECT_TRUE(waits.run_awaited(lock, entry_of(result)));
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(calls.live(), 0u);
  EXPECT_TRUE(is_here(entry_of(result)));
  EXPECT_GT(waits.waited(), Duration(0));
}

}  // namespace
}  // namespace troupe::client::waits_test
