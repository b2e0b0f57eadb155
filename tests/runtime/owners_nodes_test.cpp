// OwnerTable between nodes: who counts whom when a ref is passed on, values of other nodes, deaths.
// tests/simulation/ownership_cluster_test.cpp judges the whole protocol.
#include "troupe/runtime/agent/owners.hpp"

#include <gtest/gtest.h>
#include <ctime>

namespace troupe::agent::owners_nodes_test {
namespace {

using Kind = wire::Value::Kind;
const ObjectId kX{1, 1}, kY{1, 2}, kZ{1, 3};
constexpr ProcessIndex kA = 100, kM = 101, kN = 102;  // nodes

struct Hold {
  ProcessIndex to;
  ObjectId object;
  ProcessIndex holder;
  std::int32_t delta;
  friend bool operator==(const Hold&, const Hold&) = default;
};

struct Recorder final : OwnerTable::Out {
  struct Answer {
    ProcessIndex process;
    ObjectId object;
    wire::Value value;
  };
  std::vector<Answer> answers;
  std::vector<std::uint64_t> freed;
  std::vector<Hold> holds;
  std::vector<ObjectId> asked, pulls;
  void ready(ProcessIndex process, ObjectId object, const wire::Value& value, BlobView) override {
    answers.push_back({process, object, value});
  }
  void free(const wire::Location& location) override { freed.push_back(location.offset); }
  void unreferenced(ActorId) override {}
  void peer_hold(ProcessIndex to, ObjectId object, ProcessIndex holder,
                 std::int32_t delta) override {
    holds.push_back({to, object, holder, delta});
  }
  void peer_await(ProcessIndex owner, ObjectId object) override {
    EXPECT_EQ(owner, kA);
    asked.push_back(object);
  }
  void pull(ProcessIndex owner, ObjectId object, std::uint64_t) override {
    EXPECT_EQ(owner, kA);
    pulls.push_back(object);
  }
  struct Question {
    ProcessIndex to;
    ObjectId object, lost;
    friend bool operator==(const Question&, const Question&) = default;
  };
  std::vector<Question> rebuilds, peer_rebuilds;
  std::vector<ObjectId> over;
  void rebuild(ProcessIndex maker, ObjectId object, ObjectId lost) override {
    rebuilds.push_back({maker, object, lost});
  }
  void peer_rebuild(ProcessIndex owner, ObjectId object, ObjectId lost) override {
    peer_rebuilds.push_back({owner, object, lost});
  }
  void lineage_over(ProcessIndex, ObjectId object) override { over.push_back(object); }
  std::vector<Hold> take() { return std::exchange(holds, {}); }
};

wire::Value value_of(Kind kind, std::vector<ObjectId> refs = {}) {
  wire::Value value;
  value.kind = kind;
  value.refs = std::move(refs);
  value.remote_bytes = kind == Kind::remote ? 10'000 : 0;
  return value;
}

wire::Location location(std::uint64_t offset) {
  wire::Location at;
  at.offset = offset;
  return at;
}

struct OwnersBetweenNodes : testing::Test {
  Recorder out;
  OwnerTable owners{out};
  OwnersBetweenNodes() {
    for (const ProcessIndex node : {kA, kM, kN}) owners.add_node(node);
  }
  static Error death() {
    ErrorInfo info;
    info.code = Code::unavailable;
    info.message = "its machine is off";
    info.origin.node = "node-7";
    return Error(info);
  }
  void settle() {
    for (int pass = 0; pass < 8 && owners.settle(); ++pass) {
    }
    EXPECT_FALSE(owners.settle()) << "the agent would never sleep";
  }
  /// A ref of kA arrives for process 1.
  void arrive(ObjectId object, ProcessIndex from = kA) {
    owners.borrow(object, kA, from);
    owners.hold(object, 1, +1);
  }
  void let_go(ObjectId object) {
    owners.hold(object, 1, -1);
    settle();
  }
};

// --- counts

TEST_F(OwnersBetweenNodes, TheOwnerHasCountedUsOnce) {
  arrive(kX);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  arrive(kX);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}})) << "the surplus";
  let_go(kX);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  let_go(kX);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}})) << "the release";
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, WhatNobodyWantsIsReleased) {
  EXPECT_FALSE(owners.borrows_from(kA));
  owners.borrow(kX, kA, kA);
  EXPECT_TRUE(owners.borrows_from(kA));
  settle();
  EXPECT_FALSE(owners.borrows_from(kA));
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}}));
}

