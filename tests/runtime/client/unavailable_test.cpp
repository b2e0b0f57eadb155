// Tests what a get reports of a call that does not end: its actor's node is silent, its life is
// over and which one comes next, or the way to it was lost. Also tests what becomes of the call
// after each report.
#include "driver.hpp"

#include <gtest/gtest.h>

namespace troupe::client::unavailable_test {
namespace {

using namespace std::chrono_literals;

const detail::Callable kMethod{[](detail::Invocation&) {}, detail::CallableKind::method};
const ActorId kActor{3, 5};

struct Unavailable : Driver {
  detail::ActorHandle actor{kActor, put("its lifetime")};

  detail::ObjectHandle call() {
    return agent.finish(agent.meanwhile([this] {
      detail::Call call;
      call.callable = &kMethod;
      detail::ObjectHandle result;
      engine().call(actor, std::move(call), {&result, 1});
      return result;
    }));
  }
  wire::ActorUpdate alive(bool silent = false) const {
    wire::ActorUpdate update;
    update.actor = kActor;
    update.state = wire::ActorState::alive;
    update.incarnation = 1;
    update.worker = kThere;
    update.silent = silent;
    return update;
  }
  /// Answers that the actor lives on another node, as soon as the engine asks.
  void live() {
    agent.next<wire::WatchActor>();
    agent.connect(kThere, true, kNode);
    agent.tell(alive());
  }
  Result<detail::Value> end_of(const detail::ObjectHandle& result, Duration timeout) {
    return agent.finish(
        agent.meanwhile([this, &result, timeout] { return engine().try_get(result, timeout); }));
  }
};

TEST_F(Unavailable, ACallToASilentNodeGoesOn) {
  const auto result = call();
  live();
  const auto sent = agent.next_from<wire::Call>(kThere).message;
  EXPECT_EQ(end_of(result, 100ms).error().code(), Code::timed_out);
  agent.tell(alive(true));
  const Error error = end_of(result, 100ms).error();
  EXPECT_EQ(error.code(), Code::actor_unavailable);
  EXPECT_EQ(error.outcome(), Outcome::unknown);
  EXPECT_EQ(end_of(result, 0ms).error().code(), Code::timed_out) << "a look is no wait";
  agent.tell(alive(false));
  EXPECT_EQ(end_of(result, 100ms).error().code(), Code::timed_out);
  wire::Reply reply;
  reply.sequence = sent.sequence;
  reply.value.kind = wire::Value::Kind::inline_bytes;
  agent.peer_says(kThere, reply);
  EXPECT_TRUE(end_of(result, 10s));
}

TEST_F(Unavailable, AJobThatAPersonStopsIsCancelledForEveryWaitAndLaterCall) {
  const auto result = call();
  live();
  agent.next_from<wire::Call>(kThere);
  auto waits = agent.meanwhile([&] { return engine().try_get(result, 60s); });
  agent.tell(wire::Shutdown{"stopped by alice with troupe job stop", true});
  const auto value = agent.finish(std::move(waits));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code(), Code::cancelled);
  EXPECT_EQ(value.error().outcome(), Outcome::unknown);
  EXPECT_NE(value.error().message().find("stopped by alice with troupe job stop"),
            std::string::npos);
  EXPECT_THROW(submit({}), Cancelled);
}

TEST_F(Unavailable, WhatWasCarriedToANodeOutOfReachMayHaveRun) {
  const auto result = call();
  live();
  agent.next_from<wire::Call>(kThere);
  agent.tell(wire::PeerDied{kThere, "out of reach: it takes nothing", 1});
  const auto queued = call();
  const Error error = end_of(result, 10s).error();
  EXPECT_EQ(error.code(), Code::actor_unavailable);
  EXPECT_EQ(error.outcome(), Outcome::unknown);
  EXPECT_NE(error.message().find("it takes nothing"), std::string::npos) << error.message();
  EXPECT_EQ(end_of(queued, 100ms).error().code(), Code::timed_out) << "it was not sent";
  constexpr ProcessIndex kThen = kThere.value + 20;
  agent.connect(kThen, true, kNode);
  wire::ActorUpdate again = alive();
  again.worker = kThen;
  agent.tell(again);
  EXPECT_GT(agent.next_from<wire::Call>(kThen).message.sequence, 0u);
}

TEST_F(Unavailable, ADeadNodesActorsAreDead) {
  const auto result = call();
  live();
  agent.next_from<wire::Call>(kThere);
  agent.tell(alive(true));
  agent.tell(wire::PeerDied{kThere, "control has declared it dead", 1});
  EXPECT_EQ(end_of(result, 10s).error().code(), Code::actor_died);
}

TEST_F(Unavailable, ACallThatWaitsForALifeSaysHowTheLastOneEnded) {
  const auto result = call();
  agent.next<wire::WatchActor>();
  wire::ActorUpdate waits;
  waits.actor = kActor;
  waits.state = wire::ActorState::pending;
  waits.incarnation = 7;
  ErrorInfo end;
  end.code = Code::actor_unavailable;
  end.message = "actor A is in its 7th life, which ended in its constructor with: no disk";
  end.cause = Error(Code::task_failed, "no disk").shared_info();
  waits.error = std::make_shared<const ErrorInfo>(end);
  waits.retry_at_ns = static_cast<std::uint64_t>((steady_now() + 1h).time_since_epoch().count());
  agent.tell(waits);
  Error error = end_of(result, 100ms).error();
  EXPECT_EQ(error.code(), Code::timed_out);
  EXPECT_NE(error.message().find(end.message + "; next attempt in 3"), std::string::npos)
      << error.message();
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->message(), "no disk");
  waits.incarnation = 8;
  waits.retry_at_ns = 0;
  agent.tell(waits);
  error = end_of(result, 100ms).error();
  EXPECT_NE(error.message().find(end.message + "; its next life is being made"), std::string::npos)
      << error.message();
}

}  // namespace
}  // namespace troupe::client::unavailable_test
