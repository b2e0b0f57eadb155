// Tests a process at its limits: values nested very deeply, callers and agents that are gone, and
// messages that only a broken or hostile process sends.
#include "driver.hpp"
#include "tests/eventually.hpp"
#include "tests/process/processes.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <thread>

namespace troupe::client {
namespace {

using Extremes = Driver;

TEST_F(Extremes, ADeeplyNestedValueGoesWithACall) {
  constexpr int kDeep = 20'000;
  detail::ObjectHandle outer = engine().put(bytes_of("innermost"), {});
  for (int i = 0; i < kDeep; ++i) outer = engine().put(bytes_of("around it"), {&outer, 1});
  submit({outer});
  lease(kBeside, false, 0);
  const auto call = agent.next_from<wire::Call>(kBeside).message;
  ASSERT_EQ(call.arguments.at(0).refs.size(), 1u);
  EXPECT_EQ(agent.promoted().size(), std::size_t{kDeep})
      << "all but the outermost, which goes along";
}

TEST_F(Extremes, AResultForACallerThatIsGoneIsNobodys) {
  agent.finish(agent.meanwhile([&] {
    for (int i = 0; i < 8; ++i) {
      const auto value =
          engine().value_bytes().finish_room(engine().value_bytes().make_room(900'000, {}), {});
      engine().reply(kBeside, 1, 0, true, Duration(0), value);
    }
    return true;
  }));
  EXPECT_LE(agent.extents, 2) << "of 1 MiB each";
}

TEST_F(Extremes, WhatIsCountedForAProcessSaysInWhichFrameItIsAndTheDeadAreCounted) {
  const auto inner = engine().put(bytes_of("inner"), {});
  const auto outer = engine().put(bytes_of("outer"), {&inner, 1});
  submit({outer});
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  EXPECT_EQ(agent.last_hold().object, inner.id());
  EXPECT_EQ(agent.last_hold().process, kBeside);
  EXPECT_EQ(agent.last_hold().frame, 1u);
  reply(kBeside, 1, value_of(Kind::pending));  // from now on short tasks stream
  submit({outer});
  agent.next_from<wire::Call>(kBeside);
  EXPECT_EQ(agent.last_hold().frame, 2u);
  reply(kBeside, 2, value_of(Kind::pending));
  agent.tell(wire::PeerDied{kBeside, "it was killed"});
  const auto arrived = agent.next<wire::Arrived>();
  EXPECT_EQ(arrived.peer, kBeside);
  EXPECT_EQ(arrived.frames, 2u);
  agent.tell(wire::PeerDied{kBeside.value + 1, "it was killed before its channel came"});
  EXPECT_EQ(agent.next<wire::Arrived>().frames, 0u);
}

TEST_F(Extremes, AResultInMemoryIsItsCallersFromTheFrameOnThatBringsIt) {
  submit({});
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);  // the first frame
  agent.finish(agent.meanwhile([&] {
    const detail::CallSite here{"main.cpp", 12};
    engine().reply(
        kBeside, 1, 0, true, Duration(0),
        engine().value_bytes().finish_room(engine().value_bytes().make_room(50'000, here), {}));
    return true;
  }));
  const auto site = agent.next<wire::CallSite>();
  EXPECT_EQ(site.number, 1u);
  EXPECT_EQ(site.text, "main.cpp:12");
  const auto adopted = agent.next<wire::Adopt>();
  EXPECT_EQ(adopted.site, 1u);
  EXPECT_EQ(adopted.process, kBeside);
  EXPECT_EQ(adopted.frame, 2u);
}

TEST_F(Extremes, ABundleOfBundlesIsRefused) {
  const auto result = submit({});
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  const auto bundled = [&](ObjectId bundle) {
    wire::Value value = agent.shared(kLarge);
    value.ref_count = wire::kMaxRefs + 1;
    value.refs = {bundle};
    return value;
  };
  reply(kBeside, 1, bundled(kObject));
  auto get = getting(result);
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  agent.tell(wire::Ready{kObject, bundled(ObjectId{77, 2})});
  const auto got = agent.finish(std::move(get));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Code::internal) << got.error().message();
}

TEST_F(Extremes, WhatOneThreadEndsWakesTheOneThatWaits) {
  static const detail::Callable kMethod{[](detail::Invocation&) {}, detail::CallableKind::method};
  detail::ActorHandle actor;
  actor.id = ActorId{3, 5};
  actor.lifetime = put("its lifetime");
  detail::Call call;
  call.callable = &kMethod;
  detail::ObjectHandle result;
  engine().call(actor, std::move(call), {&result, 1});
  Time begun{};
  const auto killer = std::async(std::launch::async, [&] {
    (void)eventually([] { return state_of(::getpid()) == 'S'; }, 5s);  // the waiting thread sleeps
    begun = steady_now();
    engine().kill(actor, false);
  });
  EXPECT_EQ(engine().try_get(result, 10s).error().code(), Code::actor_died);
  killer.wait();
  EXPECT_LT(steady_now() - begun, 5s);
}

Duration used_cpu() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto length = [](const timeval& at) {
    return std::chrono::seconds(at.tv_sec) + std::chrono::microseconds(at.tv_usec);
  };
  return length(usage.ru_utime) + length(usage.ru_stime);
}

TEST_F(Extremes, NumbersOfAttemptsBelowMinusOneAreRefused) {
  static const detail::Callable kEntry{[](detail::Invocation&) {}};
  detail::Request request;
  request.max_restarts = -2;
  EXPECT_THROW((void)engine().spawn({.callable = &kEntry}, &request), InvalidArgument);
  request.max_restarts = 0;
  request.max_retries = -2;
  detail::ObjectHandle result;
  EXPECT_THROW(engine().submit({.callable = &kEntry}, &request, {&result, 1}), InvalidArgument);
}

TEST_F(Extremes, ATimeoutOfNothingOrLessOnlyLooks) {
  const auto pending = submit({});
  const auto ready = put("it is here");
  for (const Duration timeout : {Duration(0), Duration(-1), Duration(-1h), Duration::min()}) {
    const auto got = engine().try_get(pending, timeout);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code(), Code::timed_out);
    EXPECT_EQ(got.error().message().find('-'), std::string::npos) << got.error().message();
    EXPECT_TRUE(engine().wait({&pending, 1}, 1, timeout).empty());
    EXPECT_EQ(engine().wait({&ready, 1}, 1, timeout).size(), 1u);
    EXPECT_TRUE(engine().try_get(ready, timeout).ok());
  }
}

TEST_F(Extremes, NobodySpinsOnAConnectionThatHasEnded) {
  const auto result = submit({});
  agent.die();
  const auto got = agent.finish(getting(result));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Code::unavailable);
  const Duration before = used_cpu();
  std::this_thread::sleep_for(80ms);
  EXPECT_LT(used_cpu() - before, 20ms);
}

}  // namespace
}  // namespace troupe::client