TEST_F(OwnersBetweenNodes, ComesAgainWhileItsReleaseIsOnItsWay) {
  arrive(kX);
  let_go(kX);
  arrive(kX);  // the owner counted us anew, whether it has read the release or not
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}}));
}

TEST_F(OwnersBetweenNodes, AThirdNodesRefIsRegisteredByWhoGetsIt) {
  arrive(kX, kM);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kM, +1}}));
  arrive(kX, kM);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kM, +1}, {kA, kX, kSelf, -1}}));
}

TEST_F(OwnersBetweenNodes, WhatCameThroughControlIsRegistered) {
  arrive(kX, kSelf);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, +1}}));
  arrive(kX, kSelf);
  EXPECT_EQ(out.take(), std::vector<Hold>{}) << "it was registered before";
}

TEST_F(OwnersBetweenNodes, TheOwnerSaysThatItCountsTheReceiver) {
  owners.escape(1, kX, value_of(Kind::inline_bytes), {});
  owners.hold(kX, kM, +1, 1);
  EXPECT_EQ(owners.depart(kX, kM, 1), kSelf);
  let_go(kX);
  owners.peer_hold(kN, kX, kM, +1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kN, kX, kM, -1}}));
  owners.peer_hold(kM, kX, kM, -1);
  settle();
  EXPECT_EQ(owners.size(), 1u) << "kN has it";
  owners.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, KeptUntilTheOwnerKnowsTheReceiver) {
  arrive(kX);
  owners.hold(kX, kN, +1, 1);
  owners.hold(kX, 1, -1, 1);
  EXPECT_EQ(owners.depart(kX, kN, 1), kA);
  settle();
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  owners.peer_hold(kN, kX, kA, -1);
  settle();
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}}));
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, OnItsWayToTheOwnerItIsKeptUntilItLeaves) {
  arrive(kX);
  owners.hold(kX, kA, +1, 1);
  owners.hold(kX, 1, -1, 1);
  settle();
  EXPECT_EQ(owners.size(), 1u);
  EXPECT_EQ(owners.depart(kX, kA, 1), kA);
  settle();
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, AProxyReadBeforeTheRing) {
  arrive(kX);
  EXPECT_EQ(owners.depart(kX, kN, 1), kA);
  owners.peer_hold(kN, kX, kA, -1);  // even the receiver's word comes first
  settle();
  owners.hold(kX, kN, +1, 1);
  EXPECT_EQ(owners.total_holds(), 1);
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, OurOwnComesHome) {
  owners.escape(1, kX, value_of(Kind::inline_bytes), {});
  owners.borrow(kX, kSelf, kN);
  EXPECT_EQ(owners.owner_of(kX), std::nullopt);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  owners.borrow(kX, kA, kN);
  EXPECT_EQ(owners.owner_of(kX), std::nullopt) << "somebody else is wrong";
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kN, +1}, {kA, kX, kSelf, -1}})) << "relieved";
}

TEST_F(OwnersBetweenNodes, WhatADeadProcessCountedAndNeverSentIsReturned) {
  owners.escape(1, kX, value_of(Kind::inline_bytes), {});
  owners.hold(kX, kN, +1, 1);
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  owners.process_died(1, death());
  EXPECT_EQ(owners.total_holds(), 1) << "one has left";
  owners.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(owners.size(), 0u);
}

// --- values

TEST_F(OwnersBetweenNodes, TheOwnerIsAskedOnce) {
  arrive(kX);
  owners.await(kX, 1);
  owners.await(kX, 2, false);
  EXPECT_EQ(out.asked, std::vector<ObjectId>{kX});
  owners.ready_from_owner(kM, kX, value_of(Kind::inline_bytes), {});
  EXPECT_TRUE(out.answers.empty()) << "not its owner";
  owners.borrow(kY, kA, kA);
  owners.ready_from_owner(kA, kX, value_of(Kind::inline_bytes, {kY}), {});
  EXPECT_EQ(out.answers.size(), 2u);
  owners.await(kX, 3);
  EXPECT_EQ(out.answers.size(), 3u);
  EXPECT_EQ(out.asked.size(), 1u);
  settle();
  EXPECT_EQ(owners.owner_of(kY), kA) << "held by the value and three receivers";
  EXPECT_EQ(owners.total_holds(), 1 + 4);
}

