// Tests values that are lost, found again or computed twice. Each message answers the right
// question, the right parts of a call are kept, and nothing waits for ever, leaks or recurses.
#include "driver.hpp"

#include <gtest/gtest.h>
#include <array>
#include <thread>

namespace troupe::client {
namespace {

struct Lost : Driver {
  static constexpr ObjectId kArgument{77, 5};
  static constexpr ObjectId kSecond{77, 6};
  static constexpr ObjectId kElsewhere{78, 1};

  void reply_with_ref(std::uint64_t sequence, ObjectId ref) {
    wire::Value value = value_of(Kind::inline_bytes);
    value.refs = {ref};
    reply(kThere, sequence, value);
  }
  // Returns an object that other processes computed and whose bytes lie on another node. Its ref
  // came inside a result.
  detail::ObjectHandle received(std::uint64_t sequence, ObjectId id) {
    const auto holder = submit({});
    if (sequence == 1) lease_remote();
    EXPECT_EQ(agent.next_from<wire::Call>(kThere).message.sequence, sequence);
    reply_with_ref(sequence, id);
    const auto value = agent.finish(getting(holder)).value();
    detail::ObjectHandle object = value.refs[0];
    if (!engine().is_ready(object)) {
      EXPECT_FALSE(agent.next<wire::Await>().fetch);
      agent.tell(wire::Ready{id, far_away()});
      agent.run_until([&] { return engine().is_ready(object); }, "it is known");
    }
    return object;
  }
  // Answers the next call there with the loss of its only argument.
  wire::Call say_lost(ObjectId lost) {
    const auto call = agent.next_from<wire::Call>(kThere).message;
    wire::Reply reply;
    reply.sequence = call.sequence;
    reply.value = failed(Code::object_lost, "its node died");
    reply.lost_argument = 1;
    reply.lost = lost;
    agent.peer_says(kThere, reply);
    return call;
  }
  std::array<detail::ObjectHandle, 2> submit_two() {
    detail::Call call;
    call.callable = &kFunction;
    std::array<detail::ObjectHandle, 2> results;
    engine().submit(std::move(call), nullptr, results);
    return results;
  }
  void reply_part(ProcessIndex worker, std::uint64_t sequence, std::uint32_t index,
                  const wire::Value& value) {
    wire::Reply reply;
    reply.sequence = sequence;
    reply.index = index;
    reply.last = index == 1;
    reply.value = value;
    agent.peer_says(worker, reply);
  }
  // Answers the next two Await messages without `fetch`: the objects lie on another node.
  void both_are_far_away() {
    for (int i = 0; i < 2; ++i)
      agent.tell(wire::Ready{agent.next<wire::Await>().object, far_away()});
  }
  // Makes a call whose two results lie on another node. The second has been fetched; the first
  // was lost and is computed again.
  std::array<detail::ObjectHandle, 2> one_of_two_lost() {
    auto results = submit_two();
    lease_remote();
    agent.next_from<wire::Call>(kThere);
    reply_part(kThere, 1, 0, forwarded(kObject));
    reply_part(kThere, 1, 1, forwarded(kSecond));
    both_are_far_away();
    auto second = getting(results[1]);
    while (agent.next<wire::Await>().object != kSecond && !HasFailure()) {
    }
    agent.tell(wire::Ready{kSecond, agent.shared(kLarge)});
    EXPECT_EQ(text_of(agent.finish(std::move(second)).value()), kLarge);
    return results;
  }
  wire::Call lose_first(const detail::ObjectHandle& first,
                        std::future<Result<detail::Value>>& get) {
    get = getting(first);
    EXPECT_EQ(agent.next<wire::Await>().object, kObject);
    agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
    const auto again = agent.next_from<wire::Call>(kThere).message;
    EXPECT_EQ(again.attempt, 2u);
    return again;
  }
  // Gives the object other holders.
  void let_escape(const detail::ObjectHandle& object, std::uint64_t sequence) {
    const auto outer = engine().put(bytes_of("outer"), {&object, 1});
    submit({outer});
    EXPECT_EQ(agent.next_from<wire::Call>(kThere).message.sequence, sequence);
    reply(kThere, sequence, value_of(Kind::pending));
  }
};

TEST_F(Lost, AnArgumentThatIsParkedAndArrivesAgainIsTheSameObject) {
  auto argument = received(1, kArgument);
  const auto result = submit({argument});
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 2, forwarded(kObject));
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  agent.tell(wire::Ready{kObject, far_away()});
  agent.run_until([&] { return engine().is_ready(result); }, "the result is known");
  argument = {};  // from here on only the lineage of `result` keeps it
  EXPECT_EQ(agent.holds(kArgument, FakeAgent::kProcess), 0);
  const auto again = received(3, kArgument);
  agent.run_until([&] { return agent.holds(kArgument, FakeAgent::kProcess) == -1; },
                  "it was counted once too often");
  auto get = getting(result);
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  EXPECT_EQ(say_lost(kArgument).arguments.at(0).forward, kArgument);
  EXPECT_EQ(agent.next<wire::Rebuild>().object, kArgument);
  agent.tell(wire::Ready{kArgument, forwarded(kElsewhere)});
  const auto call = agent.next_from<wire::Call>(kThere).message;
  EXPECT_EQ(call.arguments.at(0).forward, kElsewhere);
  wire::Value small = value_of(Kind::inline_bytes);
  reply(kThere, call.sequence, small);
  EXPECT_TRUE(agent.finish(std::move(get)));
}

// A grant may be lost when a worker dies before its channel comes. The engine must then repeat
// the request, also when the arguments became ready long after the submission.
TEST_F(Lost, ARequestIsSaidAgainAlsoWhenArgumentsWereReadyLongAfterTheSubmission) {
  const auto holder = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply_with_ref(1, kArgument);
  const auto value = agent.finish(getting(holder)).value();
  const auto result = submit({value.refs[0]});
  agent.next<wire::Await>();
  agent.next<wire::LeaseReturned>();        // idle long enough: only the submission's tick is
  const Time ticked = steady_now() + 60ms;  // still due
  agent.run_until([&] { return steady_now() >= ticked; }, "the time of that tick");
  agent.tell(wire::Ready{kArgument, far_away()});
  EXPECT_EQ(agent.next<wire::RequestLease>().backlog, 1U);
  const auto again = agent.next<wire::RequestLease>();
  EXPECT_EQ(again.backlog, 1U) << "it is not said again";
  agent.grant(again.key, 9, kThere);
  EXPECT_EQ(agent.next_from<wire::Call>(kThere).message.sequence, 2U);
}

TEST_F(Lost, TheErrorOfAFetchIsNotTheAnswerToARebuild) {
  const auto object = received(1, kArgument);
  auto get = getting(object);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  const auto user = submit({object});
  say_lost(kArgument);
  EXPECT_EQ(agent.next<wire::Rebuild>().object, kArgument);
  agent.tell(wire::Ready{kArgument, failed(Code::object_lost, "its node died")});  // for the get
  agent.tell(wire::Ready{kArgument, forwarded(kElsewhere)});  // the object was computed again
  while (!agent.next<wire::Await>().fetch && !HasFailure()) {
  }
  agent.tell(wire::Ready{kElsewhere, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(get)).value()), kLarge);
}

