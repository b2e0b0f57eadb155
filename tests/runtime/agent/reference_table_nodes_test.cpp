// Tests ReferenceTable between nodes: which node counts which when a ref is passed on, values of
// other nodes, and deaths. tests/simulation/ownership_cluster_test.cpp tests the whole protocol.
#include "troupe/runtime/agent/reference_table.hpp"

#include <gtest/gtest.h>
#include <ctime>

namespace troupe::agent::reference_table_nodes_test {
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

struct Recorder final : ReferenceTable::Out {
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

struct ReferencesBetweenNodes : testing::Test {
  Recorder out;
  ReferenceTable references{out};
  ReferencesBetweenNodes() {
    for (const ProcessIndex node : {kA, kM, kN}) references.add_node(node);
  }
  static Error death() {
    ErrorInfo info;
    info.code = Code::unavailable;
    info.message = "its machine is off";
    info.origin.node = "node-7";
    return Error(info);
  }
  void settle() {
    for (int pass = 0; pass < 8 && references.settle(); ++pass) {
    }
    EXPECT_FALSE(references.settle()) << "the agent would never sleep";
  }
  /// A ref of kA arrives, and process 1 holds it.
  void arrive(ObjectId object, ProcessIndex from = kA) {
    references.import_from(object, kA, from);
    references.hold(object, 1, +1);
  }
  void let_go(ObjectId object) {
    references.hold(object, 1, -1);
    settle();
  }
};

// --- counts

TEST_F(ReferencesBetweenNodes, TheOwnerHasCountedUsOnce) {
  arrive(kX);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  arrive(kX);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}})) << "the surplus";
  let_go(kX);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  let_go(kX);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}})) << "the release";
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, WhatNobodyWantsIsReleased) {
  EXPECT_FALSE(references.imports_from(kA));
  references.import_from(kX, kA, kA);
  EXPECT_TRUE(references.imports_from(kA));
  settle();
  EXPECT_FALSE(references.imports_from(kA));
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}}));
}

TEST_F(ReferencesBetweenNodes, ComesAgainWhileItsReleaseIsOnItsWay) {
  arrive(kX);
  let_go(kX);
  arrive(kX);  // the owner has counted this node anew, whether it has read the release or not
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}}));
}

TEST_F(ReferencesBetweenNodes, AThirdNodesRefIsRegisteredByWhoGetsIt) {
  arrive(kX, kM);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kM, +1}}));
  arrive(kX, kM);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kM, +1}, {kA, kX, kSelf, -1}}));
}

TEST_F(ReferencesBetweenNodes, WhatCameThroughControlIsRegistered) {
  arrive(kX, kSelf);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, +1}}));
  arrive(kX, kSelf);
  EXPECT_EQ(out.take(), std::vector<Hold>{}) << "it was registered before";
}

TEST_F(ReferencesBetweenNodes, TheOwnerSaysThatItCountsTheReceiver) {
  references.promote(1, kX, value_of(Kind::inline_bytes), {});
  references.hold(kX, kM, +1, 1);
  EXPECT_EQ(references.export_to(kX, kM, 1), kSelf);
  let_go(kX);
  references.peer_hold(kN, kX, kM, +1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kN, kX, kM, -1}}));
  references.peer_hold(kM, kX, kM, -1);
  settle();
  EXPECT_EQ(references.size(), 1u) << "kN has it";
  references.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, KeptUntilTheOwnerKnowsTheReceiver) {
  arrive(kX);
  references.hold(kX, kN, +1, 1);
  references.hold(kX, 1, -1, 1);
  EXPECT_EQ(references.export_to(kX, kN, 1), kA);
  settle();
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  references.peer_hold(kN, kX, kA, -1);
  settle();
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kSelf, -1}}));
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, OnItsWayToTheOwnerItIsKeptUntilItLeaves) {
  arrive(kX);
  references.hold(kX, kA, +1, 1);
  references.hold(kX, 1, -1, 1);
  settle();
  EXPECT_EQ(references.size(), 1u);
  EXPECT_EQ(references.export_to(kX, kA, 1), kA);
  settle();
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, AProxyReadBeforeTheRing) {
  arrive(kX);
  EXPECT_EQ(references.export_to(kX, kN, 1), kA);
  references.peer_hold(kN, kX, kA, -1);  // even the receiver's message may come first
  settle();
  references.hold(kX, kN, +1, 1);
  EXPECT_EQ(references.total_holds(), 1);
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, OurOwnComesHome) {
  references.promote(1, kX, value_of(Kind::inline_bytes), {});
  references.import_from(kX, kSelf, kN);
  EXPECT_EQ(references.owner_of(kX), std::nullopt);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
  references.import_from(kX, kA, kN);
  EXPECT_EQ(references.owner_of(kX), std::nullopt) << "somebody else is wrong";
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kX, kN, +1}, {kA, kX, kSelf, -1}})) << "relieved";
}