TEST_F(OwnersBetweenNodes, ASecondAnswerOfTheOwnerIsLetGo) {
  arrive(kX);
  owners.await(kX, 1);
  for (int i = 0; i < 2; ++i) {
    owners.borrow(kY, kA, kA);
    owners.ready_from_owner(kA, kX, value_of(Kind::inline_bytes, {kY}), {});
  }
  EXPECT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kY, kSelf, -1}}));
  EXPECT_EQ(owners.total_holds(), 1 + 2);
}

TEST_F(OwnersBetweenNodes, LargeBytesStayUntilSomebodyWantsThem) {
  arrive(kX);
  owners.await(kX, 1, false);
  owners.borrow(kY, kA, kA);
  owners.ready_from_owner(kA, kX, value_of(Kind::remote, {kY}), {});
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, Kind::remote);
  EXPECT_EQ(out.answers[0].value.remote_bytes, 10'000u);
  EXPECT_TRUE(out.answers[0].value.refs.empty());
  EXPECT_TRUE(out.pulls.empty());

  owners.await(kX, 1, true);
  owners.await(kX, 2, true);
  EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX}) << "once";
  owners.pulled(kX, location(7));
  ASSERT_EQ(out.answers.size(), 3u);
  EXPECT_EQ(out.answers[2].value.kind, Kind::shared);
  EXPECT_EQ(out.answers[2].value.location, location(7));
  EXPECT_EQ(out.answers[2].value.refs, std::vector<ObjectId>{kY});
  EXPECT_EQ(owners.total_holds(), 1 + 3);

  owners.hold(kY, 1, -1);
  owners.hold(kY, 2, -1);
  let_go(kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, AFailedPullIsAnsweredAndMayBeTriedAgain) {
  arrive(kX);
  owners.await(kX, 1);
  owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  owners.pull_failed(kX, Error(Code::out_of_memory, "no room"));
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.error->code, Code::out_of_memory);
  owners.await(kX, 1);
  EXPECT_EQ(out.pulls.size(), 2u);
}

TEST_F(OwnersBetweenNodes, BytesThatComeTooLateAreFreed) {
  arrive(kX);
  owners.await(kX, 1);
  owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  let_go(kX);
  owners.pulled(kX, location(7));
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_TRUE(out.answers.empty()) << "it might be met again and is not lost";
}

TEST_F(OwnersBetweenNodes, ANodeAwaitsAsAProcessDoes) {
  owners.escape(1, kY, value_of(Kind::inline_bytes), {});
  arrive(kZ);
  owners.escape(1, kX, value_of(Kind::shared, {kY, kZ}), {});
  const auto before = owners.total_holds();
  owners.await(kX, kN);
  EXPECT_EQ(owners.total_holds(), before + 2);
  owners.await(kX, kA);
  EXPECT_EQ(owners.total_holds(), before + 3) << "kZ goes to its owner, uncounted";
  EXPECT_EQ(out.answers.size(), 2u);
}

TEST_F(OwnersBetweenNodes, ForwardedAcrossOwners) {
  // kX is ours and forwards to kY of kA, which forwards to kZ of kA.
  arrive(kY);
  wire::Value to_y = value_of(Kind::forwarded), to_z = value_of(Kind::forwarded);
  to_y.forward = kY;
  to_z.forward = kZ;
  owners.escape(1, kX, to_y, {});
  owners.await(kX, 2);
  ASSERT_EQ(out.answers.size(), 1u);
  owners.await(kY, 2);
  owners.borrow(kZ, kA, kA);
  owners.ready_from_owner(kA, kY, to_z, {});
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.forward, kZ);
  for (const ObjectId held : {kY, kZ}) owners.hold(held, 2, -1);
  owners.hold(kX, 1, -1);
  let_go(kY);
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, AnOwnerDoesNotSendUsElsewhereForBytes) {
  owners.escape(1, kX, value_of(Kind::remote), {});
  owners.await(kX, 1);
  arrive(kY);
  owners.await(kY, 1);
  owners.ready_from_owner(kA, kY, value_of(Kind::shared), {});
  ASSERT_EQ(out.answers.size(), 2u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.error->code, Code::object_lost);
  EXPECT_TRUE(out.freed.empty());
}

