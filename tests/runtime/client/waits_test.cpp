// Tests Waits: WAIT-1 to WAIT-4.
#include "parts_world.hpp"

#include <string>

namespace troupe::client::waits_test {
namespace {

using namespace std::chrono_literals;

struct WaitsTest : WaitingWorld, InPlaceRunner {
  WaitsTest() { self.kind = wire::ProcessKind::worker; }
  // WorkQueue::Out
  void tell_blocked(bool is_blocked) override { said += is_blocked ? "blocked " : "unblocked "; }
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
    return waits.block_until(lock, [] { return false; }, steady_now() + timeout);
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

  std::string said;
  int runs = 0;
};

TEST_F(WaitsTest, WhatIsThereIsReturnedAfterTheLoss) {
  agent.lose(Error(Code::unavailable, "the node's agent has died"));
  waits.end();
  Guard lock = gate.guard();
  EXPECT_TRUE(waits.block_until(lock, [] { return true; }, Time::max()));
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
  EXPECT_TRUE(waits.block_until(lock, [&] { return here; }, Time::max()));
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
  const Handle result = submit();
  EXPECT_TRUE(waits.run_awaited(lock, entry_of(result)));
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(calls.live(), 0u);
  EXPECT_TRUE(is_here(entry_of(result)));
  EXPECT_GT(waits.waited(), Duration(0));
}

}  // namespace
}  // namespace troupe::client::waits_test