TEST_F(ReferencesBetweenNodes, WhatADeadProcessCountedAndNeverSentIsReturned) {
  references.promote(1, kX, value_of(Kind::inline_bytes), {});
  references.hold(kX, kN, +1, 1);
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  references.process_died(1, death());
  EXPECT_EQ(references.total_holds(), 1) << "one has left";
  references.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(references.size(), 0u);
}

// --- values

TEST_F(ReferencesBetweenNodes, TheOwnerIsAskedOnce) {
  arrive(kX);
  references.await(kX, 1);
  references.await(kX, 2, false);
  EXPECT_EQ(out.asked, std::vector<ObjectId>{kX});
  references.ready_from_owner(kM, kX, value_of(Kind::inline_bytes), {});
  EXPECT_TRUE(out.answers.empty()) << "not its owner";
  references.import_from(kY, kA, kA);
  references.ready_from_owner(kA, kX, value_of(Kind::inline_bytes, {kY}), {});
  EXPECT_EQ(out.answers.size(), 2u);
  references.await(kX, 3);
  EXPECT_EQ(out.answers.size(), 3u);
  EXPECT_EQ(out.asked.size(), 1u);
  settle();
  EXPECT_EQ(references.owner_of(kY), kA) << "held by the value and three receivers";
  EXPECT_EQ(references.total_holds(), 1 + 4);
}

TEST_F(ReferencesBetweenNodes, ASecondAnswerOfTheOwnerIsLetGo) {
  arrive(kX);
  references.await(kX, 1);
  for (int i = 0; i < 2; ++i) {
    references.import_from(kY, kA, kA);
    references.ready_from_owner(kA, kX, value_of(Kind::inline_bytes, {kY}), {});
  }
  EXPECT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kA, kY, kSelf, -1}}));
  EXPECT_EQ(references.total_holds(), 1 + 2);
}

TEST_F(ReferencesBetweenNodes, LargeBytesStayUntilSomebodyWantsThem) {
  arrive(kX);
  references.await(kX, 1, false);
  references.import_from(kY, kA, kA);
  references.ready_from_owner(kA, kX, value_of(Kind::remote, {kY}), {});
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, Kind::remote);
  EXPECT_EQ(out.answers[0].value.remote_bytes, 10'000u);
  EXPECT_TRUE(out.answers[0].value.refs.empty());
  EXPECT_TRUE(out.pulls.empty());

  references.await(kX, 1, true);
  references.await(kX, 2, true);
  EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX}) << "once";
  references.pulled(kX, location(7));
  ASSERT_EQ(out.answers.size(), 3u);
  EXPECT_EQ(out.answers[2].value.kind, Kind::shared);
  EXPECT_EQ(out.answers[2].value.location, location(7));
  EXPECT_EQ(out.answers[2].value.refs, std::vector<ObjectId>{kY});
  EXPECT_EQ(references.total_holds(), 1 + 3);

  references.hold(kY, 1, -1);
  references.hold(kY, 2, -1);
  let_go(kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, AFailedPullIsAnsweredAndMayBeTriedAgain) {
  arrive(kX);
  references.await(kX, 1);
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  references.pull_failed(kX, Error(Code::out_of_memory, "no room"));
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.error->code, Code::out_of_memory);
  references.await(kX, 1);
  EXPECT_EQ(out.pulls.size(), 2u);
}