TEST_F(Lost, ARebuildIsNotRefusedWhileTheLastHandleIsJustGoing) {
  auto result = remote_result();
  const ObjectId id = result.id();
  let_escape(result, 2);
  const auto user = submit({result}, 0);
  agent.next_from<wire::Call>(kThere);
  result = {};  // the call has the last handle until the next two messages are read
  agent.tell(wire::PeerDied{kThere, "its node died", 3});
  agent.tell(wire::Rebuild{id, kObject});
  const auto answer = agent.next<wire::Rebuilt>();
  EXPECT_EQ(answer.object, id);
  EXPECT_EQ(answer.value.kind, Kind::forwarded) << "the task that made it runs again";
}

TEST_F(Lost, WhatASecondAttemptPublishesTwiceIsFreed) {
  const auto results = submit_two();
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  const wire::Value first = agent.shared(kLarge), second = agent.shared(kLarge);
  reply_part(kBeside, 1, 0, first);
  EXPECT_EQ(text_of(agent.finish(getting(results[0])).value()), kLarge);
  agent.tell(wire::PeerDied{kBeside, "it crashed", 1});
  constexpr ProcessIndex kAnother = kBeside.value + 1;
  lease(kAnother, false, 0);
  EXPECT_EQ(agent.next_from<wire::Call>(kAnother).message.attempt, 2u);
  reply_part(kAnother, 1, 0, second);
  EXPECT_EQ(agent.next<wire::Free>().location, second.location);
  wire::Value small = value_of(Kind::inline_bytes);
  reply_part(kAnother, 1, 1, small);
  EXPECT_TRUE(agent.finish(getting(results[1])));
  EXPECT_EQ(text_of(agent.finish(getting(results[0])).value()), kLarge);
  EXPECT_FALSE(agent.has_said<wire::Free>());
}

TEST_F(Lost, ACallWhoseSecondRunWasSmallMayRunAThirdTime) {
  const auto results = one_of_two_lost();
  std::future<Result<detail::Value>> get;
  const auto again = lose_first(results[0], get);
  wire::Value small = value_of(Kind::inline_bytes);
  reply_part(kThere, again.sequence, 0, small);
  reply_part(kThere, again.sequence, 1, small);
  EXPECT_TRUE(agent.finish(std::move(get)));
  // A result of the first run is needed and gone.
  submit({results[1]}, 0);
  EXPECT_EQ(say_lost(kSecond).arguments.at(0).forward, kSecond);
  EXPECT_EQ(agent.next_from<wire::Call>(kThere).message.attempt, 3u);
}

