// Tests a process whose peers live on other nodes. No location in memory crosses to another node.
// Counts name the receiving node, and large values stay where they are until a process opens
// them.
#include "driver.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

using Remote = Driver;

TEST_F(Remote, ALargeArgumentGoesAsAReferenceThatTheNodeHolds) {
  const auto large = put(kLarge);
  submit({large});
  lease_remote();
  const auto call = agent.next_from<wire::Call>(kThere).message;
  ASSERT_EQ(call.arguments.size(), 1u);
  EXPECT_EQ(call.arguments[0].kind, Kind::forwarded);
  EXPECT_EQ(call.arguments[0].forward, large.id());
  // The engine counts the holder before it publishes the frame, for the node and not for the
  // process.
  EXPECT_EQ(agent.holds(large.id(), kNode), 1);
  EXPECT_EQ(agent.holds(large.id(), kThere), 0);
  const wire::Value& record = agent.promoted().at(large.id());
  ASSERT_EQ(record.kind, Kind::shared);
  EXPECT_EQ(agent.read(record.location), kLarge);
}

TEST_F(Remote, ForAProcessBesideUsTheSameArgumentIsAPlaceInMemory) {
  const auto large = put(kLarge);
  submit({large});
  lease(kBeside, false, 0);
  const auto call = agent.next_from<wire::Call>(kBeside).message;
  ASSERT_EQ(call.arguments.at(0).kind, Kind::shared);
  EXPECT_EQ(agent.read(call.arguments[0].location), kLarge);
  EXPECT_TRUE(agent.promoted().empty());
}

TEST_F(Remote, ASmallArgumentGoesWithTheCallAndItsRefsCountForTheNode) {
  const auto inner = put("inner");
  auto outer = engine().put(bytes_of("outer"), {&inner, 1});
  submit({outer});
  lease_remote();
  const auto call = agent.next_from<wire::Call>(kThere);
  ASSERT_EQ(call.message.arguments.at(0).kind, Kind::inline_bytes);
  EXPECT_EQ(call.message.arguments[0].refs, std::vector<ObjectId>{inner.id()});
  EXPECT_EQ(agent.holds(inner.id(), kNode), 1);
  EXPECT_EQ(agent.holds(inner.id(), kThere), 0);
}

TEST_F(Remote, KnowingThatItIsReadyFetchesNothing) {
  const auto result = remote_result();
  EXPECT_EQ(engine().wait({&result, 1}, 1, 10s), std::vector<std::size_t>{0});
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

TEST_F(Remote, AGetFetchesOnceAndLaterOnesFindIt) {
  const auto result = remote_result();
  auto one = getting(result), two = getting(result);
  const auto await = agent.next<wire::Await>();
  EXPECT_EQ(await.object, kObject);
  EXPECT_TRUE(await.fetch);
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(one)).value()), kLarge);
  EXPECT_EQ(text_of(agent.finish(std::move(two)).value()), kLarge);
  EXPECT_EQ(text_of(engine().peek(result).value()), kLarge);
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

TEST_F(Remote, ManyThreadsMayReadItWhileItArrives) {
  const auto result = remote_result();
  std::vector<std::future<std::string>> readers;
  for (int i = 0; i < 4; ++i)
    readers.push_back(agent.meanwhile([&] {
      for (;;) {
        auto value = engine().try_get(result, 10us);
        if (value) return text_of(*value);
        if (value.error().code() != Code::timed_out) return std::string(value.error().what());
      }
    }));
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  for (auto& reader : readers) EXPECT_EQ(agent.finish(std::move(reader)), kLarge);
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

TEST_F(Remote, AGetThatWaitedBeforeTheReplyAsksForTheBytesAtOnce) {
  const auto result = submit({});
  auto get = getting(result);
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  // The get may begin after the reply. Either way its last request is for the bytes.
  reply(kThere, 1, forwarded(kObject));
  while (!agent.next<wire::Await>().fetch && !HasFailure()) {
  }
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(get)).value()), kLarge);
}

TEST_F(Remote, ALeaseThatIsReclaimedBeforeItsChannelComesTakesOneCall) {
  const auto first = submit({}), second = submit({});
  const auto cls = agent.next<wire::RequestLease>();
  agent.grant(cls.key, 5, kThere);
  agent.tell(wire::LeaseReclaim{5});
  agent.tell(wire::Rebuild{kObject, kObject});
  agent.next<wire::Rebuilt>();  // by now the engine has read all of them
  agent.connect(kThere, true, kNode);
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, value_of(Kind::pending));
  EXPECT_EQ(agent.next<wire::LeaseReturned>().lease, LeaseId{5});
}