// --- deaths

TEST_F(OwnersBetweenNodes, ItsOwnersDeathEndsWhatWaits) {
  for (const ObjectId id : {kX, kY, kZ}) arrive(id);
  owners.await(kX, 1);
  owners.await(kY, 1);
  owners.ready_from_owner(kA, kY, value_of(Kind::remote), {});
  owners.await(kZ, 1);
  owners.ready_from_owner(kA, kZ, value_of(Kind::inline_bytes), {});
  ASSERT_EQ(out.answers.size(), 1u);
  owners.node_died(kA, death());
  owners.pull_failed(kY, death());
  ASSERT_EQ(out.answers.size(), 3u);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(out.answers[i].value.error->code, Code::object_lost);
    EXPECT_EQ(out.answers[i].value.error->origin.node, "node-7");
    EXPECT_EQ(out.answers[i].value.error->cause->message, "its machine is off");
  }
  owners.await(kZ, 2);
  EXPECT_EQ(out.answers.back().value.kind, Kind::inline_bytes) << "what is here stays good";
  arrive(kX, kM);
  owners.await(kX, 2);
  EXPECT_EQ(out.answers.back().value.kind, Kind::error);
  for (const ObjectId id : {kX, kX, kY, kZ}) let_go(id);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}})) << "nothing is said to the dead";
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, PassedOnOfADeadOwnerIsNotWaitedFor) {
  arrive(kX);
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);  // its owner would have told us
  owners.hold(kX, kN, +1, 1);
  owners.node_died(kA, death());
  owners.hold(kX, 1, -1, 1);
  settle();
  EXPECT_EQ(owners.size(), 1u) << "one is still to be sent";
  EXPECT_EQ(owners.depart(kX, kN, 1), kA);
  settle();
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, ADeadNodeHoldsNothingAndIsNotHeard) {
  owners.escape(1, kX, value_of(Kind::shared), {});
  owners.hold(kX, kN, +1, 1);
  owners.node_died(kN, death());
  owners.peer_hold(kN, kX, kN, -1);
  owners.peer_hold(kN, kX, kM, +1);
  owners.await(kX, kN);
  owners.hold(kX, kN, +1, 1);
  EXPECT_EQ(owners.total_holds(), 1);
  EXPECT_TRUE(out.answers.empty());
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
}

TEST_F(OwnersBetweenNodes, PassedOnByADeadNodeAndFreedSaysSo) {
  // kN got the ref from kM, which died; ours had let go: its registration comes too late.
  owners.node_died(kM, death());
  owners.peer_hold(kN, kX, kM, +1);
  owners.await(kX, kN);
  settle();
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.error->code, Code::object_lost);
  owners.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(owners.size(), 0u);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kN, kX, kM, -1}})) << "nothing is said to the dead";
}

TEST_F(OwnersBetweenNodes, WhoPassedItOnIsToldWhenTheOwnerHasCountedUs) {
  owners.borrow(kX, kA, kM);
  owners.borrow(kX, kA, kM);
  EXPECT_EQ(out.take().size(), 3u);
  owners.peer_hold(kA, kX, kM, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}}));
  owners.peer_hold(kA, kX, kM, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}}));
  owners.peer_hold(kA, kX, kM, -1);
  EXPECT_EQ(out.take(), std::vector<Hold>{}) << "of nothing that was passed on to us";
}

// The owner names the node, and the sender has another index since its talk with us broke off.
TEST_F(OwnersBetweenNodes, WhatTheOwnerSaysOfAPassRelievesNoLaterOne) {
  constexpr ProcessIndex kAgain = 103;
  owners.add_node(kAgain);
  arrive(kX, kM);
  let_go(kX);
  owners.node_died(kM, death());
  arrive(kX, kAgain);
  out.take();
  owners.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), std::vector<Hold>{}) << "the owner has not counted us for this one yet";
  owners.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kAgain, kX, kA, -1}}));
  owners.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
}

