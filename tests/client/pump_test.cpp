// A thread that sleeps in get is woken by the reply it waits for, whenever that comes: while it
// spins, while it is about to sleep, or long after. Whoever sleeps wakes for a timer that was set
// meanwhile.
#include "fake_agent.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <random>
#include <thread>

namespace troupe::client {
namespace {

const detail::Callable kMethod{[](detail::Invocation&) {}, detail::CallableKind::method};
constexpr std::uint64_t kHost = 21;
const ActorId kActor{3, 5};

TEST(PumpTest, EveryReplyEndsTheSleepOfItsCaller) {
  FakeAgent agent;
  ClientEngine& engine = *agent.engine;
  detail::ActorHandle actor;
  actor.id = kActor;
  actor.lifetime = engine.put(std::array<std::byte, 1>{}, {});
  std::mt19937 random(7);
  // Nothing else wakes the caller before its 10 s are over.
  constexpr int kCalls = 100;
  for (int i = 0; i < kCalls; ++i) {
    auto got = agent.meanwhile([&] {
      detail::Call call;
      call.callable = &kMethod;
      detail::ObjectHandle result;
      engine.call(actor, std::move(call), {&result, 1});
      return engine.try_get(result, 10s).ok();
    });
    if (i == 0) {
      agent.next<wire::WatchActor>();
      agent.connect(kHost, false);
      wire::ActorUpdate alive;
      alive.actor = kActor;
      alive.state = wire::ActorState::alive;
      alive.incarnation = 1;
      alive.worker = kHost;
      agent.tell(alive);
    }
    wire::Reply reply;
    reply.sequence = agent.next_from<wire::Call>(kHost).message.sequence;
    reply.value.kind = wire::Value::Kind::inline_bytes;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));  // what is varied here
    agent.peer_says(kHost, reply);
    ASSERT_TRUE(got.get()) << "call " << i;
  }
  engine.stop();
}

struct Clock : Pump::Host {
  Fd socket{eventfd(0, EFD_CLOEXEC)};
  Time timer = Time::max();
  bool rang = false;

  Time drain(Time now) override {
    if (now >= timer) {
      rang = true;
      timer = Time::max();
    }
    return timer;
  }
  int socket_fd() const override { return socket.get(); }
  bool wants_write() const override { return false; }
  void socket_ready() noexcept override {}
  bool has_leftovers() const noexcept override { return false; }
};

TEST(PumpTest, ATimerThatIsSetLaterEndsTheSleepOfWhoeverLeads) {
  EngineLock lock;
  ring::Doorbell bell = ring::Doorbell::create().value();
  Clock clock;
  Pump pump(clock, bell, lock);
  pump.start();
  std::mt19937 random(7);
  const auto set_timer = [&] {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));  // what is varied here
    const Guard guard(lock);
    clock.timer = steady_now() + 1ms;
    pump.set_timer(clock.timer);
  };
  const auto rings = [&] {  // nobody but the I/O thread looks
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
      return pump.wait(guard, [&] { return clock.rang; }, steady_now() + 10s);
    });
    set_timer();
    ASSERT_TRUE(leads.get()) << "a thread that waits";
  }
  pump.stop();
}

}  // namespace
}  // namespace troupe::client
