// Tests ActorCalls. CALL-1: a call is sent at most once to each life, and never after it may have
// begun elsewhere. CALL-2: the order of sending is the order of calling.
#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/objects.hpp"

#include <gtest/gtest.h>

namespace troupe::client::actor_calls_test {
namespace {

using wire::ActorState;

const ActorId kA{1, 1}, kB{1, 2};

struct SentCall {
  ProcessIndex worker;
  int call;
  bool operator==(const SentCall&) const = default;
};
using Sent = std::vector<SentCall>;

struct Recorder final : ActorCalls::Out {
  Sent sent;
  std::vector<ActorId> watched;
  std::vector<std::pair<int, std::string>> failed;
  std::vector<Outcome> outcomes;  // of the failed calls
  std::uint64_t sequence = 0;
  bool full = false;

  static int name(const ActorCall& call) { return static_cast<int>(call.call.bytes.at(0)); }
  bool send(ProcessIndex worker, ActorCall& call) override {
    if (full) return false;
    call.sequence = ++sequence;
    sent.push_back({worker, name(call)});
    return true;
  }
  void watch(ActorId actor) override { watched.push_back(actor); }
  void fail(ActorCall& call, const Error& error) override {
    failed.emplace_back(name(call), error.message());
    outcomes.push_back(error.outcome());
  }
};

using Failed = std::vector<std::pair<int, std::string>>;

struct Calls : testing::Test {
  Recorder out;
  ActorCalls calls{out};
  const Error died{Code::actor_died, "died"};

  ActorCall* submit(int name, std::uint32_t waiting = 0, ActorId actor = kA) {
    auto call = std::make_unique<ActorCall>();
    call->actor = actor;
    call->call.bytes.assign(1, static_cast<std::byte>(name));
    call->waiting = waiting;
    ActorCall* raw = call.get();
    calls.submit(std::move(call));
    return raw;
  }
  void update(ActorState state, std::uint64_t incarnation, ProcessIndex worker = 0) {
    wire::ActorUpdate message;
    message.actor = kA;
    message.state = state;
    message.incarnation = incarnation;
    message.worker = worker;
    calls.update(message);
  }
};

TEST_F(Calls, WatchesOnceAndSendsInOrderWhenAlive) {
  submit(1);
  submit(2);
  EXPECT_EQ(out.watched, std::vector<ActorId>{kA});
  EXPECT_TRUE(out.sent.empty());
  update(ActorState::alive, 1, 5);
  submit(3);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 2}, {5, 3}}));
  EXPECT_TRUE(calls.has_worker(5));
  calls.ended(5, 2);
  EXPECT_EQ(calls.in_flight(5, 2), nullptr);
  EXPECT_NE(calls.in_flight(5, 3), nullptr);
  EXPECT_EQ(calls.in_flight(6, 3), nullptr);
  EXPECT_EQ(calls.live(), 2u);
}

/// The actor's worker keeps what it has received, so calls in flight take memory as queued ones do.
TEST(ActorCallsLimit, CountsAllCallsThatHaveNotEnded) {
  Recorder out;
  ActorCalls calls(out, 3);
  const auto submit = [&](int name) {
    calls.check_room(kA);
    auto call = std::make_unique<ActorCall>();
    call->actor = kA;
    call->call.bytes.assign(1, static_cast<std::byte>(name));
    calls.submit(std::move(call));
  };
  submit(1);
  wire::ActorUpdate alive;
  alive.actor = kA;
  alive.state = ActorState::alive;
  alive.incarnation = 1;
  alive.worker = 5;
  calls.update(alive);
  submit(2);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{5});
  out.full = true;
  submit(3);
  EXPECT_EQ(out.sent.size(), 2u);
  EXPECT_THROW(submit(4), Overloaded);
  out.full = false;
  calls.writable(5);
  EXPECT_EQ(out.sent.size(), 3u);
  EXPECT_THROW(submit(4), Overloaded);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{}) << "nor does one go ahead";
  EXPECT_NO_THROW(calls.check_room(kB)) << "each actor has a bound of its own";
  calls.ended(5, 1);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{5});
  EXPECT_NO_THROW(submit(4));
  EXPECT_EQ(calls.live(), 3u);
}