// The same, but kX is kN's for us, and kA took itself for its owner when it passed it to kM.
TEST_F(OwnersBetweenNodes, WhatAReceiverSaysOfAPassOfOursIsNoneOfADeadSenders) {
  arrive(kX, kM);
  let_go(kX);
  owners.node_died(kM, death());
  owners.borrow(kX, kN, kN);
  owners.hold(kX, 1, +1);
  owners.hold(kX, kA, +1, 1);
  owners.depart(kX, kA, 1);
  owners.peer_hold(kA, kX, kN, -1);
  EXPECT_EQ(owners.total_holds(), 1) << "kN counts kA";
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
}

// Found by the simulated clusters: the sender came back, had lost kA meanwhile, and passed the ref
// on as its own. What kA said of the first pass was taken for its word on a pass of ours, the first
// stayed, and kA's word on the next one that kM passed on was taken for that: kM counts us for
// ever.
TEST_F(OwnersBetweenNodes, WhatTheOwnerSaysOfADeadSendersPassEndsItAlsoWhenThatOneStandsIn) {
  constexpr ProcessIndex kAgain = 103;
  owners.add_node(kAgain);
  arrive(kX, kM);
  let_go(kX);
  owners.node_died(kM, death());
  owners.borrow(kX, kAgain, kAgain);
  owners.hold(kX, 1, +1);
  owners.peer_hold(kA, kX, kAgain, -1);  // of what kM passed on
  let_go(kX);
  arrive(kX, kAgain);
  out.take();
  owners.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kAgain, kX, kA, -1}}));
}

// Found by the simulated clusters: the talk between owner and receiver broke off, so that the owner
// never heard of the receiver, and who had passed the ref on kept the object for ever.
TEST_F(OwnersBetweenNodes, WhoPassedItOnIsToldWhenTheOwnerIsLostToUs) {
  owners.borrow(kX, kA, kM);
  owners.borrow(kX, kA, kN);
  owners.node_died(kN, death());
  out.take();
  owners.node_died(kA, death());
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}}));
  owners.borrow(kY, kA, kM);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kY, kA, -1}}));
}

// Found by the simulated clusters: who gets a ref whose owner we have lost may take us for the
// owner.
TEST_F(OwnersBetweenNodes, WhoTakesUsForTheOwnerThatWeHaveLostLeavesNothing) {
  for (const ObjectId id : {kX, kY}) arrive(id);
  owners.node_died(kA, death());
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  let_go(kX);
  EXPECT_EQ(owners.size(), 1u);
  owners.peer_hold(kN, kX, kN, -1);
  EXPECT_EQ(owners.total_holds(), 1) << "its release came after ours";
  out.take();
  owners.peer_hold(kN, kY, kM, +1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kN, kY, kM, -1}})) << "so that it relieves kM";
  EXPECT_EQ(owners.total_holds(), 1);
  let_go(kY);
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, NorDoesWhoHasItFromThatOne) {
  arrive(kX);
  owners.node_died(kA, death());
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
  out.take();
  owners.peer_hold(kM, kX, kN, +1);  // kN has passed it on to kM, in our name
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kN, -1}})) << "so that it relieves kN";
  owners.peer_hold(kN, kX, kN, -1);
  owners.peer_hold(kM, kX, kM, -1);
  settle();
  EXPECT_EQ(owners.size(), 0u);
}

// Schedule 2196260: only the note of kN says that we had let go of the ref.
TEST_F(OwnersBetweenNodes, NorDoesWhoHasItFromThatOneWhenThatOneDies) {
  arrive(kX);
  owners.node_died(kA, death());
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  let_go(kX);
  owners.peer_hold(kM, kX, kN, +1);
  owners.node_died(kN, death());
  owners.peer_hold(kM, kX, kM, -1);
  settle();
  EXPECT_EQ(owners.size(), 0u);
  EXPECT_EQ(owners.orphans(), 1u);
  owners.node_died(kM, death());
  EXPECT_EQ(owners.orphans(), 0u);
}

