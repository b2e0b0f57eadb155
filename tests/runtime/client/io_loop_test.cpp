// Tests that a thread which sleeps in get is woken by its reply. The reply may come while the
// thread spins, while it is about to sleep, or long after, from the peer whose ring it watches or
// from another. A sleeping thread also wakes for a timer that was set meanwhile.
#include "fake_agent.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <random>
#include <thread>

namespace troupe::client {
namespace {

const detail::Callable kMethod{[](detail::Invocation&) {}, detail::CallableKind::method};
constexpr ProcessIndex kHost = 21;
const ActorId kActor{3, 5};

constexpr ProcessIndex kOtherHost = 22;
const ActorId kOtherActor{3, 6};

struct IoLoopPeers : ::testing::Test {
  IoLoopPeers() {
    for (auto* actor : {&one, &other}) actor->lifetime = engine.put(std::array<std::byte, 1>{}, {});
    one.id = kActor;
    other.id = kOtherActor;
  }
  void TearDown() override { engine.stop(); }

  /// Makes a call and waits for its reply, on a thread of its own.
  std::future<bool> call(const detail::ActorHandle& actor) {
    return agent.meanwhile([this, &actor] {
      detail::Call call;
      call.callable = &kMethod;
      detail::ObjectHandle result;
      engine.call(actor, std::move(call), {&result, 1});
      return engine.try_get(result, 10s).ok();
    });
  }
  void live(const detail::ActorHandle& actor, ProcessIndex host) {
    agent.next<wire::WatchActor>();
    agent.connect(host, false);
    wire::ActorUpdate alive;
    alive.actor = actor.id;
    alive.state = wire::ActorState::alive;
    alive.incarnation = 1;
    alive.worker = host;
    agent.tell(alive);
  }
  /// Answers after a random short time. Nothing else wakes the caller before its 10 s are over.
  void answer_soon(ProcessIndex host) {
    wire::Reply reply;
    reply.sequence = agent.next_from<wire::Call>(host).message.sequence;
    reply.value.kind = wire::Value::Kind::inline_bytes;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));  // the varied time
    agent.peer_says(host, reply);
  }

  FakeAgent agent;
  ClientEngine& engine = *agent.engine;
  detail::ActorHandle one, other;
  std::mt19937 random{7};
};

TEST_F(IoLoopPeers, EveryReplyEndsTheSleepOfItsCaller) {
  for (int i = 0; i < 100; ++i) {
    auto got = call(one);
    if (i == 0) live(one, kHost);
    answer_soon(kHost);
    ASSERT_TRUE(got.get()) << "call " << i;
  }
}

TEST_F(IoLoopPeers, WhoWatchesOnePeerHearsTheOtherAndOutlivesBoth) {
  bool lives[2] = {};
  for (int i = 0; i < 60; ++i) {
    const bool often = random() % 4 != 0;  // mostly one peer, so that its ring is watched
    const auto& actor = often ? one : other;
    const ProcessIndex host = often ? kHost : kOtherHost;
    auto got = call(actor);
    if (!std::exchange(lives[often ? 1 : 0], true)) live(actor, host);
    answer_soon(host);
    ASSERT_TRUE(got.get()) << "call " << i;
  }
  auto lost = call(one);
  agent.next_from<wire::Call>(kHost);
  agent.tell(wire::PeerDied{kHost, "killed", 1'000'000});
  EXPECT_FALSE(lost.get());
  auto got = call(other);
  answer_soon(kOtherHost);
  EXPECT_TRUE(got.get());
}

struct Clock : IoLoop::Host {
  Fd socket{eventfd(0, EFD_CLOEXEC)};
  Time timer = Time::max();
  bool rang = false, collected = false;
  std::atomic<bool> leftovers{false};

  Time drain(Time now) override {
    collected |= leftovers.exchange(false);
    if (now >= timer) {
      rang = true;
      timer = Time::max();
    }
    return timer;
  }
  Time next_timer() const noexcept override { return timer; }
  int socket_fd() const override { return socket.get(); }
  bool wants_write() const override { return false; }
  void socket_ready() noexcept override {}
  bool has_leftovers() const noexcept override { return leftovers; }
  bool watch_peer() noexcept override { return false; }
  bool drain_watched(Time) override { return false; }
};

struct IoLoopTest : ::testing::Test {
  EngineLock lock;
  ring::Doorbell bell = ring::Doorbell::create().value();
  Clock clock;
  IoLoop io_loop{clock, bell, lock};

  IoLoopTest() { io_loop.start(); }
  ~IoLoopTest() override { io_loop.stop(); }
};

TEST_F(IoLoopTest, AnOverdueTimerIsTheIoThreadsWhoeverAssists) {
  constexpr Duration kLongAgo = 1s, kNow{0}, kInASecond = -1s;
  EXPECT_TRUE(IoLoop::left_to_others(false, true, kLongAgo, kInASecond));
  EXPECT_TRUE(IoLoop::left_to_others(false, true, kLongAgo, Time{} - Time::max()));
  EXPECT_FALSE(IoLoop::left_to_others(false, true, kLongAgo, 1ms));
  // The leading thread handles the timer, and so does one that led a moment ago.
  EXPECT_TRUE(IoLoop::left_to_others(true, false, kLongAgo, 1s));
  EXPECT_TRUE(IoLoop::left_to_others(false, false, kNow, 1s));
  EXPECT_FALSE(IoLoop::left_to_others(false, false, kLongAgo, kInASecond));
}

TEST_F(IoLoopTest, ATimerThatIsSetLaterEndsTheSleepOfWhoeverLeads) {
  std::mt19937 random(7);
  const auto set_timer = [&] {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));  // the varied time
    const Guard guard(lock);
    clock.timer = steady_now() + 1ms;
    io_loop.set_timer(clock.timer);
  };
  const auto rings = [&] {  // only the I/O thread looks at the timer
    for (const Time end = steady_now() + 10s; steady_now() < end;) {
      {
        const Guard guard(lock);
        if (clock.rang) return true;
      }
      std::this_thread::yield();
    }
    return false;
  };
  const auto forget = [&] {
    const Guard guard(lock);
    clock.rang = false;
  };
  for (int i = 0; i < 10; ++i) {
    forget();
    set_timer();
    ASSERT_TRUE(rings()) << "the I/O thread";
  }
  for (int i = 0; i < 10; ++i) {
    forget();
    auto leads = std::async(std::launch::async, [&] {
      Guard guard(lock);
      return io_loop.wait(guard, [&] { return clock.rang; }, steady_now() + 10s);
    });
    set_timer();
    ASSERT_TRUE(leads.get()) << "a thread that waits";
  }
}

TEST_F(IoLoopTest, WorkThatIsLeftToAFollowerWakesTheLeader) {
  const auto waits = [&] {
    Guard guard(lock);
    const Time begun = steady_now();
    return io_loop.wait(
               guard, [&] { return clock.collected; }, begun + 20s) &&
           steady_now() < begun + 10s;
  };
  auto leads = std::async(std::launch::async, waits);
  for (const Time end = steady_now() + 10s; bell.slept_on() < 0 && steady_now() < end;)
    std::this_thread::yield();
  EXPECT_GE(bell.slept_on(), 0) << "the leader has to sleep before work is left";
  // A third thread fails to take the lock from the follower, so it leaves its work.
  clock.leftovers = true;
  auto follows = std::async(std::launch::async, waits);
  EXPECT_TRUE(leads.get());
  EXPECT_TRUE(follows.get());
}

}  // namespace
}  // namespace troupe::client