TEST_F(ReferencesBetweenNodes, BytesThatComeTooLateAreFreed) {
  arrive(kX);
  references.await(kX, 1);
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  let_go(kX);
  references.pulled(kX, location(7));
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_TRUE(out.answers.empty()) << "it might be met again and is not lost";
}

TEST_F(ReferencesBetweenNodes, ANodeAwaitsAsAProcessDoes) {
  references.promote(1, kY, value_of(Kind::inline_bytes), {});
  arrive(kZ);
  references.promote(1, kX, value_of(Kind::shared, {kY, kZ}), {});
  const auto before = references.total_holds();
  references.await(kX, kN);
  EXPECT_EQ(references.total_holds(), before + 2);
  references.await(kX, kA);
  EXPECT_EQ(references.total_holds(), before + 3) << "kZ goes to its owner, uncounted";
  EXPECT_EQ(out.answers.size(), 2u);
}

TEST_F(ReferencesBetweenNodes, ForwardedAcrossOwners) {
  // kX belongs to this node and forwards to kA's kY, which forwards to kA's kZ.
  arrive(kY);
  wire::Value to_y = value_of(Kind::forwarded), to_z = value_of(Kind::forwarded);
  to_y.forward = kY;
  to_z.forward = kZ;
  references.promote(1, kX, to_y, {});
  references.await(kX, 2);
  ASSERT_EQ(out.answers.size(), 1u);
  references.await(kY, 2);
  references.import_from(kZ, kA, kA);
  references.ready_from_owner(kA, kY, to_z, {});
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.forward, kZ);
  for (const ObjectId held : {kY, kZ}) references.hold(held, 2, -1);
  references.hold(kX, 1, -1);
  let_go(kY);
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, AnOwnerDoesNotSendUsElsewhereForBytes) {
  references.promote(1, kX, value_of(Kind::remote), {});
  references.await(kX, 1);
  arrive(kY);
  references.await(kY, 1);
  references.ready_from_owner(kA, kY, value_of(Kind::shared), {});
  ASSERT_EQ(out.answers.size(), 2u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.error->code, Code::object_lost);
  EXPECT_TRUE(out.freed.empty());
}

// --- deaths

TEST_F(ReferencesBetweenNodes, ItsOwnersDeathEndsWhatWaits) {
  for (const ObjectId id : {kX, kY, kZ}) arrive(id);
  references.await(kX, 1);
  references.await(kY, 1);
  references.ready_from_owner(kA, kY, value_of(Kind::remote), {});
  references.await(kZ, 1);
  references.ready_from_owner(kA, kZ, value_of(Kind::inline_bytes), {});
  ASSERT_EQ(out.answers.size(), 1u);
  references.node_died(kA, death());
  references.pull_failed(kY, death());
  ASSERT_EQ(out.answers.size(), 3u);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(out.answers[i].value.error->code, Code::object_lost);
    EXPECT_EQ(out.answers[i].value.error->origin.node, "node-7");
    EXPECT_EQ(out.answers[i].value.error->cause->message, "its machine is off");
  }
  references.await(kZ, 2);
  EXPECT_EQ(out.answers.back().value.kind, Kind::inline_bytes) << "what is here stays good";
  arrive(kX, kM);
  references.await(kX, 2);
  EXPECT_EQ(out.answers.back().value.kind, Kind::error);
  for (const ObjectId id : {kX, kX, kY, kZ}) let_go(id);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}})) << "nothing is said to the dead";
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, PassedOnOfADeadOwnerIsNotWaitedFor) {
  arrive(kX);
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);  // the owner would have told this node
  references.hold(kX, kN, +1, 1);
  references.node_died(kA, death());
  references.hold(kX, 1, -1, 1);
  settle();
  EXPECT_EQ(references.size(), 1u) << "one is still to be sent";
  EXPECT_EQ(references.export_to(kX, kN, 1), kA);
  settle();
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, ADeadNodeHoldsNothingAndIsNotHeard) {
  references.promote(1, kX, value_of(Kind::shared), {});
  references.hold(kX, kN, +1, 1);
  references.node_died(kN, death());
  references.peer_hold(kN, kX, kN, -1);
  references.peer_hold(kN, kX, kM, +1);
  references.await(kX, kN);
  references.hold(kX, kN, +1, 1);
  EXPECT_EQ(references.total_holds(), 1);
  EXPECT_TRUE(out.answers.empty());
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
}