// Schedules 1362866 and 1716690.
TEST_F(OwnersBetweenNodes, NorDoesWhoSendsItBackWhenWeHaveLetGoAndGetsItAgain) {
  arrive(kX);
  owners.node_died(kA, death());
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  let_go(kX);
  owners.borrow(kX, kSelf, kN);
  owners.hold(kX, 1, +1);
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  EXPECT_EQ(owners.total_holds(), 1) << "its own";
  owners.peer_hold(kN, kX, kN, -1);
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, ManyOfThoseCostACountNoMoreThanFew) {
  constexpr std::uint64_t kLost = 30'000, kCounts = 4'000;
  for (std::uint64_t n = 0; n < kLost; ++n) arrive({9, n});
  owners.node_died(kA, death());
  for (std::uint64_t n = 0; n < kLost; ++n) {
    owners.hold({9, n}, kN, +1, 1);
    owners.depart({9, n}, kN, 1);
    owners.hold({9, n}, 1, -1);
  }
  settle();
  const std::clock_t before = std::clock();
  for (std::uint64_t n = 0; n < kCounts; ++n) owners.peer_hold(kM, {10, n}, kM, +1);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 5) << "of this process, not of the machine";
  EXPECT_EQ(owners.total_holds(), std::int64_t{kCounts});
}

// We owned it, lost its holder's node and let go of it; from there it came to kN, and back to us.
TEST_F(OwnersBetweenNodes, NorWhoCountedHereBeforeItBecameAnothers) {
  owners.peer_hold(kN, kX, kM, +1);
  arrive(kX);
  owners.peer_hold(kN, kX, kN, -1);
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
}

// The same, but kN spoke while we had it from another node; what it gives back comes after we let
// go of it.
TEST_F(OwnersBetweenNodes, NorWhoCountedHereWhileItWasAnothers) {
  arrive(kX, kA);
  owners.peer_hold(kN, kX, kM, +1);
  let_go(kX);
  owners.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(owners.size(), 0u);
  EXPECT_EQ(owners.orphans(), 1u);
  owners.node_died(kN, death());
  EXPECT_EQ(owners.orphans(), 0u);
}

TEST_F(OwnersBetweenNodes, AnOwnerThatComesBackUnderAnotherIndex) {
  constexpr ProcessIndex kAgain = 103;
  owners.add_node(kAgain);
  arrive(kX);
  owners.node_died(kA, death());
  owners.borrow(kX, kAgain, kM);
  owners.await(kX, 1);
  EXPECT_EQ(out.answers.back().value.kind, Kind::error) << "lost as long as somebody has it";
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kAgain, kX, kM, +1}, {kAgain, kX, kSelf, -1}}));
  let_go(kX);
  owners.borrow(kX, kAgain, kAgain);
  EXPECT_EQ(owners.owner_of(kX), kAgain);
}

TEST_F(OwnersBetweenNodes, AnOwnerThatHasCountedWhomWeDoNotKnow) {
  arrive(kX);
  owners.peer_hold(kA, kX, 99, -1);
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(OwnersBetweenNodes, AReceiversDeathRelievesWhoPassedItOn) {
  arrive(kX);
  owners.hold(kX, kN, +1, 1);
  owners.depart(kX, kN, 1);
  owners.node_died(kN, death());
  owners.peer_hold(kA, kX, kN, -1);  // the owner had read it before
  let_go(kX);
  EXPECT_EQ(owners.size(), 0u);
}

// --- lost values

wire::Value forward(ObjectId to) {
  wire::Value value = value_of(Kind::forwarded);
  value.forward = to;
  return value;
}
using Questions = std::vector<Recorder::Question>;

TEST_F(OwnersBetweenNodes, TheMakerIsAskedOnceHoweverManyMissAValue) {
  owners.escape(1, kX, forward(kY), {});
  owners.hold(kX, 2, +1);
  owners.hold(kX, kN, +1);
  owners.rebuild(kX, 2, kY);
  owners.rebuild(kX, kN, kY);
  owners.await(kX, 2);
  EXPECT_EQ(out.rebuilds, (Questions{{1, kX, kY}}));
  EXPECT_TRUE(out.answers.empty());
  owners.rebuilt(1, kX, forward(kZ), {});
  ASSERT_EQ(out.answers.size(), 3u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.forward, kZ);
  // Who hears of it late is told at once; who misses the new one asks again.
  owners.rebuild(kX, 2, kY);
  EXPECT_EQ(out.answers.size(), 4u);
  owners.rebuild(kX, 2, kZ);
  EXPECT_EQ(out.rebuilds.size(), 2u);
}

TEST_F(OwnersBetweenNodes, OnlyWhoMadeItSaysWhatItsValueIsNow) {
  owners.escape(1, kX, forward(kY), {});
  owners.rebuilt(2, kX, forward(kZ), {});
  owners.await(kX, 1);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.forward, kY);
}

