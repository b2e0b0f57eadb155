// Tests EngineGate: GATE-1 to GATE-3.
#include "troupe/runtime/client/engine_gate.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <barrier>
#include <thread>
#include <vector>

namespace troupe::client::engine_gate_test {
namespace {

struct EngineGateTest : testing::Test, Values::Out, Values::Lost {
  EngineGateTest() { values.begin(ProcessIndex{7}, 5, 1); }
  // Values::Out
  void tell(const wire::NodeMessage& message, BlobView) override {
    if (const auto* hold = std::get_if<wire::Hold>(&message)) {
      EXPECT_TRUE(gate.lock().held_by_this_thread());
      freed.push_back(hold->object.low);
    }
  }
  void collect_released() override {}
  void notify() override {}
  void fire(const Waiter&, Entry&) override {}
  // Values::Lost
  bool recover_pending(Entry&, Error&) override { return false; }
  void outlive(Entry&) override {}
  void tell_calls() override {}
  void hand_over(Entry&) override {}
  bool park(Entry&) override { return false; }
  detail::ObjectHandle revive(Entry& entry) override { return ObjectTable::keep(entry); }

  /// An entry that others know, without a handle.
  Entry* entry(std::uint64_t low) {
    auto* made = new Entry;
    made->id = ObjectId{5, low};
    values.objects().mark_promoted(*made);
    return made;
  }

  std::vector<std::uint64_t> freed;
  StoreUse store;
  SchedulingClasses classes;
  Values values{static_cast<Values::Out&>(*this), static_cast<Values::Lost&>(*this), store,
                classes};
  EngineGate gate{static_cast<Values::Out&>(*this), values, store};
};

TEST_F(EngineGateTest, EntryIsFreedAtOnceWhenTheLockIsFree) {
  gate.release(entry(1));
  EXPECT_EQ(freed, (std::vector<std::uint64_t>{1}));
  EXPECT_FALSE(gate.has_leftovers());
  EXPECT_TRUE(gate.lock().try_lock()) << "it is free again";
  gate.lock().unlock();
}

TEST_F(EngineGateTest, HolderOfTheLockFreesWhatWasLeft) {
  Guard lock = gate.guard();
  gate.release(entry(1));
  std::thread([&] { gate.release(entry(2)); }).join();
  EXPECT_TRUE(freed.empty());
  EXPECT_TRUE(gate.has_leftovers());
  gate.unlock_and_collect(lock);
  EXPECT_EQ(freed, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_FALSE(gate.has_leftovers());
  EXPECT_FALSE(lock.owns_lock());
  EXPECT_TRUE(gate.lock().try_lock());
  gate.lock().unlock();
}

TEST_F(EngineGateTest, NothingStaysBehindWhenReleaseAndUnlockMeet) {
  constexpr std::uint64_t kRounds = 20'000;
  std::vector<Entry*> entries;
  for (std::uint64_t i = 1; i <= kRounds; ++i) entries.push_back(entry(i));
  std::barrier meet(2);
  std::thread holder([&] {
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      Guard lock = gate.guard();
      meet.arrive_and_wait();
      gate.unlock_and_collect(lock);
      EXPECT_FALSE(lock.owns_lock());
      meet.arrive_and_wait();
    }
  });
  std::uint64_t rounds_with_leftovers = 0;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    meet.arrive_and_wait();
    gate.release(entries[i]);
    meet.arrive_and_wait();
    rounds_with_leftovers += gate.has_leftovers();
  }
  holder.join();
  EXPECT_EQ(rounds_with_leftovers, 0u);
  EXPECT_EQ(freed.size(), kRounds);
}

TEST_F(EngineGateTest, WhatIsLeftAtTheEndIsDeletedWithoutAWord) {
  gate.lock().lock();
  gate.release(entry(1));
  gate.lock().unlock();
  gate.drop();
  EXPECT_FALSE(gate.has_leftovers());
  EXPECT_TRUE(freed.empty());
}

TEST_F(EngineGateTest, ForkGetsNoGuard) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      (void)gate.guard();
    } catch (const Error&) {
      refused = true;
    }
    ::_exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace troupe::client::engine_gate_test