TEST_F(ReferencesBetweenNodes, PassedOnByADeadNodeAndFreedSaysSo) {
  // kN got the ref from kM, which died, and this node had released it: kN's registration comes
  // too late.
  references.node_died(kM, death());
  references.peer_hold(kN, kX, kM, +1);
  references.await(kX, kN);
  settle();
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.error->code, Code::object_lost);
  references.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(references.size(), 0u);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kN, kX, kM, -1}})) << "nothing is said to the dead";
}

TEST_F(ReferencesBetweenNodes, WhoPassedItOnIsToldWhenTheOwnerHasCountedUs) {
  references.import_from(kX, kA, kM);
  references.import_from(kX, kA, kM);
  EXPECT_EQ(out.take().size(), 3u);
  references.peer_hold(kA, kX, kM, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}}));
  references.peer_hold(kA, kX, kM, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}}));
  references.peer_hold(kA, kX, kM, -1);
  EXPECT_EQ(out.take(), std::vector<Hold>{}) << "of nothing that was passed on to us";
}

// The link to the sender broke off, so the sender has another index here. The owner's message
// names the node, and means the sender's first pass.
TEST_F(ReferencesBetweenNodes, WhatTheOwnerSaysOfAPassRelievesNoLaterOne) {
  constexpr ProcessIndex kAgain = 103;
  references.add_node(kAgain);
  arrive(kX, kM);
  let_go(kX);
  references.node_died(kM, death());
  arrive(kX, kAgain);
  out.take();
  references.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), std::vector<Hold>{}) << "the owner has not counted us for this one yet";
  references.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kAgain, kX, kA, -1}}));
  references.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), std::vector<Hold>{});
}

// As above, but for this node kN owns kX, and kA took itself for the owner when it passed the ref
// to kM.
TEST_F(ReferencesBetweenNodes, WhatAReceiverSaysOfAPassOfOursIsNoneOfADeadSenders) {
  arrive(kX, kM);
  let_go(kX);
  references.node_died(kM, death());
  references.import_from(kX, kN, kN);
  references.hold(kX, 1, +1);
  references.hold(kX, kA, +1, 1);
  references.export_to(kX, kA, 1);
  references.peer_hold(kA, kX, kN, -1);
  EXPECT_EQ(references.total_holds(), 1) << "kN counts kA";
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
}

// The sender kM passes a ref of kA's, reconnects under another index, has lost kA meanwhile, and
// passes the ref on as its own. The owner's message about the first pass must settle that pass,
// and not a later pass of this node. Otherwise kM counts this node for ever.
TEST_F(ReferencesBetweenNodes, WhatTheOwnerSaysOfADeadSendersPassEndsItAlsoWhenThatOneStandsIn) {
  constexpr ProcessIndex kAgain = 103;
  references.add_node(kAgain);
  arrive(kX, kM);
  let_go(kX);
  references.node_died(kM, death());
  references.import_from(kX, kAgain, kAgain);
  references.hold(kX, 1, +1);
  references.peer_hold(kA, kX, kAgain, -1);  // about the ref that kM passed on
  let_go(kX);
  arrive(kX, kAgain);
  out.take();
  references.peer_hold(kA, kX, kAgain, -1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kAgain, kX, kA, -1}}));
}