TEST_F(Calls, SaysOfACallThatItsActorsNodeIsSilent) {
  ObjectTable objects(1);
  const auto result = objects.create(), other = objects.create();
  submit(1)->results.push_back(result);
  const auto is_silent = [&] {
    const auto delay = calls.delay_of(*result.entry());
    return delay && delay->silent;
  };
  wire::ActorUpdate alive{kA, ActorState::alive, 1, 5, nullptr, 0, false};
  calls.update(alive);
  EXPECT_FALSE(calls.delay_of(*result.entry()));
  alive.silent = true;
  calls.update(alive);
  EXPECT_TRUE(is_silent());
  EXPECT_EQ(out.sent.size(), 1u) << "nothing is sent again";
  EXPECT_FALSE(calls.delay_of(*other.entry())) << "not a call of it";
  alive.silent = false;
  calls.update(alive);
  EXPECT_FALSE(is_silent());
  alive.silent = true;
  calls.update(alive);
  alive.incarnation = 2;
  alive.worker = 6;
  alive.silent = false;
  calls.update(alive);  // another life elsewhere, before the end of this one is known
  EXPECT_FALSE(is_silent());
  alive.silent = true;
  alive.worker = 7;
  calls.worker_died(5, 0, died);
  EXPECT_EQ(out.sent.size(), 2u);
  alive.worker = 6;
  calls.update(alive);
  EXPECT_TRUE(is_silent());
  calls.worker_died(6, 0, died);
  EXPECT_FALSE(calls.delay_of(*result.entry())) << "that it has no life is known";
  calls.killed(kA);
}

TEST_F(Calls, SaysOfACallHowTheLifeBeforeEnded) {
  ObjectTable objects(1);
  const auto result = objects.create();
  submit(1)->results.push_back(result);
  EXPECT_FALSE(calls.delay_of(*result.entry())) << "it may be made, for all that is known";
  wire::ActorUpdate waits{kA, ActorState::pending, 3, 0, died.shared_info(), 77, false};
  calls.update(waits);
  auto delay = calls.delay_of(*result.entry());
  ASSERT_TRUE(delay);
  EXPECT_FALSE(delay->silent);
  EXPECT_EQ(delay->last_end->message, "died");
  EXPECT_EQ(delay->retry_at.time_since_epoch().count(), 77);
  waits.incarnation = 2;
  waits.error = nullptr;
  calls.update(waits);
  EXPECT_TRUE(calls.delay_of(*result.entry())) << "that was said before";
  update(ActorState::alive, 4, 5);
  EXPECT_FALSE(calls.delay_of(*result.entry()));
  calls.worker_died(5, 0, died);
  calls.killed(kA);
}

TEST_F(Calls, TheWayIsOpenExactlyWhenACallWouldBeSentAtOnce) {
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{});
  submit(1);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{}) << "nobody knows where it lives";
  update(ActorState::alive, 1, 5);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{5});
  EXPECT_EQ(calls.open_way(kB), ProcessIndex{});
  ActorCall* held = submit(2, 1);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{})
      << "it would overtake one that waits for an argument";
  calls.argument_ready(*held);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{5});
  out.full = true;
  submit(3);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{}) << "its ring has no room";
  out.full = false;
  calls.writable(5);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{5});
  update(ActorState::restarting, 1);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{});
  update(ActorState::dead, 1);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{});
}

