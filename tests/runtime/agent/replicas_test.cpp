// Tests replicas at other nodes: which nodes are asked, what the process of the put is told, how
// a copy is looked for, and when a copy without an owner ends.
#include "troupe/runtime/agent/replicas.hpp"

#include "troupe/runtime/agent/pull_priority.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <string>
#include <vector>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

constexpr ObjectId kObject{1, 5 | wire::kHasCopies};
constexpr NodeId kHere{9, 1}, kA{9, 2}, kB{9, 3}, kC{9, 4};
constexpr ProcessIndex kProcess = 1;

struct ReplicasTest : testing::Test, ReferenceTable::Out, Replicas::Out {
  explicit ReplicasTest(ReplicasOptions options = {}) : replicas(references, *this, options) {
    replicas.start(kHere);
    for (const NodeId node : {kA, kB, kC}) references.add_node(ProcessIndex::of(node.low + 100));
  }
  // ReferenceTable::Out
  void ready(ProcessIndex to, ObjectId object, const wire::Value& value, BlobView) override {
    if (to == kSelf) return replicas.arrived(object, value);
    answers.push_back(value.kind);
  }
  void free(const wire::Location&) override { ++frees; }
  void unreferenced(ActorId) override {}
  void copies_over(ObjectId object) override { replicas.over(object); }
  void met(ObjectId object) override { replicas.met(object); }
  void peer_await(ProcessIndex owner, ObjectId object) override {
    if (references.is_dead(owner)) replicas.look(owner, object);
  }
  void pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) override {
    if (references.is_dead(owner)) replicas.fetch(owner, object, bytes);
  }
  // Replicas::Out
  void send(NodeId to, const wire::PeerMessage& message) override {
    sent.emplace_back(to, message);
  }
  ProcessIndex index_of(NodeId node) override { return ProcessIndex::of(node.low + 100); }
  std::vector<Replicas::Candidate> other_nodes() override { return nodes; }
  void replicated(ProcessIndex, const wire::Replicated& answer) override { told.push_back(answer); }
  void found_here(ProcessIndex, ObjectId) override { ++here; }
  void lend(ObjectId) override { ++here; }
  void pull_copy(NodeId from, ObjectId copy, std::uint64_t) override {
    pulls.emplace_back(from, copy);
  }
  void not_found(ProcessIndex, ObjectId, std::optional<std::uint64_t>) override { ++missing; }

  void put() {
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    references.promote(kProcess, kObject, value, {});
  }
  void want(std::uint32_t copies, Duration timeout = 10s) {
    put();
    replicas.want(kProcess, {7, kObject, copies, static_cast<std::uint64_t>(timeout.count())}, now);
  }
  template <class Message>
  std::vector<NodeId> to_whom() {
    std::vector<NodeId> nodes;
    for (const auto& [to, message] : sent)
      if (std::holds_alternative<Message>(message)) nodes.push_back(to);
    sent.clear();
    return nodes;
  }
  void later(Duration by) {
    now += by;
    replicas.carry_out(now);
  }
  void lose(NodeId node) {
    references.node_died(index_of(node), Error(Code::unavailable, "it died"));
    std::erase_if(nodes, [&](const auto& one) { return one.node == node; });
    replicas.node_died(node, now);
  }
  /// Makes this node a keeper: kA owns the object, and the value is here.
  void keep(std::uint32_t copies = 2) {
    replicas.on_keep(kA, {kObject, true, copies}, now);
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    references.ready_from_owner(index_of(kA), wire::copy_of(kObject), value, {});
    later(0s);
  }

  ReferenceTable references{*this};
  Replicas replicas;
  std::vector<Replicas::Candidate> nodes{{kA, 10}, {kB, 30}, {kC, 20}};
  Time now{100s};
  std::vector<std::pair<NodeId, wire::PeerMessage>> sent;
  std::vector<wire::Replicated> told;
  std::vector<wire::Value::Kind> answers;
  std::vector<std::pair<NodeId, ObjectId>> pulls;
  int frees = 0, here = 0, missing = 0;
};