// The link between owner and receiver breaks off, so the owner never learns of the receiver. The
// sender must then be told by the receiver, else it keeps the object for ever.
TEST_F(ReferencesBetweenNodes, WhoPassedItOnIsToldWhenTheOwnerIsLostToUs) {
  references.import_from(kX, kA, kM);
  references.import_from(kX, kA, kN);
  references.node_died(kN, death());
  out.take();
  references.node_died(kA, death());
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kA, -1}}));
  references.import_from(kY, kA, kM);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kY, kA, -1}}));
}

// A node that gets a ref whose owner this node has lost may take this node for the owner.
TEST_F(ReferencesBetweenNodes, WhoTakesUsForTheOwnerThatWeHaveLostLeavesNothing) {
  for (const ObjectId id : {kX, kY}) arrive(id);
  references.node_died(kA, death());
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  let_go(kX);
  EXPECT_EQ(references.size(), 1u);
  references.peer_hold(kN, kX, kN, -1);
  EXPECT_EQ(references.total_holds(), 1) << "its release came after ours";
  out.take();
  references.peer_hold(kN, kY, kM, +1);
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kN, kY, kM, -1}})) << "so that it relieves kM";
  EXPECT_EQ(references.total_holds(), 1);
  let_go(kY);
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, NorDoesWhoHasItFromThatOne) {
  arrive(kX);
  references.node_died(kA, death());
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
  out.take();
  references.peer_hold(kM, kX, kN, +1);  // kN has passed it on in this node's name
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kM, kX, kN, -1}})) << "so that it relieves kN";
  references.peer_hold(kN, kX, kN, -1);
  references.peer_hold(kM, kX, kM, -1);
  settle();
  EXPECT_EQ(references.size(), 0u);
}

// The table remembers the released ref for kN alone. kM's release, after kN's death, must still
// find no count.
TEST_F(ReferencesBetweenNodes, NorDoesWhoHasItFromThatOneWhenThatOneDies) {
  arrive(kX);
  references.node_died(kA, death());
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  let_go(kX);
  references.peer_hold(kM, kX, kN, +1);
  references.node_died(kN, death());
  references.peer_hold(kM, kX, kM, -1);
  settle();
  EXPECT_EQ(references.size(), 0u);
  EXPECT_EQ(references.orphans(), 1u);
  references.node_died(kM, death());
  EXPECT_EQ(references.orphans(), 0u);
}

// The ref comes back from kN after this node released it, and goes to kN again.
TEST_F(ReferencesBetweenNodes, NorDoesWhoSendsItBackWhenWeHaveLetGoAndGetsItAgain) {
  arrive(kX);
  references.node_died(kA, death());
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  let_go(kX);
  references.import_from(kX, kSelf, kN);
  references.hold(kX, 1, +1);
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  EXPECT_EQ(references.total_holds(), 1) << "its own";
  references.peer_hold(kN, kX, kN, -1);
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, ManyOfThoseCostACountNoMoreThanFew) {
  constexpr std::uint64_t kLost = 30'000, kCounts = 4'000;
  for (std::uint64_t n = 0; n < kLost; ++n) arrive({9, n});
  references.node_died(kA, death());
  for (std::uint64_t n = 0; n < kLost; ++n) {
    references.hold({9, n}, kN, +1, 1);
    references.export_to({9, n}, kN, 1);
    references.hold({9, n}, 1, -1);
  }
  settle();
  const std::clock_t before = std::clock();
  for (std::uint64_t n = 0; n < kCounts; ++n) references.peer_hold(kM, {10, n}, kM, +1);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 5) << "of this process, not of the machine";
  EXPECT_EQ(references.total_holds(), std::int64_t{kCounts});
}

// This node owned kX, lost the node of its holder, and released it. From there the ref came to
// kN, and back to this node.
TEST_F(ReferencesBetweenNodes, NorWhoCountedHereBeforeItBecameAnothers) {
  references.peer_hold(kN, kX, kM, +1);
  arrive(kX);
  references.peer_hold(kN, kX, kN, -1);
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
}