TEST_F(Calls, WhatWasSentAheadIsUnderWayLikeAnyOther) {
  submit(1);
  update(ActorState::alive, 1, 5);
  for (int name = 2; name <= 3; ++name) {
    auto call = std::make_unique<ActorCall>();
    call->actor = kA;
    call->call.bytes.assign(1, static_cast<std::byte>(name));
    ASSERT_EQ(calls.open_way(kA), ProcessIndex{5});
    call->sequence = ++out.sequence;
    calls.sent(std::move(call));
  }
  EXPECT_EQ(calls.live(), 3u);
  EXPECT_EQ(Recorder::name(*calls.in_flight(5, 3)), 3);
  out.sent.clear();
  update(ActorState::restarting, 1);
  calls.worker_died(5, 2, died);
  EXPECT_EQ(out.failed.size(), 2u) << "the second may have begun";
  update(ActorState::alive, 2, 6);
  EXPECT_EQ(out.sent, (Sent{{6, 3}}));
}

TEST_F(Calls, AnArgumentThatIsNotReadyHoldsBackTheLater) {
  update(ActorState::alive, 1, 5);  // of an actor that was never called: ignored
  ActorCall* first = submit(1, 2);
  submit(2);
  update(ActorState::alive, 1, 5);
  calls.argument_ready(*first);
  EXPECT_TRUE(out.sent.empty());
  calls.argument_ready(*first);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 2}}));
}

TEST_F(Calls, AFailedArgumentFailsInItsTurn) {
  submit(1);
  ActorCall* second = submit(2, 2);
  submit(3);
  calls.argument_failed(*second, Error(Code::actor_died, "died", Outcome::executed));
  EXPECT_TRUE(out.failed.empty()) << "another argument still points at it";
  calls.argument_failed(*second, Error(Code::actor_died, "later"));
  update(ActorState::alive, 1, 5);
  EXPECT_EQ(out.failed, (Failed{{2, "died"}}));
  EXPECT_EQ(out.outcomes, std::vector{Outcome::not_executed}) << "what made the argument ran";
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 3}}));
}

TEST_F(Calls, ARestartSendsAgainOnlyWhatHadNotBegunInOrder) {
  submit(1);
  update(ActorState::alive, 1, 5);
  submit(2);
  submit(3);
  calls.worker_died(5, 1, died);
  submit(4);
  EXPECT_EQ(out.failed, (Failed{{1, "died"}}));
  EXPECT_EQ(out.sent.size(), 3u) << "nothing goes to the dead";
  update(ActorState::restarting, 1, 5);
  out.sent.clear();
  update(ActorState::alive, 2, 6);
  EXPECT_EQ(out.sent, (Sent{{6, 2}, {6, 3}, {6, 4}}));
  EXPECT_FALSE(calls.has_worker(5));
}

TEST_F(Calls, AStaleUpdateRevivesNobody) {
  submit(1);
  update(ActorState::alive, 1, 5);
  calls.worker_died(5, 1, died);
  update(ActorState::alive, 1, 5);  // the update had waited for its channel
  submit(2);
  EXPECT_EQ(out.sent.size(), 1u);
  update(ActorState::alive, 2, 6);
  update(ActorState::restarting, 1);
  update(ActorState::alive, 1, 5);
  submit(3);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {6, 2}, {6, 3}}));
}

TEST_F(Calls, ADeathToldByAControlThatKnowsNoLifeIsFinal) {
  submit(1);
  update(ActorState::alive, 7, 5);
  calls.worker_died(5, 0, died);
  update(ActorState::dead, 0);
  EXPECT_EQ(out.failed.size(), 1u) << "it would wait for ever";
  EXPECT_EQ(calls.live(), 0u);
}

TEST_F(Calls, WhatWasNeverSentToADeadActorWasNotExecuted) {
  submit(1);
  update(ActorState::alive, 7, 5);
  submit(2);
  calls.worker_died(5, 1, Error(Code::actor_died, "died", Outcome::unknown));
  wire::ActorUpdate death;
  death.actor = kA;
  death.state = ActorState::dead;
  death.error = Error(Code::actor_died, "nobody knows it", Outcome::unknown).shared_info();
  calls.update(death);
  submit(3);
  EXPECT_EQ(out.failed, (Failed{{1, "died"}, {2, "nobody knows it"}, {3, "nobody knows it"}}));
  EXPECT_EQ(out.outcomes,
            (std::vector<Outcome>{Outcome::unknown, Outcome::not_executed, Outcome::not_executed}));
}