TEST_F(Lost, AResultThatWasThereWhenItsCallRanAgainIsRememberedForOthers) {
  auto results = one_of_two_lost();
  const ObjectId id = results[1].id();
  let_escape(results[1], 2);
  std::future<Result<detail::Value>> get;
  const auto again = lose_first(results[0], get);
  reply_part(kThere, again.sequence, 0, forwarded(kElsewhere));
  reply_part(kThere, again.sequence, 1, forwarded(ObjectId{78, 2}));
  const auto await = agent.next<wire::Await>();
  EXPECT_EQ(await.object, kElsewhere);
  agent.tell(wire::Ready{kElsewhere, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(get)).value()), kLarge);
  results[1] = {};
  EXPECT_EQ(agent.next<wire::Lineage>().object, id);
  agent.tell(wire::Rebuild{id, kSecond});
  EXPECT_EQ(agent.next<wire::Rebuilt>().value.kind, Kind::forwarded);
  const int held = agent.holds(ObjectId{78, 2}, FakeAgent::kProcess);
  agent.tell(wire::Ready{ObjectId{78, 2}, agent.shared(kLarge)});
  agent.run_until([&] { return agent.holds(ObjectId{78, 2}, FakeAgent::kProcess) < held; },
                  "nobody here waits for it any more");
}

TEST_F(Lost, ACallThatRanAndCannotRunAgainIsNotCalledNotExecuted) {
  const auto argument = received(1, kArgument);
  const auto result = submit({argument});
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 2, forwarded(kObject));
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  agent.tell(wire::Ready{kObject, far_away()});
  agent.run_until([&] { return engine().is_ready(result); }, "the result is known");
  auto get_argument = getting(argument);
  EXPECT_EQ(agent.next<wire::Await>().object, kArgument);
  agent.tell(wire::Ready{kArgument, failed(Code::object_lost, "its node died")});
  EXPECT_EQ(agent.next<wire::Rebuild>().object, kArgument);
  agent.tell(wire::Ready{kArgument, forwarded(kElsewhere)});
  wire::Value refused;  // the process that should compute the object again could not
  refused.kind = Kind::error;
  ErrorInfo info = Error(Code::task_failed, "its own argument failed").info();
  info.outcome = Outcome::not_executed;
  refused.error = Error(std::move(info)).shared_info();
  EXPECT_EQ(agent.next<wire::Await>().object, kElsewhere);
  agent.tell(wire::Ready{kElsewhere, refused});
  EXPECT_FALSE(agent.finish(std::move(get_argument)));
  const auto user = submit({argument});
  auto get = getting(result);
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  const auto got = agent.finish(std::move(get));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().outcome(), Outcome::unknown);
  EXPECT_EQ(engine().peek(user).error().outcome(), Outcome::not_executed) << "this one never ran";
}

TEST_F(Lost, WhoWaitedForWhatIsLostWaitsThereNoMore) {
  auto result = submit({});
  const ObjectId id = result.id();
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, forwarded(kObject));
  EXPECT_EQ(agent.next<wire::Await>().object, kObject);
  let_escape(result, 2);
  EXPECT_EQ(agent.holds(id, FakeAgent::kProcess), 1);
  agent.tell(wire::Rebuild{id, kObject});  // the result's object is not ready, but others miss it
  const auto again = agent.next_from<wire::Call>(kThere).message;
  EXPECT_EQ(again.attempt, 2u);
  reply(kThere, again.sequence, value_of(Kind::inline_bytes));
  EXPECT_TRUE(agent.finish(getting(result)));
  EXPECT_EQ(agent.holds(kObject, FakeAgent::kProcess), -1) << "nobody here waits for it";
  result = {};
  agent.run_until([&] { return agent.holds(id, FakeAgent::kProcess) == 0; },
                  "its last handle is gone");
}

// --- long chains

struct LostChain : Lost {
  static constexpr int kCalls = 100'000;
  detail::ObjectHandle first, last;

  void build() {
    last = first = submit({}, 0);
    for (int i = 0; i < kCalls; ++i) last = submit({last}, 0);
    lease(kBeside, false, 0);
    agent.next_from<wire::Call>(kBeside);
    reply(kBeside, 1, failed(Code::task_failed, "the first of them"));
  }
};

TEST_F(LostChain, EndsInTheErrorOfItsFirstCall) {
  build();
  agent.run_until([&] { return engine().is_ready(last); }, "the last has failed");
  EXPECT_EQ(engine().peek(last).error().message(), "the first of them");
}

TEST_F(LostChain, MayEndAfterItsEngine) {
  build();
  while (!engine().is_ready(first)) std::this_thread::yield();
  engine().stop();  // while the other calls fail
  EXPECT_EQ(ClientEngine::current(), nullptr);
  first = last = {};
}

}  // namespace
}  // namespace troupe::client