/// Channels come through the socket and deaths through the ring, so either may be read first.
TEST_F(Remote, AChannelOnTheSlotOfOneThatIsDeadWaitsForTheWordOfItsDeath) {
  constexpr ProcessIndex kLater = 11, kLast = 12;
  constexpr std::uint32_t kSlot = 2;
  agent.connect_on(kSlot, kBeside, false);
  agent.connect_on(kSlot, kLater, false);
  agent.connect_on(kSlot, kLast, false);
  const auto result = submit({});
  const auto cls = agent.next<wire::RequestLease>();
  agent.tell(wire::PeerDied{kBeside, "killed", wire::PeerDied::kUnknown});
  agent.tell(wire::PeerDied{kLater, "killed", wire::PeerDied::kUnknown});
  agent.grant(cls.key, 1, kLast);
  agent.next_from<wire::Call>(kLast);
  wire::Value value = value_of(Kind::inline_bytes);
  value.payload_size = 1;
  const Blob small(1, std::byte{'s'});
  reply(kLast, 1, value, small);
  EXPECT_EQ(text_of(agent.finish(getting(result)).value()), "s");
}

TEST_F(Remote, AChannelWithoutItsDescriptorsEndsEveryWait) {
  const auto result = submit({});
  const auto cls = agent.next<wire::RequestLease>();
  agent.grant(cls.key, 5, kThere);
  auto get = agent.meanwhile([&] { return engine().try_get(result, 10s); });
  agent.send_broken_channel(kThere);
  const auto got = agent.finish(std::move(get));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Code::unavailable) << got.error().what();
}

TEST_F(Remote, TheEndOfTheEngineEndsTheWaitForAnObjectThatNeverComes) {
  const auto result = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, forwarded(kObject));
  agent.next<wire::Await>();
  // The object that the result waits for keeps it too, and so did its task a moment ago.
  const Time limit = steady_now() + std::chrono::seconds(10);
  while (entry_of(result).handles.load() != 2 && steady_now() < limit) std::this_thread::yield();
  EXPECT_EQ(entry_of(result).handles.load(), 2u);
  engine().stop();
  EXPECT_EQ(entry_of(result).handles.load(), 1u) << "it would never be freed";
}

TEST_F(Remote, AGetUpgradesAWaitThatIsUnderWay) {
  const auto result = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, forwarded(kObject));
  EXPECT_FALSE(agent.next<wire::Await>().fetch);
  auto get = getting(result);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, far_away()});  // answers the first Await
  agent.run_until([&] { return engine().is_ready(result); }, "it is known");
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(get)).value()), kLarge);
}

TEST_F(Remote, AGetOfWhatDoesNotComeTimesOutAndALaterOneFindsIt) {
  const auto result = remote_result();
  const auto late = agent.finish(getting(result, 20ms));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::timed_out);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(getting(result)).value()), kLarge);
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

TEST_F(Remote, AFetchThatFailsEndsTheGetAndTheNextOneAsksAgain) {
  const auto result = remote_result();
  auto first = getting(result);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, failed(Code::out_of_memory, "no room here")});
  const auto refused = agent.finish(std::move(first));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::out_of_memory);
  EXPECT_TRUE(engine().is_ready(result));
  auto second = getting(result);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(second)).value()), kLarge);
}

// --- lost values

TEST_F(Remote, ALostResultIsComputedAgainOnceForTwoReaders) {
  const auto result = remote_result();
  auto one = getting(result);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  const auto again = agent.next_from<wire::Call>(kThere).message;
  EXPECT_EQ(again.attempt, 2u);
  auto two = getting(result);
  const ObjectId elsewhere{78, 1};
  reply(kThere, again.sequence, forwarded(elsewhere));
  EXPECT_EQ(agent.next<wire::Await>().object, elsewhere);
  agent.tell(wire::Ready{elsewhere, agent.shared(kLarge)});
  EXPECT_EQ(text_of(agent.finish(std::move(one)).value()), kLarge);
  EXPECT_EQ(text_of(agent.finish(std::move(two)).value()), kLarge);
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

TEST_F(Remote, ALostResultThatMayNotRunAgainSaysWhy) {
  auto result = submit({}, 0);
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, forwarded(kObject));
  agent.next<wire::Await>();
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  const auto lost = agent.finish(getting(result));
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code(), Code::object_lost);
  EXPECT_NE(lost.error().message().find("max_retries"), std::string::npos)
      << lost.error().message();
}