TEST_F(Calls, ARestartHeardBeforeTheLifeItEndedIsKept) {
  submit(1);
  update(ActorState::restarting, 1, 5);
  update(ActorState::alive, 1, 5);
  EXPECT_TRUE(out.sent.empty());
  update(ActorState::alive, 2, 6);
  EXPECT_EQ(out.sent, (Sent{{6, 1}}));
}

TEST_F(Calls, ALifeElsewhereWaitsForTheEndOfTheLast) {
  submit(1);
  update(ActorState::alive, 1, 5);
  submit(2);
  update(ActorState::pending, 2);
  update(ActorState::alive, 2, 6);  // control learned of the death before this process did
  submit(3);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 2}}));
  EXPECT_EQ(calls.in_flight(6, 1), nullptr) << "nothing was sent there";
  EXPECT_NE(calls.in_flight(5, 1), nullptr) << "a reply may still come";
  calls.worker_died(5, 1, died);
  EXPECT_EQ(out.failed, (Failed{{1, "died"}}));
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 2}, {6, 2}, {6, 3}}));
  EXPECT_NE(calls.in_flight(6, 3), nullptr);
  calls.worker_died(6, 2, died);
  EXPECT_EQ(out.failed.size(), 1u) << "sequences 3 and 4 had not begun";
  EXPECT_EQ(calls.live(), 2u);
}

TEST_F(Calls, ALifeThatWaitedAndDiedIsNotBegun) {
  submit(1);
  update(ActorState::alive, 1, 5);
  update(ActorState::alive, 2, 6);
  calls.worker_died(6, 0, died);
  calls.worker_died(5, 0, died);
  EXPECT_EQ(out.sent, (Sent{{5, 1}}));
  update(ActorState::alive, 3, 7);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {7, 1}}));
}

TEST_F(Calls, ADeadActorFailsWhatIsReadyAtOnceAndTheRestWhenItsArgumentsCame) {
  ActorCall* first = submit(1, 1);
  submit(2);
  ActorCall* third = submit(3, 1);
  update(ActorState::dead, 1);
  EXPECT_EQ(out.failed, (Failed{{2, "the actor has ended"}})) << "nobody waits for the first";
  calls.argument_ready(*third);
  calls.argument_failed(*first, died);
  submit(4);
  EXPECT_EQ(out.failed.size(), 4u);
  EXPECT_EQ(calls.live(), 0u);
  update(ActorState::alive, 2, 6);
  submit(5);
  EXPECT_TRUE(out.sent.empty()) << "dead is for ever";
}

TEST_F(Calls, KilledFailsLaterCallsAtOnceAndThoseUnderWayWithTheProcess) {
  submit(1);
  update(ActorState::alive, 1, 5);
  submit(2);
  calls.killed(kA);
  submit(3);
  EXPECT_EQ(out.failed, (Failed{{3, "the actor was killed"}}));
  update(ActorState::alive, 1, 5);
  calls.worker_died(5, 1, died);
  EXPECT_EQ(out.failed,
            (Failed{{3, "the actor was killed"}, {1, "died"}, {2, "the actor was killed"}}));
  EXPECT_EQ(calls.live(), 0u);

  calls.killed(kB);  // no call of it was made yet
  submit(4, 0, kB);
  EXPECT_EQ(out.failed.back().first, 4);
}

// The directory has announced a later life before this process learns that the earlier life's
// process is dead. The kill must still count after that death: else the actor would be taken for
// alive, and its calls would wait for ever.
TEST_F(Calls, KilledWhileItsNextLifeWaitsForTheEndOfTheLastStaysDead) {
  submit(1);
  update(ActorState::alive, 1, 5);
  submit(2);
  update(ActorState::alive, 2, 6);
  calls.killed(kA);
  calls.worker_died(5, 0, died);
  submit(3);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 2}}));
  EXPECT_EQ(out.failed.size(), 3u);
  EXPECT_EQ(calls.live(), 0u);
}

