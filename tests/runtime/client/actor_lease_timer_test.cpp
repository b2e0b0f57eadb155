// Tests the timer of an actor's lease: a process that hosts an actor stops when its node may not
// serve, whichever thread runs or wakes first.
#include "troupe/runtime/client/actor_lease_timer.hpp"

#include "tests/process/processes.hpp"
#include "troupe/runtime/base/sleep_clock.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <functional>
#include <thread>

namespace troupe::client::actor_lease_timer_test {
namespace {

using namespace std::chrono_literals;

constexpr Time kNow = Time{} + 1000s;

TEST(ActorLease, WithoutAWordItServesAndNeedsNoTimer) {
  const ActorLease lease = actor_lease_at(kServesAlways, kNow);
  EXPECT_TRUE(lease.may);
  EXPECT_EQ(lease.alarm, Time::max());
  EXPECT_EQ(lease.look, Time::max());
}

TEST(ActorLease, TheTimerGoesOffAtThatMomentAndIsMovedHalfway) {
  const ActorLease lease = actor_lease_at(actor_lease_word(kNow + 8s), kNow);
  EXPECT_TRUE(lease.may);
  EXPECT_EQ(lease.alarm, kNow + 8s);
  EXPECT_EQ(lease.look, kNow + 4s);
}

TEST(ActorLease, FromThatMomentOnItMayNot) {
  EXPECT_TRUE(actor_lease_at(actor_lease_word(kNow + 1ns), kNow).may);
  EXPECT_FALSE(actor_lease_at(actor_lease_word(kNow), kNow).may);
  EXPECT_FALSE(actor_lease_at(kServesNever, kNow).may);
  EXPECT_EQ(actor_lease_word(Time{}), kServesNever);
  EXPECT_LE(actor_lease_at(kServesNever, kNow).alarm, kNow) << "not for a moment";
  EXPECT_LE(actor_lease_at(kServesNever, kNow).look, kNow + 50ms) << "it goes on soon after it may";
}

/// Memory that a counting process shares with the test.
struct Shared {
  std::atomic<std::int64_t> word{0};
  std::atomic<std::uint64_t> count{0};
};

class ActorLeaseTimerProcess : public testing::Test {
 protected:
  void SetUp() override {
    void* at =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    shared_ = new (at) Shared;
  }
  void TearDown() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    munmap(shared_, sizeof(Shared));
  }
  /// Starts a process that counts while it may. It calls `before_it_counts` first.
  void start(Duration serves, void (*before_it_counts)() = [] {}) {
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ > 0) return;
    say(serves);  // in the child, since it may have waited for a CPU
    ActorLeaseTimer watch;
    watch.begin(shared_->word, steady_now());
    before_it_counts();
    for (Time look{};; shared_->count.fetch_add(1))
      if (const Time now = steady_now(); look <= now) look = watch.look(now);
  }
  void say(Duration serves) { shared_->word = actor_lease_word(Time(up_time()) + serves); }
  std::uint64_t count() const { return shared_->count.load(); }
  bool counts_within(Duration time) const {
    const std::uint64_t before = count();
    for (const Time end = steady_now() + time; steady_now() < end;) {
      if (count() != before) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  /// Returns whether the process sleeps. A counting process never does: without a CPU it is ready
  /// to run.
  bool stands_still() const { return state_of(pid_) == 'S'; }
  void wait_until(const std::function<bool()>& holds) {
    for (const Time end = steady_now() + 10s; !holds();) {
      ASSERT_LT(steady_now(), end);
      std::this_thread::sleep_for(1ms);
    }
  }

  Shared* shared_ = nullptr;
  pid_t pid_ = 0;
};

TEST_F(ActorLeaseTimerProcess, StandsStillWhenNobodySaysMoreAndGoesOnWhenSomebodyDoes) {
  start(100ms);
  wait_until([&] { return count() > 0; });
  wait_until([&] { return stands_still(); });
  EXPECT_GE(up_time().count(), shared_->word.load());
  EXPECT_FALSE(counts_within(100ms));
  say(20s);
  EXPECT_TRUE(counts_within(5s));
}

// The program handles the highest real-time signals, one of which is the timer's.
TEST_F(ActorLeaseTimerProcess, ThatBeginsTooLateDoesNotTakeAStep) {
  start(-1s);
  wait_until([&] { return stands_still(); });
  EXPECT_EQ(count(), 0u);
  say(20s);
  EXPECT_TRUE(counts_within(5s));
}

TEST_F(ActorLeaseTimerProcess, StandsStillAlsoWhenTheProgramTakesItsSignalLater) {
  start(500ms, [] {
    for (int signal = SIGRTMAX - 4; signal <= SIGRTMAX; ++signal) std::signal(signal, [](int) {});
  });
  wait_until([&] { return count() > 0; });
  wait_until([&] { return stands_still(); });
  EXPECT_GE(up_time().count(), shared_->word.load());
  say(20s);
  EXPECT_TRUE(counts_within(5s));
}

TEST_F(ActorLeaseTimerProcess, ThatWasStoppedForLongerDoesNotTakeAnotherStep) {
  start(300ms);
  wait_until([&] { return count() > 0; });
  kill(pid_, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  ASSERT_TRUE(WIFSTOPPED(status));
  const std::uint64_t before = count();
  wait_until([&] { return up_time().count() > shared_->word.load(); });
  kill(pid_, SIGCONT);
  wait_until([&] { return stands_still(); });
  EXPECT_EQ(count(), before);
  say(20s);
  EXPECT_TRUE(counts_within(5s));
}

}  // namespace
}  // namespace troupe::client::actor_lease_timer_test