TEST_F(OwnersBetweenNodes, ADeadMakerCannotComputeAgain) {
  owners.escape(1, kX, forward(kY), {});
  owners.escape(1, kZ, forward(kY), {});
  owners.hold(kX, 2, +1);
  owners.hold(kZ, 2, +1);
  owners.rebuild(kX, 2, kY);
  owners.process_died(1, death());
  owners.rebuild(kZ, 2, kY);
  ASSERT_EQ(out.answers.size(), 2u);
  for (const auto& answer : out.answers) {
    EXPECT_EQ(answer.value.kind, Kind::error);
    EXPECT_EQ(answer.value.error->code, Code::object_lost);
  }
}

TEST_F(OwnersBetweenNodes, ALostValueOfAnotherNodesObjectIsAskedOfItsOwner) {
  arrive(kX);
  owners.await(kX, 1);
  owners.ready_from_owner(kA, kX, forward(kY), {});
  out.answers.clear();
  owners.rebuild(kX, 1, kY);
  owners.rebuild(kX, 1, kY);
  EXPECT_EQ(out.peer_rebuilds, (Questions{{kA, kX, kY}}));
  owners.ready_from_owner(kA, kX, forward(kZ), {});
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[0].value.forward, kZ);
  owners.rebuild(kX, 1, kZ);
  owners.node_died(kA, death());
  ASSERT_EQ(out.answers.size(), 3u) << "its owner's death answers";
  EXPECT_EQ(out.answers[2].value.kind, Kind::error);
}

TEST_F(OwnersBetweenNodes, BytesThatAnOwnerHasLostItIsToComputeAgain) {
  arrive(kX);
  owners.await(kX, 1);
  owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  owners.pull_failed(kX, Error(Code::object_lost, "its disk is bad"));
  EXPECT_TRUE(out.answers.empty()) << "who asks now would take this for the value";
  EXPECT_EQ(out.peer_rebuilds, (Questions{{kA, kX, kX}}));
  owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  owners.pulled(kX, location(7));
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.location.offset, 7u);
}

TEST_F(OwnersBetweenNodes, LostBytesThatNobodyWantsAnyMoreAreNotComputedAgain) {
  arrive(kX);
  owners.await(kX, 1);
  owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  let_go(kX);
  owners.pull_failed(kX, Error(Code::object_lost, "its disk is bad"));
  EXPECT_TRUE(out.peer_rebuilds.empty());
}

TEST_F(OwnersBetweenNodes, ACopyThatHasGoneBadIsDropped) {
  wire::Value shared = value_of(Kind::shared);
  shared.location = location(7);
  owners.escape(1, kX, shared, {});
  owners.hold(kX, 2, +1);
  owners.rebuild(kX, 2, kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  shared.location = location(8);
  owners.rebuilt(1, kX, shared, {});
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.location.offset, 8u);
}

TEST_F(OwnersBetweenNodes, WhoMissesOldBytesIsToldOfTheGoodOnes) {
  std::uint64_t bad = 7;
  owners.ask_of_bytes([&bad](const wire::Location& at) { return at.offset != bad; });
  wire::Value shared = value_of(Kind::shared);
  shared.location = location(7);
  owners.escape(1, kX, shared, {});
  for (const ProcessIndex holder : {ProcessIndex{2}, ProcessIndex{3}, kN})
    owners.hold(kX, holder, +1);
  owners.rebuild(kX, 2, kX);
  shared.location = location(8);
  owners.rebuilt(1, kX, shared, {});
  owners.process_died(1, death());
  owners.rebuild(kX, 3, kX);
  owners.rebuild(kX, kN, kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(out.rebuilds.size(), 1u);
  ASSERT_EQ(out.answers.size(), 3u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.location.offset, 8u);
  bad = 8;
  owners.rebuild(kX, 2, kX);
  EXPECT_EQ(out.answers.back().value.kind, Kind::error) << "who made it is dead";
}

TEST_F(OwnersBetweenNodes, WhoPutAnObjectThatCannotBeReadNowMayTryAgain) {
  wire::Value shared = value_of(Kind::shared);
  shared.location = location(7);
  owners.escape(1, kX, shared, {});
  owners.rebuild(kX, 1, kX);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, Kind::error);
  EXPECT_TRUE(out.rebuilds.empty()) << "it would have made it, if it could";
  EXPECT_TRUE(out.freed.empty());
  owners.await(kX, 1);
  EXPECT_EQ(out.answers.back().value.location.offset, 7u);
}