TEST_F(Calls, AFullRingHoldsUntilWritable) {
  submit(1);
  out.full = true;
  update(ActorState::alive, 1, 5);
  submit(2);
  out.full = false;
  submit(3);
  EXPECT_TRUE(out.sent.empty()) << "none may overtake the first";
  calls.writable(9);
  calls.writable(5);
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 2}, {5, 3}}));
}

TEST_F(Calls, InventedInputsChangeNothing) {
  submit(1);
  update(ActorState::alive, 1, 5);
  calls.worker_died(77, 0, died);
  EXPECT_EQ(calls.in_flight(5, 77), nullptr);
  EXPECT_NE(calls.in_flight(5, 1), nullptr);
  calls.ended(5, 1);
  calls.worker_died(5, 1, died);
  calls.worker_died(5, 1, died);
  EXPECT_TRUE(out.failed.empty());
}

TEST_F(Calls, AfterAWordToEndALifeTheNextOneIsCalled) {
  submit(1);
  update(ActorState::alive, 5, 50);
  calls.ending_life(kA);
  submit(2);
  EXPECT_EQ(calls.open_way(kA), ProcessIndex{});
  update(ActorState::alive, 5, 51);  // sent before the agent read the request to end the life
  EXPECT_EQ(out.sent, (Sent{{50, 1}}));
  update(ActorState::restarting, 5);  // the agent's answer to that request
  update(ActorState::alive, 5, 52);   // about a channel that was late
  EXPECT_EQ(out.sent, (Sent{{50, 1}}));
  calls.worker_died(50, 1, died);
  update(ActorState::alive, 6, 60);
  EXPECT_EQ(out.sent, (Sent{{50, 1}, {60, 2}}));
  EXPECT_EQ(out.failed, (Failed{{1, "died"}}));
}

TEST_F(Calls, OfAnActorThatWasNeverCalledTheLifeThatTheAgentNamesIsEnded) {
  calls.ending_life(kA);
  EXPECT_EQ(out.watched, std::vector<ActorId>{kA});
  submit(1);
  update(ActorState::restarting, 7);
  update(ActorState::alive, 7, 70);
  EXPECT_TRUE(out.sent.empty());
  update(ActorState::alive, 8, 80);
  EXPECT_EQ(out.sent, (Sent{{80, 1}}));
}

TEST_F(Calls, AnActorOfThisProcessIsCalledWithoutAskingAnybody) {
  calls.lives_here(kA, 3, 9);
  submit(1);
  EXPECT_TRUE(out.watched.empty());
  EXPECT_EQ(out.sent, (Sent{{9, 1}}));
  update(ActorState::alive, 3, 9);  // another call had watched the actor before
  update(ActorState::alive, 2, 5);
  submit(2);
  EXPECT_EQ(out.sent, (Sent{{9, 1}, {9, 2}}));
  calls.ended(9, 1);
  EXPECT_EQ(calls.live(), 1u);
}

/// Calls keep their actor alive only while their results are wanted, and for a bounded time
/// after.
struct UnwantedCalls : Calls {
  ObjectTable table{7};
  detail::ObjectHandle handle = table.create();  // the user's handle of the actor
  Time now = Time{} + std::chrono::seconds(1000);

  ActorCall* ask(int name, const detail::ObjectHandle& result, std::uint32_t waiting = 0) {
    auto call = std::make_unique<ActorCall>();
    call->actor = kA;
    call->call.bytes.assign(1, static_cast<std::byte>(name));
    call->waiting = waiting;
    call->lifetime = handle;
    if (result) call->results.push_back(result);
    ActorCall* raw = call.get();
    calls.submit(std::move(call));
    return raw;
  }
  void pass(Duration time) {
    now += time;
    EXPECT_TRUE(calls.let_go_of_unwanted(now));
  }
};

