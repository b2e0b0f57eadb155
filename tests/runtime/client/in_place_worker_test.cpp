// Tests a worker that runs a task in place while it awaits it: the messages of its engine
// meanwhile, and the results.
#include "driver.hpp"
#include "troupe/runtime/client/run_in_place.hpp"

#include <gtest/gtest.h>
#include <cstring>
#include <stdexcept>
#include <typeinfo>

namespace troupe::client {
namespace {

void publish(detail::Invocation& invocation, const std::string& text) {
  std::memcpy(invocation.allocate(0, text.size()).data(), text.data(), text.size());
  invocation.publish(0, {});
}
const detail::Callable kSmallResult{[](detail::Invocation& i) { publish(i, "small"); },
                                    detail::CallableKind::function};
const detail::Callable kLargeResult{[](detail::Invocation& i) { publish(i, kLarge); },
                                    detail::CallableKind::function};
const detail::Callable kNamedResult{.thunk = [](detail::Invocation& i) { publish(i, kLarge); },
                                    .kind = detail::CallableKind::function,
                                    .name = "large()"};
const detail::Callable kThrows{[](detail::Invocation& i) {
                                 i.enter(detail::Phase::running);
                                 throw std::runtime_error("no luck");
                               },
                               detail::CallableKind::function};

struct InPlaceWorker : Driver {
  InPlaceWorker() : Driver(wire::ProcessKind::worker) {}