TEST_F(ReplicasTest, TheNodeWithMostRoomKeepsItAndWhoPutItIsToldThen) {
  want(2);
  EXPECT_EQ(to_whom<wire::PeerKeep>(), std::vector{kB});
  EXPECT_TRUE(told.empty());
  replicas.on_kept(kB, {kObject, {}});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].request, 7u);
  EXPECT_EQ(told[0].error, nullptr);
}

TEST_F(ReplicasTest, MoreCopiesThanNodesAreAnError) {
  want(5);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].error->code, Code::infeasible);
  EXPECT_NE(told[0].error->message.find("the cluster has 4"), std::string::npos);
  EXPECT_EQ(replicas.owned(), 0u);
}

TEST_F(ReplicasTest, WhoRefusesOrDiesIsReplacedAndTheLastRefusalIsTold) {
  want(2);
  const auto full = Error(Code::out_of_memory, "full").shared_info();
  replicas.on_kept(kB, {kObject, full});
  lose(kC);
  EXPECT_EQ(to_whom<wire::PeerKeep>(), (std::vector{kB, kC, kA}));
  EXPECT_TRUE(told.empty());
  replicas.on_kept(kA, {kObject, full});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].error->code, Code::out_of_memory);
  EXPECT_EQ(told[0].error->message, "1 of 2 nodes could have a copy: full");
}