TEST_F(UnwantedCalls, ATellHoldsItsActorForAWhileAfterTheLastHandle) {
  EXPECT_FALSE(calls.let_go_of_unwanted(now));
  ActorCall* tell = ask(1, {});
  update(ActorState::alive, 1, 5);
  for (int i = 0; i < 100; ++i) pass(ActorCalls::kUnwantedQueued);
  EXPECT_TRUE(tell->lifetime) << "a handle is left";
  handle = {};
  pass(ActorCalls::kUnwantedLook);
  pass(ActorCalls::kUnwantedSent - Duration(1));
  EXPECT_TRUE(tell->lifetime);
  pass(Duration(1));
  EXPECT_FALSE(tell->lifetime);
  EXPECT_EQ(calls.live(), 1u) << "it is under way still";
  calls.ended(5, tell->sequence);
  EXPECT_FALSE(calls.let_go_of_unwanted(now));
}

TEST_F(UnwantedCalls, AResultThatIsHeldKeepsTheActor) {
  detail::ObjectHandle first = table.create(), second = table.create();
  ActorCall* one = ask(1, first);
  ActorCall* two = ask(2, second);
  update(ActorState::alive, 1, 5);
  handle = {};
  first = {};
  for (int i = 0; i < 100; ++i) pass(ActorCalls::kUnwantedQueued);
  EXPECT_TRUE(one->lifetime && two->lifetime) << "the second comes after the first";
  second = {};
  pass(Duration(0));
  pass(ActorCalls::kUnwantedSent);
  EXPECT_FALSE(one->lifetime || two->lifetime);
}

TEST_F(UnwantedCalls, AResultThatWasPassedOnKeepsTheActor) {
  detail::ObjectHandle result = table.create();
  table.mark_promoted(entry_of(result));
  ActorCall* call = ask(1, result);
  update(ActorState::alive, 1, 5);
  handle = {};
  for (int i = 0; i < 100; ++i) pass(ActorCalls::kUnwantedQueued);
  EXPECT_TRUE(call->lifetime);
  table.erase(entry_of(result));
}

TEST_F(UnwantedCalls, OneThatWasNotSentHasLonger) {
  ActorCall* sent = ask(1, {});
  ActorCall* queued = ask(2, {}, 1);
  update(ActorState::alive, 1, 5);
  handle = {};
  pass(Duration(0));
  pass(ActorCalls::kUnwantedQueued - Duration(1));
  EXPECT_TRUE(sent->lifetime && queued->lifetime);
  calls.argument_ready(*queued);
  pass(Duration(1));
  EXPECT_FALSE(sent->lifetime || queued->lifetime);
}

TEST_F(UnwantedCalls, AHandleThatComesAgainBeginsAnew) {
  ActorCall* tell = ask(1, {});
  update(ActorState::alive, 1, 5);
  handle = {};
  pass(Duration(0));
  pass(ActorCalls::kUnwantedSent - Duration(1));
  handle = tell->lifetime;
  pass(Duration(1));
  handle = {};
  pass(Duration(0));
  pass(ActorCalls::kUnwantedSent - Duration(1));
  EXPECT_TRUE(tell->lifetime);
  pass(Duration(1));
  EXPECT_FALSE(tell->lifetime);
}

TEST_F(Calls, OnlyCallsThatHaveNotEndedOweTheirResults) {
  ObjectTable objects(1);
  const auto under_way = objects.create(), queued = objects.create(), other = objects.create();
  submit(1);
  update(ActorState::alive, 1, 5);
  submit(2)->results.push_back(under_way);
  submit(3, 1)->results.push_back(queued);
  EXPECT_TRUE(calls.owes(kA, *under_way.entry()));
  EXPECT_TRUE(calls.owes(kA, *queued.entry()));
  EXPECT_FALSE(calls.owes(kA, *other.entry()));
  EXPECT_FALSE(calls.owes(kB, *queued.entry()));
  calls.ended(5, 2);
  EXPECT_FALSE(calls.owes(kA, *under_way.entry()));
}

}  // namespace
}  // namespace troupe::client::actor_calls_test