// As above, but kN's message arrives while this node has the ref from another node. kN's release
// comes after this node's own.
TEST_F(ReferencesBetweenNodes, NorWhoCountedHereWhileItWasAnothers) {
  arrive(kX, kA);
  references.peer_hold(kN, kX, kM, +1);
  let_go(kX);
  references.peer_hold(kN, kX, kN, -1);
  settle();
  EXPECT_EQ(references.size(), 0u);
  EXPECT_EQ(references.orphans(), 1u);
  references.node_died(kN, death());
  EXPECT_EQ(references.orphans(), 0u);
}

TEST_F(ReferencesBetweenNodes, AnOwnerThatComesBackUnderAnotherIndex) {
  constexpr ProcessIndex kAgain = 103;
  references.add_node(kAgain);
  arrive(kX);
  references.node_died(kA, death());
  references.import_from(kX, kAgain, kM);
  references.await(kX, 1);
  EXPECT_EQ(out.answers.back().value.kind, Kind::error) << "lost as long as somebody has it";
  EXPECT_EQ(out.take(), (std::vector<Hold>{{kAgain, kX, kM, +1}, {kAgain, kX, kSelf, -1}}));
  let_go(kX);
  references.import_from(kX, kAgain, kAgain);
  EXPECT_EQ(references.owner_of(kX), kAgain);
}

TEST_F(ReferencesBetweenNodes, AnOwnerThatHasCountedWhomWeDoNotKnow) {
  arrive(kX);
  references.peer_hold(kA, kX, 99, -1);
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesBetweenNodes, AReceiversDeathRelievesWhoPassedItOn) {
  arrive(kX);
  references.hold(kX, kN, +1, 1);
  references.export_to(kX, kN, 1);
  references.node_died(kN, death());
  references.peer_hold(kA, kX, kN, -1);  // the owner had read the pass before the receiver's death
  let_go(kX);
  EXPECT_EQ(references.size(), 0u);
}

// --- lost values

wire::Value forward(ObjectId to) {
  wire::Value value = value_of(Kind::forwarded);
  value.forward = to;
  return value;
}
using Questions = std::vector<Recorder::Question>;

TEST_F(ReferencesBetweenNodes, TheMakerIsAskedOnceHoweverManyMissAValue) {
  references.promote(1, kX, forward(kY), {});
  references.hold(kX, 2, +1);
  references.hold(kX, kN, +1);
  references.rebuild(kX, 2, kY);
  references.rebuild(kX, kN, kY);
  references.await(kX, 2);
  EXPECT_EQ(out.rebuilds, (Questions{{1, kX, kY}}));
  EXPECT_TRUE(out.answers.empty());
  references.rebuilt(1, kX, forward(kZ), {});
  ASSERT_EQ(out.answers.size(), 3u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.forward, kZ);
  // A process that asks late is answered at once. A process that misses the new object makes the
  // table ask again.
  references.rebuild(kX, 2, kY);
  EXPECT_EQ(out.answers.size(), 4u);
  references.rebuild(kX, 2, kZ);
  EXPECT_EQ(out.rebuilds.size(), 2u);
}

TEST_F(ReferencesBetweenNodes, OnlyWhoMadeItSaysWhatItsValueIsNow) {
  references.promote(1, kX, forward(kY), {});
  references.rebuilt(2, kX, forward(kZ), {});
  references.await(kX, 1);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.forward, kY);
}

TEST_F(ReferencesBetweenNodes, ADeadMakerCannotComputeAgain) {
  references.promote(1, kX, forward(kY), {});
  references.promote(1, kZ, forward(kY), {});
  references.hold(kX, 2, +1);
  references.hold(kZ, 2, +1);
  references.rebuild(kX, 2, kY);
  references.process_died(1, death());
  references.rebuild(kZ, 2, kY);
  ASSERT_EQ(out.answers.size(), 2u);
  for (const auto& answer : out.answers) {
    EXPECT_EQ(answer.value.kind, Kind::error);
    EXPECT_EQ(answer.value.error->code, Code::object_lost);
  }
}