TEST_F(ReplicasTest, WhenTheTimeIsOverNoCopyIsKept) {
  want(3, 1s);
  replicas.on_kept(kB, {kObject, {}});
  sent.clear();
  EXPECT_EQ(replicas.next_deadline(), now + 1s);
  later(1s);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].error->code, Code::unavailable);
  EXPECT_EQ(to_whom<wire::PeerKeep>().size(), 2u) << "both are told to let go";
  replicas.on_kept(kC, {kObject, {}});
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(ReplicasTest, ALostCopyIsMadeAgainAlsoWhenANodeJoinsLater) {
  nodes = {{kB, 30}};
  want(2);
  replicas.on_kept(kB, {kObject, {}});
  sent.clear();
  lose(kB);
  EXPECT_TRUE(to_whom<wire::PeerKeep>().empty());
  nodes = {{kC, 1}};
  replicas.nodes_changed();
  EXPECT_EQ(to_whom<wire::PeerKeep>(), std::vector{kC});
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(ReplicasTest, CopiesGoWithTheLastRef) {
  want(3);
  replicas.on_kept(kB, {kObject, {}});
  replicas.on_kept(kC, {kObject, {}});
  sent.clear();
  references.hold(kObject, kProcess, -1);
  while (references.settle() && references.knows(kObject)) {
  }
  later(0s);
  EXPECT_EQ(to_whom<wire::PeerKeep>(), (std::vector{kB, kC}));
  EXPECT_EQ(replicas.owned(), 0u);
}

TEST_F(ReplicasTest, ASearchAsksAllAgainAndEndsInTenSeconds) {
  references.import_from(kObject, index_of(kA), index_of(kA));
  references.hold(kObject, kProcess, +1);
  lose(kA);
  references.await(kObject, kProcess);
  later(0s);
  EXPECT_EQ(to_whom<wire::PeerFind>(), (std::vector{kB, kC}));
  EXPECT_FALSE(replicas.answered(kB, kObject, false));
  lose(kC);
  later(1s);
  EXPECT_EQ(to_whom<wire::PeerFind>(), std::vector{kB});
  EXPECT_FALSE(replicas.answered(kB, kObject, false));
  later(9s);
  EXPECT_EQ(missing, 1);
  EXPECT_EQ(replicas.searches(), 0u);
}

TEST_F(ReplicasTest, BytesComeFromWhoHasACopyOrFromTheNext) {
  replicas.fetch(index_of(kA), kObject, 1000);
  later(0s);
  EXPECT_FALSE(replicas.answered(kB, kObject, true));
  EXPECT_EQ(pulls, (std::vector{std::pair(kB, wire::copy_of(kObject))}));
  EXPECT_FALSE(replicas.pulled(wire::copy_of(kObject), kC));
  EXPECT_TRUE(
      replicas.pull_failed(wire::copy_of(kObject), kB, Error(Code::unavailable, "it died")));
  later(1s);
  EXPECT_FALSE(replicas.answered(kC, kObject, true));
  EXPECT_TRUE(replicas.pulled(wire::copy_of(kObject), kC));
  EXPECT_EQ(replicas.searches(), 0u);
}

TEST_F(ReplicasTest, WhoGetsARefAnewWhileItsBytesComeAsksForItsValueAfterThem) {
  const ObjectId copy = wire::copy_of(kObject);
  for (const bool come : {true, false}) {
    replicas.fetch(index_of(kA), kObject, 1000);
    later(0s);
    EXPECT_FALSE(replicas.answered(kB, kObject, true));
    replicas.look(index_of(kA), kObject);
    sent.clear();
    if (come)
      EXPECT_TRUE(replicas.pulled(copy, kB));
    else
      EXPECT_TRUE(replicas.pull_failed(copy, kB, Error(Code::out_of_memory, "no room")));
    later(0s);
    EXPECT_EQ(to_whom<wire::PeerFind>(), (std::vector{kA, kB, kC}));
    EXPECT_EQ(replicas.answered(kB, kObject, true), index_of(kA)) << "with its value";
    EXPECT_EQ(replicas.searches(), 0u);
  }
}

TEST_F(ReplicasTest, ACopyWithoutOwnerEndsWhenAllSaidTwiceThatNobodyHoldsIt) {
  keep();
  EXPECT_EQ(to_whom<wire::PeerKept>(), std::vector{kA});
  lose(kA);
  for (int round = 1; round <= 3; ++round) {
    EXPECT_EQ(replicas.kept(), 1u) << round;
    later(5s);
    const auto number = static_cast<std::uint64_t>(round);
    EXPECT_EQ(to_whom<wire::PeerHeld>(), (std::vector{kB, kC})) << round;
    replicas.on_unused(kB, {number, {kObject}}, now);
    replicas.on_unused(kC, {number, round < 3 ? std::vector<ObjectId>{} : std::vector{kObject}},
                       now);
  }
  EXPECT_EQ(replicas.kept(), 0u);
}

TEST_F(ReplicasTest, AnOwnerThatWasLostMeanwhileHearsNoRefusalOfTheTalkBefore) {
  replicas.on_keep(kA, {kObject, true, 2}, now);
  wire::Value refusal;
  refusal.kind = wire::Value::Kind::error;
  refusal.error = Error(Code::object_lost, "it was freed").shared_info();
  references.ready_from_owner(index_of(kA), wire::copy_of(kObject), refusal, {});
  lose(kA);
  later(0s);
  EXPECT_EQ(replicas.kept(), 0u);
  EXPECT_TRUE(to_whom<wire::PeerKept>().empty()) << "it may have asked anew";
}

TEST_F(ReplicasTest, WhoHadARecordBetweenTwoQuestionsSaysNothing) {
  keep();
  lose(kA);
  later(5s);
  ASSERT_FALSE(sent.empty());
  const auto question = std::get<wire::PeerHeld>(sent.back().second);
  const auto named = [&] {
    sent.clear();
    replicas.on_held(kB, question);
    return std::get<wire::PeerUnused>(sent.back().second).objects.size();
  };
  EXPECT_EQ(named(), 0u) << "the first question";
  EXPECT_EQ(named(), 1u);
  references.import_from(kObject, index_of(kA), index_of(kB));
  while (references.settle() && references.knows(kObject)) {
  }
  ASSERT_FALSE(references.knows(kObject));
  EXPECT_EQ(named(), 0u) << "somebody here had it meanwhile";
  EXPECT_EQ(named(), 1u);
  nodes.pop_back();
  EXPECT_EQ(named(), 0u) << "who asks knows other nodes";
}

struct OrphanTest : ReplicasTest {
  /// This node and kB keep two of three copies. Their owner kA is lost.
  void SetUp() override {
    keep(3);
    lose(kA);
    replicas.on_keeping(kB, {{kObject}});
    sent.clear();
  }
  std::vector<NodeId> asked() { return to_whom<wire::PeerKeep>(); }
};

TEST_F(OrphanTest, TheFirstOfThoseThatKeepOneAsksForAnotherWhenAllHaveSpoken) {
  later(1s);
  EXPECT_TRUE(asked().empty()) << "others may keep one, too";
  later(1s);
  ASSERT_FALSE(sent.empty());
  const auto keep = std::get<wire::PeerKeep>(sent.back().second);
  EXPECT_TRUE(keep.keep && keep.orphan);
  EXPECT_EQ(keep.copies, 3u);
  EXPECT_EQ(asked(), std::vector{kC});
  replicas.on_kept(kC, {kObject, {}});
  later(60s);
  EXPECT_TRUE(asked().empty()) << "there are three";
  EXPECT_EQ(replicas.repairing(), 0u);
}

TEST_F(OrphanTest, WhoJoinsThoseThatKeepOneIsTold) {
  const auto told = [&] { return to_whom<wire::PeerKeeping>(); };
  replicas.on_keeping(kC, {{kObject, {8, 8}}});
  EXPECT_TRUE(told().empty()) << "all are, before the next pass is over";
  later(0s);
  EXPECT_EQ(told(), (std::vector{kB, kC}));
  lose(kC);
  nodes.push_back({kC, 20});
  replicas.on_keeping(kC, {{kObject, {8, 8}}});
  EXPECT_EQ(told(), std::vector{kC});
  replicas.on_keeping(kC, {{kObject}});
  EXPECT_TRUE(told().empty()) << "once";
}

TEST_F(OrphanTest, AnotherIsAskedWhenOneRefusesOrDiesAndWhenOneJoins) {
  later(2s);
  EXPECT_EQ(asked(), std::vector{kC});
  replicas.on_kept(kC, {kObject, Error(Code::out_of_memory, "full").shared_info()});
  later(0s);
  EXPECT_TRUE(asked().empty()) << "nobody is left";
  later(4s);
  EXPECT_EQ(asked(), std::vector{kC}) << "again";
  lose(kC);
  EXPECT_EQ(replicas.repairing(), 0u);
  later(2s);
  EXPECT_TRUE(asked().empty());
  nodes.push_back({kA, 10});
  replicas.nodes_changed();
  later(0s);
  EXPECT_EQ(asked(), std::vector{kA});
}

TEST_F(OrphanTest, TheNextOfThoseThatKeepOneTakesOverWhenTheFirstIsLost) {
  const NodeId first{9, 0};
  replicas.on_keeping(first, {{kObject}});
  lose(kB);
  later(2s);
  EXPECT_TRUE(asked().empty()) << "there are too few, but another asks";
  lose(first);
  later(2s);
  EXPECT_EQ(asked(), std::vector{kC});
}

TEST_F(ReplicasTest, ManyCopiesAreMadeAnewAFewAtATime) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const ObjectId object{1, (20 + i) | wire::kHasCopies};
    replicas.on_keep(kA, {object, true}, now);
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    references.ready_from_owner(index_of(kA), wire::copy_of(object), value, {});
  }
  later(0s);
  lose(kA);
  sent.clear();
  later(0s);
  EXPECT_EQ(to_whom<wire::PeerKeeping>().size(), nodes.size()) << "all in one message";
  later(2s);
  std::size_t made = 0;
  for (;;) {
    EXPECT_LE(replicas.repairing(), 4u);
    const auto messages = std::exchange(sent, {});
    if (messages.empty()) break;
    for (const auto& [to, message] : messages)
      if (const auto* keep = std::get_if<wire::PeerKeep>(&message)) {
        ++made;
        replicas.on_kept(to, {keep->object, {}});
      }
    later(0s);
  }
  EXPECT_EQ(made, 10u);
}