TEST_F(Remote, ATaskWhoseArgumentIsLostIsSentAgainWhenThatIsThere) {
  const auto result = remote_result();
  submit({result}, 0);
  const auto first = agent.next_from<wire::Call>(kThere).message;
  wire::Reply lost;
  lost.sequence = first.sequence;
  lost.value = failed(Code::object_lost, "its node died");
  lost.lost_argument = 1;
  lost.lost = kObject;
  agent.peer_says(kThere, lost);
  const auto again = agent.next_from<wire::Call>(kThere).message;  // the call makes the argument
  EXPECT_TRUE(again.arguments.empty());
  const ObjectId elsewhere{78, 1};
  reply(kThere, again.sequence, forwarded(elsewhere));
  agent.next<wire::Await>();
  agent.tell(wire::Ready{elsewhere, far_away()});
  const auto second = agent.next_from<wire::Call>(kThere).message;
  ASSERT_EQ(second.arguments.size(), 1u);
  EXPECT_EQ(second.arguments[0].forward, elsewhere);
}

TEST_F(Remote, ARemoteValueIsAnArgumentWithoutBeingFetched) {
  const auto result = remote_result();
  submit({result});
  const auto call = agent.next_from<wire::Call>(kThere).message;
  ASSERT_EQ(call.arguments.at(0).kind, Kind::forwarded);
  EXPECT_EQ(call.arguments[0].forward, kObject);  // not the result that forwards to it
  EXPECT_EQ(agent.holds(kObject, kNode), 1);
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

TEST_F(Remote, ATaskWaitsForAnArgumentToBeReadyOnly) {
  const auto first = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  submit({first});
  reply(kThere, 1, forwarded(kObject));
  EXPECT_FALSE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, far_away()});
  const auto call = agent.next_from<wire::Call>(kThere).message;
  EXPECT_EQ(call.arguments.at(0).forward, kObject);
}

TEST_F(Remote, ARefToARemoteValueEscapesAsAReference) {
  const auto result = remote_result();
  auto outer = engine().put(bytes_of("outer"), {&result, 1});
  submit({outer});
  const auto call = agent.next_from<wire::Call>(kThere).message;
  EXPECT_EQ(call.arguments.at(0).refs, std::vector<ObjectId>{result.id()});
  const wire::Value& record = agent.promoted().at(result.id());
  EXPECT_EQ(record.kind, Kind::forwarded);
  EXPECT_EQ(record.forward, kObject);
  EXPECT_EQ(agent.holds(kObject, kAgentProcess), 0) << "it counts what it finds in the record";
}

TEST_F(Remote, TheAgentKnowsBetterWhatADeadPeerHadBegun) {
  const auto first = submit({}, 0);
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, value_of(Kind::pending));  // from now on short tasks stream
  const auto second = submit({}, 0), third = submit({}, 0);
  agent.next_from<wire::Call>(kThere);
  agent.next_from<wire::Call>(kThere);
  agent.tell(wire::PeerDied{kThere, "its node died", 2});
  const auto died = agent.finish(getting(second));
  ASSERT_FALSE(died);
  EXPECT_EQ(died.error().code(), Code::worker_died);
  // The third call never began, so the engine requests another lease for it although it may not
  // be retried.
  agent.run_until([&] { return agent.next<wire::RequestLease>().backlog > 0; }, "a new cls");
  EXPECT_FALSE(engine().is_ready(third));
}

TEST_F(Remote, APlaceInAnotherNodesMemoryIsNotBelieved) {
  const auto result = submit({}, 0);
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  reply(kThere, 1, agent.shared(kLarge));
  const auto bad = agent.finish(getting(result));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Code::worker_died);
}

TEST_F(Remote, AnObjectThatIsForwardedToItselfIsAnError) {
  const auto result = submit({});
  lease_remote();
  agent.next_from<wire::Call>(kThere);
  const auto outer = engine().put(bytes_of("outer"), {&result, 1});
  submit({outer});  // another process gets the ref
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  reply(kThere, 1, forwarded(result.id()));
  const auto bad = agent.finish(getting(result));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Code::invalid_argument);
}

TEST_F(Remote, AResultThatNobodyCouldFetchIsAnError) {
  const auto result = submit({}, 0);
  lease(kBeside, false, 0);
  agent.next_from<wire::Call>(kBeside);
  reply(kBeside, 1, far_away());
  const auto bad = agent.finish(getting(result));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Code::internal);
}

// --- the side that runs calls of other processes

struct RemoteWorker : Driver {
  RemoteWorker() : Driver(wire::ProcessKind::worker) {}