TEST_F(ReferencesBetweenNodes, ALostValueOfAnotherNodesObjectIsAskedOfItsOwner) {
  arrive(kX);
  references.await(kX, 1);
  references.ready_from_owner(kA, kX, forward(kY), {});
  out.answers.clear();
  references.rebuild(kX, 1, kY);
  references.rebuild(kX, 1, kY);
  EXPECT_EQ(out.peer_rebuilds, (Questions{{kA, kX, kY}}));
  references.ready_from_owner(kA, kX, forward(kZ), {});
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[0].value.forward, kZ);
  references.rebuild(kX, 1, kZ);
  references.node_died(kA, death());
  ASSERT_EQ(out.answers.size(), 3u) << "its owner's death answers";
  EXPECT_EQ(out.answers[2].value.kind, Kind::error);
}

TEST_F(ReferencesBetweenNodes, BytesThatAnOwnerHasLostItIsToComputeAgain) {
  arrive(kX);
  references.await(kX, 1);
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  references.pull_failed(kX, Error(Code::object_lost, "its disk is bad"));
  EXPECT_TRUE(out.answers.empty()) << "who asks now would take this for the value";
  EXPECT_EQ(out.peer_rebuilds, (Questions{{kA, kX, kX}}));
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  references.pulled(kX, location(7));
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.location.offset, 7u);
}

TEST_F(ReferencesBetweenNodes, LostBytesThatNobodyWantsAnyMoreAreNotComputedAgain) {
  arrive(kX);
  references.await(kX, 1);
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  let_go(kX);
  references.pull_failed(kX, Error(Code::object_lost, "its disk is bad"));
  EXPECT_TRUE(out.peer_rebuilds.empty());
}

TEST_F(ReferencesBetweenNodes, ACopyThatHasGoneBadIsDropped) {
  wire::Value shared = value_of(Kind::shared);
  shared.location = location(7);
  references.promote(1, kX, shared, {});
  references.hold(kX, 2, +1);
  references.rebuild(kX, 2, kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  shared.location = location(8);
  references.rebuilt(1, kX, shared, {});
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.location.offset, 8u);
}

TEST_F(ReferencesBetweenNodes, WhoMissesOldBytesIsToldOfTheGoodOnes) {
  std::uint64_t bad = 7;
  references.ask_of_bytes([&bad](const wire::Location& at) { return at.offset != bad; });
  wire::Value shared = value_of(Kind::shared);
  shared.location = location(7);
  references.promote(1, kX, shared, {});
  for (const ProcessIndex holder : {ProcessIndex{2}, ProcessIndex{3}, kN})
    references.hold(kX, holder, +1);
  references.rebuild(kX, 2, kX);
  shared.location = location(8);
  references.rebuilt(1, kX, shared, {});
  references.process_died(1, death());
  references.rebuild(kX, 3, kX);
  references.rebuild(kX, kN, kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(out.rebuilds.size(), 1u);
  ASSERT_EQ(out.answers.size(), 3u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.location.offset, 8u);
  bad = 8;
  references.rebuild(kX, 2, kX);
  EXPECT_EQ(out.answers.back().value.kind, Kind::error) << "who made it is dead";
}

TEST_F(ReferencesBetweenNodes, WhoPutAnObjectThatCannotBeReadNowMayTryAgain) {
  wire::Value shared = value_of(Kind::shared);
  shared.location = location(7);
  references.promote(1, kX, shared, {});
  references.rebuild(kX, 1, kX);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, Kind::error);
  EXPECT_TRUE(out.rebuilds.empty()) << "it would have made it, if it could";
  EXPECT_TRUE(out.freed.empty());
  references.await(kX, 1);
  EXPECT_EQ(out.answers.back().value.location.offset, 7u);
}