TEST_F(ReplicasTest, WhatIsKeptForAnotherKeeperComesFromItAndIsAnOrphan) {
  replicas.on_keep(kB, {kObject, true, 2, true}, now);
  EXPECT_TRUE(replicas.is_coming(kObject));
  replicas.fetch(index_of(kA), kObject, 1000);
  later(0s);
  EXPECT_TRUE(to_whom<wire::PeerFind>().empty()) << "it is coming";
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  references.ready_from_owner(index_of(kB), wire::copy_of(kObject), value, {});
  later(0s);
  EXPECT_EQ(to_whom<wire::PeerKept>(), std::vector{kB});
  later(1s);
  EXPECT_EQ(here, 1);
  EXPECT_FALSE(to_whom<wire::PeerHeld>().empty()) << "it asks whether anybody holds it";
  lose(kB);
  later(2s);
  EXPECT_FALSE(to_whom<wire::PeerKeep>().empty()) << "and asks for another in its turn";
}

TEST_F(ReplicasTest, BytesThatSomebodyOpensComeBeforeACopysAndThoseOfOneMadeAnewLast) {
  const ObjectId copy = wire::copy_of(kObject);
  EXPECT_EQ(pull_priority(replicas, kObject), Priority::get);
  EXPECT_EQ(pull_priority(replicas, copy), Priority::wait);
  replicas.on_keep(kA, {kObject, true, 2}, now);
  EXPECT_EQ(pull_priority(replicas, copy), Priority::wait) << "whoever put it waits";
  const ObjectId other{1, 6 | wire::kHasCopies};
  replicas.on_keep(kB, {other, true, 2, true}, now);
  EXPECT_EQ(pull_priority(replicas, wire::copy_of(other)), Priority::prefetch);
  EXPECT_EQ(pull_priority(replicas, other), Priority::get) << "somebody opens it meanwhile";
}