  // Lets a call of the process on the other node arrive and begin.
  std::shared_ptr<Incoming> begin(std::vector<wire::Value> arguments) {
    agent.connect(kThere, true, kNode);
    wire::Call call;
    call.sequence = 1;
    call.arguments = std::move(arguments);
    agent.peer_says(kThere, call);
    return agent.finish(agent.meanwhile([this] { return work().first; }));
  }
  std::pair<std::shared_ptr<Incoming>, std::function<void()>> work() {
    std::shared_ptr<Incoming> call;
    std::optional<ActorStart> actor;
    std::function<void()> resume;
    EXPECT_TRUE(engine().next_work(call, actor, resume));
    return {std::move(call), std::move(resume)};
  }
  auto opening(const std::shared_ptr<Incoming>& call) {
    return agent.meanwhile([this, call]() -> Result<std::vector<detail::Value>> {
      LostArgument lost;
      try {
        return engine().open_arguments(call->call, call->payload, lost);
      } catch (const Error& error) {
        return error;
      }
    });
  }
};

TEST_F(RemoteWorker, ForwardedArgumentsAreFetchedTogetherAndTheCpuIsGivenBack) {
  const ObjectId other{77, 2};
  const auto call = begin({forwarded(kObject), forwarded(other)});
  auto opened = opening(call);
  const auto first = agent.next<wire::Await>(), second = agent.next<wire::Await>();
  EXPECT_EQ(first.object, kObject);
  EXPECT_EQ(second.object, other);
  EXPECT_TRUE(first.fetch && second.fetch);
  agent.next<wire::Blocked>();
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  const Blob small(3, std::byte{'s'});
  wire::Value value = value_of(Kind::inline_bytes);
  value.payload_size = 3;
  agent.tell(wire::Ready{other, value}, small);
  {
    const auto values = agent.finish(std::move(opened)).value();
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(text_of(values[0]), kLarge);
    EXPECT_EQ(text_of(values[1]), "sss");
  }
  agent.next<wire::Unblocked>();
  // The sender had counted this process for each argument. All these counts are released.
  agent.run_until([&] { return agent.holds(kObject, FakeAgent::kProcess) == -1; }, "let go");
  EXPECT_EQ(agent.holds(other, FakeAgent::kProcess), -1);
}

TEST_F(RemoteWorker, WhoWaitsForMemoryGivesItsCpuBackAfterAWhile) {
  agent.grants = false;
  auto put = agent.meanwhile([&] { return engine().put(Blob(std::size_t{2} << 20), {}); });
  const auto asked = agent.next<wire::NeedExtent>();
  agent.next<wire::Blocked>();
  agent.grant(asked);
  EXPECT_TRUE(agent.finish(std::move(put)));
  agent.next<wire::Unblocked>();
}

TEST_F(RemoteWorker, WhoWaitsForReplicasGivesItsCpuBack) {
  auto sealed = agent.meanwhile([&] {
    ValueRoom room = engine().value_bytes().make_room(kLarge.size(), {});
    std::memcpy(room.bytes().data(), kLarge.data(), kLarge.size());
    return engine().seal_room(std::move(room), {}, {.replicas = 2, .timeout = 10s});
  });
  const auto cls = agent.next<wire::Replicate>();
  agent.next<wire::Blocked>();
  agent.tell(wire::Replicated{cls.request, nullptr});
  EXPECT_TRUE(agent.finish(std::move(sealed)));
  agent.next<wire::Unblocked>();
}

TEST_F(RemoteWorker, AnArgumentThatIsLostIsTheCallsError) {
  const ObjectId inner{77, 3};
  wire::Value other = value_of(Kind::inline_bytes);
  other.refs = {inner};
  const auto call = begin({forwarded(kObject), other});
  auto opened = opening(call);
  agent.next<wire::Await>();
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  const auto values = agent.finish(std::move(opened));
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().code(), Code::object_lost);
  // The counts for the other argument are released, too.
  agent.run_until([&] { return agent.holds(inner, FakeAgent::kProcess) == -1; }, "let go");
}

TEST_F(RemoteWorker, ALargeResultBecomesAnObjectThatTheAskersNodeHolds) {
  begin({});
  agent.finish(agent.meanwhile([&] {
    ValueRoom room = engine().value_bytes().make_room(kLarge.size(), {});
    std::memcpy(room.bytes().data(), kLarge.data(), kLarge.size());
    engine().reply(kThere, 1, 0, true, 1us,
                   engine().value_bytes().finish_room(std::move(room), {}));
  }));
  const auto reply = agent.next_from<wire::Reply>(kThere).message;
  ASSERT_EQ(reply.value.kind, Kind::forwarded);
  const ObjectId object = reply.value.forward;
  EXPECT_EQ(agent.holds(object, kNode), 1);
  EXPECT_EQ(agent.holds(object, FakeAgent::kProcess), 0);  // its own count is released already
  ASSERT_EQ(agent.promoted().at(object).kind, Kind::shared);
  EXPECT_EQ(agent.read(agent.promoted().at(object).location), kLarge);
}