struct ReferencesTakenForTheOwner : ReferencesBetweenNodes {
  std::uint64_t bad = 0;
  ReferencesTakenForTheOwner() {
    references.ask_of_bytes([this](const wire::Location& at) { return at.offset != bad; });
    arrive(kX);
    references.await(kX, 1);
    references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
    out.answers.clear();
  }
};

TEST_F(ReferencesTakenForTheOwner, TellWhoMissedTheBytesOfThoseThatAreHere) {
  references.pulled(kX, location(7));
  references.node_died(kA, death());
  out.answers.clear();
  references.rebuild(kX, kM, kX);  // its pull was refused
  ASSERT_EQ(out.answers.size(), 1u) << "it would wait for ever";
  EXPECT_EQ(out.answers[0].process, kM);
  EXPECT_EQ(out.answers[0].value.location.offset, 7u);
  bad = 7;
  references.rebuild(kX, kM, kX);
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.kind, Kind::error) << "who could make it is dead";
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
}

TEST_F(ReferencesTakenForTheOwner, FetchWhatIsMissed) {
  references.rebuild(kX, kM, kX);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_TRUE(out.peer_rebuilds.empty()) << "the owner's bytes may be good";
  references.pulled(kX, location(7));
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].process, kM);
  EXPECT_EQ(out.answers[1].value.location.offset, 7u);
}

TEST_F(ReferencesTakenForTheOwner, ByTheOneThatTheyTakeForTheOwnerSayThatItIsLost) {
  references.rebuild(kX, kA, kX);
  arrive(kY);
  references.await(kY, 1);
  references.await(kY, kA, false);
  ASSERT_EQ(out.answers.size(), 2u) << "each would wait for the other";
  for (const auto& answer : out.answers) {
    EXPECT_EQ(answer.process, kA);
    EXPECT_EQ(answer.value.kind, Kind::error);
  }
}

struct ReferencesBadCopy : ReferencesBetweenNodes {
  /// Makes another node's object whose fetched bytes are reported as bad by two processes here.
  void find_bad() {
    arrive(kX);
    references.await(kX, 1);
    references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
    references.pulled(kX, location(7));
    out.answers.clear();
    out.pulls.clear();
    references.rebuild(kX, 1, kX);
    references.rebuild(kX, 2, kX);
    EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
    EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX}) << "the owner's may be good";
    EXPECT_TRUE(out.peer_rebuilds.empty());
    EXPECT_TRUE(out.answers.empty());
  }
};

TEST_F(ReferencesBadCopy, IsFetchedOnceMore) {
  find_bad();
  references.pulled(kX, location(8));
  ASSERT_EQ(out.answers.size(), 2u);
  for (const auto& answer : out.answers) EXPECT_EQ(answer.value.location.offset, 8u);
  EXPECT_TRUE(out.peer_rebuilds.empty());
}

TEST_F(ReferencesBadCopy, IsComputedAgainWhenTheOwnersIsGoneToo) {
  find_bad();
  references.pull_failed(kX, Error(Code::object_lost, "a damaged file"));
  EXPECT_TRUE(out.answers.empty());
  EXPECT_EQ(out.peer_rebuilds, (Questions{{kA, kX, kX}}));
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  references.pulled(kX, location(9));
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.location.offset, 9u);
}

TEST_F(ReferencesBadCopy, EndsWithItsOwner) {
  find_bad();
  references.node_died(kA, death());
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[0].value.kind, Kind::error);
}

TEST_F(ReferencesBetweenNodes, WhoKeepsLineageHearsOfTheEnd) {
  references.promote(1, kX, forward(kY), {});
  references.hold(kX, 2, +1);
  references.keeps_lineage(1, kX);
  references.hold(kX, 1, -1);
  settle();
  EXPECT_TRUE(out.over.empty());
  references.hold(kX, 2, -1);
  settle();
  EXPECT_EQ(out.over, std::vector<ObjectId>{kX});
  references.keeps_lineage(1, kX);  // the call is no longer kept
  EXPECT_EQ(out.over.size(), 2u);
}

}  // namespace
}  // namespace troupe::agent::reference_table_nodes_test