struct OwnersTakenForTheOwner : OwnersBetweenNodes {
  std::uint64_t bad = 0;
  OwnersTakenForTheOwner() {
    owners.ask_of_bytes([this](const wire::Location& at) { return at.offset != bad; });
    arrive(kX);
    owners.await(kX, 1);
    owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
    out.answers.clear();
  }
};

TEST_F(OwnersTakenForTheOwner, TellWhoMissedTheBytesOfThoseThatAreHere) {
  owners.pulled(kX, location(7));
  owners.node_died(kA, death());
  out.answers.clear();
  owners.rebuild(kX, kM, kX);  // its pull was refused
  ASSERT_EQ(out.answers.size(), 1u) << "it would wait for ever";
  EXPECT_EQ(out.answers[0].process, kM);
  EXPECT_EQ(out.answers[0].value.location.offset, 7u);
  bad = 7;
  owners.rebuild(kX, kM, kX);
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.kind, Kind::error) << "who could make it is dead";
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
}

TEST_F(OwnersTakenForTheOwner, FetchWhatIsMissed) {
  owners.rebuild(kX, kM, kX);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_TRUE(out.peer_rebuilds.empty()) << "the owner's bytes may be good";
  owners.pulled(kX, location(7));
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].process, kM);
  EXPECT_EQ(out.answers[1].value.location.offset, 7u);
}

TEST_F(OwnersTakenForTheOwner, ByTheOneThatTheyTakeForTheOwnerSayThatItIsLost) {
  owners.rebuild(kX, kA, kX);
  arrive(kY);
  owners.await(kY, 1);
  owners.await(kY, kA, false);
  ASSERT_EQ(out.answers.size(), 2u) << "each would wait for the other";
  for (const auto& answer : out.answers) {
    EXPECT_EQ(answer.process, kA);
    EXPECT_EQ(answer.value.kind, Kind::error);
  }
}

struct OwnersBadCopy : OwnersBetweenNodes {
  /// Another node's object, whose bytes were fetched and have gone bad here, say two processes.
  void find_bad() {
    arrive(kX);
    owners.await(kX, 1);
    owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
    owners.pulled(kX, location(7));
    out.answers.clear();
    out.pulls.clear();
    owners.rebuild(kX, 1, kX);
    owners.rebuild(kX, 2, kX);
    EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
    EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX}) << "the owner's may be good";
    EXPECT_TRUE(out.peer_rebuilds.empty());
    EXPECT_TRUE(out.answers.empty());
  }
};

TEST_F(OwnersBadCopy, IsFetchedOnceMore) {
  find_bad();
  owners.pulled(kX, location(8));
  ASSERT_EQ(out.answers.size(), 2u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.location.offset, 8u);
  EXPECT_TRUE(out.peer_rebuilds.empty());
}

TEST_F(OwnersBadCopy, IsComputedAgainWhenTheOwnersIsGoneToo) {
  find_bad();
  owners.pull_failed(kX, Error(Code::object_lost, "a damaged file"));
  EXPECT_TRUE(out.answers.empty());
  EXPECT_EQ(out.peer_rebuilds, (Questions{{kA, kX, kX}}));
  owners.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  owners.pulled(kX, location(9));
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.location.offset, 9u);
}

TEST_F(OwnersBadCopy, EndsWithItsOwner) {
  find_bad();
  owners.node_died(kA, death());
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[0].value.kind, Kind::error);
}

TEST_F(OwnersBetweenNodes, WhoKeepsLineageHearsOfTheEnd) {
  owners.escape(1, kX, forward(kY), {});
  owners.hold(kX, 2, +1);
  owners.keeps_lineage(1, kX);
  owners.hold(kX, 1, -1);
  settle();
  EXPECT_TRUE(out.over.empty());
  owners.hold(kX, 2, -1);
  settle();
  EXPECT_EQ(out.over, std::vector<ObjectId>{kX});
  owners.keeps_lineage(1, kX);  // it is gone already
  EXPECT_EQ(out.over.size(), 2u);
}

}  // namespace
}  // namespace troupe::agent::owners_nodes_test