// A worker that is told to end waits for the tasks that it submitted. It must return its CPU
// meanwhile, since those tasks may need it.
TEST_F(RemoteWorker, OneThatIsToEndGivesItsCpuBackWhileItWaitsForWhatItSubmitted) {
  const auto result = submit({});
  agent.next<wire::RequestLease>();
  auto ends = agent.meanwhile([this] {
    std::shared_ptr<Incoming> call;
    std::optional<ActorStart> actor;
    std::function<void()> resume;
    return engine().next_work(call, actor, resume);
  });
  EXPECT_FALSE(agent.has_said<wire::Blocked>());
  agent.tell(wire::Shutdown{"no longer needed"});
  agent.next<wire::Blocked>();
  agent.connect(kThere, true, kNode);
  agent.grant(0, 9, kThere);
  agent.next_from<wire::Call>(kThere);
  wire::Value value = value_of(Kind::inline_bytes);
  value.payload_size = 1;
  const Blob small(1, std::byte{'s'});
  reply(kThere, 1, value, small);
  EXPECT_FALSE(agent.finish(std::move(ends)));
}

struct RemoteCoroutine : RemoteWorker {
  // Returns a ref that an argument held and whose value lies on another node.
  detail::ObjectHandle ref() {
    wire::Value value = value_of(Kind::inline_bytes);
    value.refs = {kObject};
    const auto call = begin({value});
    detail::ObjectHandle object = agent.finish(opening(call)).value().at(0).refs[0];
    EXPECT_FALSE(engine().is_ready(object));
    EXPECT_FALSE(agent.next<wire::Await>().fetch);
    agent.tell(wire::Ready{kObject, far_away()});
    agent.run_until([&] { return engine().is_ready(object); }, "it is known");
    return object;
  }
  void resume() {
    auto resumed = agent.finish(agent.meanwhile([this] { return work().second; }));
    ASSERT_TRUE(resumed);
    resumed();
  }
};

TEST_F(RemoteCoroutine, GoesOnWhenTheBytesAreHere) {
  const auto object = ref();
  bool fired = false;
  engine().when_ready(object, [&] { fired = true; });
  EXPECT_FALSE(fired);
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, agent.shared(kLarge)});
  resume();
  EXPECT_TRUE(fired);
  EXPECT_EQ(text_of(agent.finish(agent.meanwhile([&] { return engine().peek(object); })).value()),
            kLarge);
}

TEST_F(RemoteCoroutine, GoesOnWithTheValueOfWhatTookItsPlace) {
  constexpr ObjectId kTarget{77, 99};
  const auto object = ref();
  bool fired = false;
  engine().when_ready(object, [&] { fired = true; });
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  agent.next<wire::Rebuild>();
  wire::Value forwarded;
  forwarded.kind = wire::Value::Kind::forwarded;
  forwarded.forward = kTarget;
  agent.tell(wire::Ready{kObject, forwarded});
  const auto await = agent.next<wire::Await>();
  EXPECT_EQ(await.object, kTarget);
  EXPECT_TRUE(await.fetch);
  agent.tell(wire::Ready{kTarget, agent.shared(kLarge)});
  resume();
  EXPECT_TRUE(fired);
  EXPECT_EQ(text_of(agent.finish(agent.meanwhile([&] { return engine().peek(object); })).value()),
            kLarge);
}

TEST_F(RemoteCoroutine, GoesOnWithTheErrorWhenTheyCannotCome) {
  const auto object = ref();
  bool fired = false;
  engine().when_ready(object, [&] { fired = true; });
  EXPECT_TRUE(agent.next<wire::Await>().fetch);
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "its node died")});
  EXPECT_EQ(agent.next<wire::Rebuild>().lost, kObject);  // another process may recompute it
  EXPECT_FALSE(fired);
  agent.tell(wire::Ready{kObject, failed(Code::object_lost, "nobody can")});
  resume();
  EXPECT_TRUE(fired);
  EXPECT_EQ(engine().peek(object).error().code(), Code::object_lost);
  EXPECT_FALSE(agent.has_said<wire::Await>());
}

}  // namespace
}  // namespace troupe::client