TEST_F(ReplicasTest, WhoOwnsOrFetchesWhatItIsToKeepSaysSo) {
  want(2);
  sent.clear();
  replicas.on_keep(kB, {kObject, true, 2, true}, now);
  EXPECT_EQ(std::get<wire::PeerKept>(sent.back().second).error, nullptr) << "the owner";
  const ObjectId other{1, 6 | wire::kHasCopies};
  replicas.fetch(index_of(kA), other, 1000);
  replicas.on_keep(kB, {other, true, 2, true}, now);
  EXPECT_NE(std::get<wire::PeerKept>(sent.back().second).error, nullptr);
  EXPECT_EQ(replicas.kept(), 0u);
}

struct NamedReplicasTest : ReplicasTest {
  NamedReplicasTest() : ReplicasTest({.names = true}) {}
  void ask_name_of(ObjectId object) override {
    EXPECT_EQ(object, kObject);
    ++asked;
  }
  /// Runs two rounds of questions in which no node reports a record of the object.
  void nobody_holds_it() {
    for (int round = 0; round < 2; ++round) {
      later(5s);
      for (const auto& [to, message] : std::vector(sent))
        if (const auto* held = std::get_if<wire::PeerHeld>(&message))
          replicas.on_unused(to, {held->round, held->objects}, now);
      sent.clear();
    }
  }
  int asked = 0;
};

TEST_F(NamedReplicasTest, ACopyWithoutOwnerStaysAsLongAsTheObjectHasAName) {
  keep();
  lose(kA);
  sent.clear();
  nobody_holds_it();
  EXPECT_EQ(asked, 2) << "again, since the answer may be lost";
  EXPECT_EQ(replicas.kept(), 1u) << "control has not said that it has none";
  replicas.on_name(kObject, true, now);
  nobody_holds_it();
  EXPECT_EQ(replicas.kept(), 1u);
  EXPECT_LE(replicas.next_deadline(), now + 4s) << "it may be forgotten";
  replicas.on_name(kObject, false, now);
  lose(kB);  // kB may have given the object a name before its death
  nobody_holds_it();
  EXPECT_EQ(replicas.kept(), 1u);
  replicas.on_name(kObject, false, now);
  asked = 0;
  nobody_holds_it();
  EXPECT_EQ(replicas.kept(), 0u);
  EXPECT_EQ(asked, 0) << "it was said";
}

TEST_F(NamedReplicasTest, ControlIsNotAskedWhileTheOwnerLives) {
  keep();
  later(5s);
  replicas.on_name(kObject, false, now);
  lose(kA);
  later(5s);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace troupe::agent