  void lease_to_itself() {
    wire::LeaseGranted lease;
    lease.worker = FakeAgent::kProcess;
    lease.demand = wire::ResourceDemand{};
    agent.tell(lease);
    wire::PeerDied nobody;
    nobody.peer = kThere;
    agent.tell(nobody);
    agent.next<wire::Arrived>();  // the engine has read everything before this
  }
  detail::ObjectHandle submit_of(const detail::Callable& callable,
                                 const detail::Request& request = {}) {
    detail::Call call;
    call.callable = &callable;
    detail::ObjectHandle result;
    engine().submit(std::move(call), &request, {&result, 1});
    return result;
  }
  /// Awaits the object as a task of this attempt that runs on the worker's own thread.
  auto awaiting(const detail::ObjectHandle& object, std::uint32_t attempt = 1) {
    return agent.meanwhile([this, object, attempt] {
      InPlaceRuns runs(engine());
      engine().runs_in_place(&runs);
      auto value = [&] {
        const InPlaceRuns::Permit permit(runs, kFunction, attempt);
        return engine().try_get(object, detail::kNoTimeout);
      }();
      engine().runs_in_place(nullptr);
      return value;
    });
  }
};

TEST_F(InPlaceWorker, TheWordOfItsLeaseCountsAlsoBeforeItBeginsToWork) {
  lease_to_itself();
  const auto result = submit_of(kSmallResult);
  const auto value = agent.finish(awaiting(result));
  ASSERT_TRUE(value) << value.error().what();
  EXPECT_EQ(text_of(*value), "small");
  EXPECT_FALSE(agent.has_said<wire::Blocked>());
}

TEST_F(InPlaceWorker, WithoutAWordOfItsLeaseItWaits) {
  const auto result = submit_of(kSmallResult);
  auto waits = awaiting(result);
  agent.next<wire::Blocked>();
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  reply(kBeside, 1, value_of(Kind::pending));
  EXPECT_TRUE(agent.finish(std::move(waits)));
}

TEST_F(InPlaceWorker, ALaterAttemptRunsNothingInPlace) {
  lease_to_itself();
  const auto result = submit_of(kSmallResult);
  auto waits = awaiting(result, 2);
  agent.next<wire::Blocked>();
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  reply(kBeside, 1, value_of(Kind::pending));
  EXPECT_TRUE(agent.finish(std::move(waits)));
}

TEST_F(InPlaceWorker, ALargeResultIsItsOwnUntilOthersHearOfIt) {
  lease_to_itself();
  const auto result = submit_of(kLargeResult);
  const auto value = agent.finish(awaiting(result));
  ASSERT_TRUE(value) << value.error().what();
  EXPECT_EQ(text_of(*value), kLarge);
  EXPECT_FALSE(agent.has_said<wire::Adopt>());
  const auto outer = engine().put(bytes_of("outer"), {&result, 1});
  const auto other = submit({outer});
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  EXPECT_TRUE(agent.has_said<wire::Adopt>());
  const auto promoted = agent.promoted();
  ASSERT_EQ(promoted.count(result.id()), 1u);
  EXPECT_EQ(agent.read(promoted.at(result.id()).location), kLarge);
}

/// `troupe memory` shows for each object which call made it.
TEST_F(InPlaceWorker, ALargeResultIsOfTheFunctionThatMadeIt) {
  lease_to_itself();
  const auto result = submit_of(kNamedResult);
  ASSERT_TRUE(agent.finish(awaiting(result)));
  const auto site = agent.next<wire::CallSite>();
  EXPECT_EQ(site.text, "large()");
  const auto outer = engine().put(bytes_of("outer"), {&result, 1});
  const auto other = submit({outer});
  lease(kBeside, false, 0);
  const auto adopted = agent.next<wire::Adopt>();
  EXPECT_EQ(adopted.site, site.number);
}

TEST_F(InPlaceWorker, AResultForWhichOthersWaitIsToldToThem) {
  lease_to_itself();
  constexpr ProcessIndex kOther = kBeside.value + 1;
  const auto result = submit_of(kLargeResult);
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  const auto outer = engine().put(bytes_of("outer"), {&result, 1});
  const auto other = submit({outer});
  lease(kOther, false, 0);
  agent.next_from<wire::Call>(kOther);
  ASSERT_EQ(agent.promoted().count(result.id()), 1u);
  auto waits = awaiting(result);
  agent.next_from<wire::Recall>(kBeside);
  agent.peer_says(kBeside, wire::HandBack{1, 1});
  const auto value = agent.finish(std::move(waits));
  ASSERT_TRUE(value) << value.error().what();
  const auto told = agent.next<wire::Fulfil>();
  EXPECT_EQ(told.object, result.id());
  EXPECT_EQ(agent.read(told.value.location), kLarge);
}

TEST_F(InPlaceWorker, WhatATaskThrowsIsTriedAgainInAnotherProcess) {
  lease_to_itself();
  detail::Request request;
  request.retry_on = {typeid(std::runtime_error).name()};
  const auto result = submit_of(kThrows, request);
  auto waits = awaiting(result);
  agent.next<wire::Blocked>();
  lease(kBeside, false, 0);
  EXPECT_EQ(agent.next_from<wire::Call>(kBeside).message.attempt, 2u);
  reply(kBeside, 1, value_of(Kind::pending));
  EXPECT_TRUE(agent.finish(std::move(waits)));
}

TEST_F(InPlaceWorker, WhatATaskThrowsIsItsError) {
  lease_to_itself();
  const auto value = agent.finish(awaiting(submit_of(kThrows)));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code(), Code::task_failed);
  EXPECT_EQ(value.error().outcome(), Outcome::executed);
  EXPECT_EQ(value.error().info().origin.node, "here");
}

TEST_F(InPlaceWorker, ATaskInARingIsRecalledOnceAndRunWhenTheCpuIsBack) {
  lease_to_itself();
  const auto result = submit_of(kSmallResult);
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  auto waits = awaiting(result);
  agent.next<wire::Blocked>();
  agent.next_from<wire::Recall>(kBeside);
  EXPECT_FALSE(agent.has_said<wire::Unblocked>());
  agent.peer_says(kBeside, wire::HandBack{1, 1});
  const auto value = agent.finish(std::move(waits));
  ASSERT_TRUE(value) << value.error().what();
  EXPECT_EQ(text_of(*value), "small");
  EXPECT_TRUE(agent.has_said<wire::Unblocked>());
}

}  // namespace
}  // namespace troupe::client
