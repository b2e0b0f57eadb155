// A thread that sleeps in get is woken by the reply it waits for, whenever that comes: while it
// spins, while it is about to sleep, or long after.
#include "fake_agent.hpp"

#include <gtest/gtest.h>
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

}  // namespace
}  // namespace troupe::client
