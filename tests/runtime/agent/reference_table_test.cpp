// Tests ReferenceTable. REF-1: nothing with a holder is freed. REF-2: a dead process holds
// nothing. REF-3: every Await is answered once. tests/simulation/ownership_test.cpp tests the
// whole protocol.
#include "troupe/runtime/agent/reference_table.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::reference_table_test {
namespace {

const ObjectId kX{1, 1}, kY{1, 2}, kZ{1, 3};
const ActorId kActor{9, 9};

struct Recorder final : ReferenceTable::Out {
  struct Answer {
    ProcessIndex process;
    ObjectId object;
    wire::Value value;
    Blob payload;
  };
  std::vector<Answer> answers;
  std::vector<std::uint64_t> freed;
  std::vector<ActorId> unused;
  void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
             BlobView payload) override {
    answers.push_back({process, object, value, Blob(payload.begin(), payload.end())});
  }
  void free(const wire::Location& location) override { freed.push_back(location.offset); }
  void unreferenced(ActorId actor) override { unused.push_back(actor); }
};

wire::Value shared(std::uint64_t offset, std::vector<ObjectId> refs = {}) {
  wire::Value value;
  value.kind = wire::Value::Kind::shared;
  value.location.offset = offset;
  value.refs = std::move(refs);
  return value;
}

struct References : testing::Test {
  Recorder out;
  ReferenceTable references{out};
  const Error died{Code::worker_died, "killed"};
  void settle(int passes = 8) {
    while (passes-- > 0 && references.settle()) {
    }
    EXPECT_FALSE(references.settle()) << "the agent would never sleep";
  }
};

TEST_F(References, KnowsWhoseMakingAnObjectIs) {
  EXPECT_FALSE(references.is_made(kX));
  EXPECT_FALSE(references.is_anothers(kX, 2)) << "nobody is known to make it";
  references.hold(kX, 2, +1);
  EXPECT_FALSE(references.is_made(kX)) << "it is merely counted";
  references.promote(1, kX, {}, {});
  EXPECT_TRUE(references.is_made(kX));
  EXPECT_TRUE(references.is_anothers(kX, 2));
  EXPECT_FALSE(references.is_anothers(kX, 1));
  references.stands_for(kY, kActor, 1);
  EXPECT_TRUE(references.is_anothers(kY, 1)) << "an actor's lifetime has no value";
  const ProcessIndex node = 50;
  references.add_node(node);
  references.hold(kX, node, +1, 1);
  EXPECT_EQ(references.unsent(1, node, kX), 1);
  EXPECT_EQ(references.unsent(2, node, kX), 0);
  references.export_to(kX, node, 1);
  EXPECT_EQ(references.unsent(1, node, kX), 0) << "it has left";
}

TEST_F(References, AValueIsTakenFromTheOwnersNodeAlone) {
  const ProcessIndex owner = 50, other = 51;
  references.add_node(owner);
  references.add_node(other);
  references.import_from(kX, owner, kSelf);
  references.hold(kX, 1, +1);
  references.await(kX, 1);
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  references.ready_from_owner(other, kX, value, {});
  EXPECT_TRUE(out.answers.empty());
  references.promote(1, kY, value, {});
  references.hold(kY, owner, +1);
  references.peer_hold(other, kY, other, -1);
  references.hold(kY, 1, -1);
  settle();
  EXPECT_TRUE(references.is_made(kY)) << "what the other takes back is its own count";
  references.ready_from_owner(owner, kX, value, {});
  EXPECT_EQ(out.answers.size(), 1u);
}

TEST_F(References, FreedAtTheSecondLookOnly) {
  references.promote(1, kX, shared(7), {});
  EXPECT_FALSE(references.settle());
  references.hold(kX, 1, -1);
  EXPECT_TRUE(references.settle());
  EXPECT_TRUE(out.freed.empty());
  EXPECT_FALSE(references.settle());
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(References, ACountReadLateSavesIt) {
  references.promote(1, kX, shared(7), {});
  references.hold(kX, 1, -1);  // read before the +1 that precedes it
  EXPECT_TRUE(references.settle());
  references.hold(kX, 2, +1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  EXPECT_EQ(references.total_holds(), 1);
}

TEST_F(References, EveryHolderMustBeAtZeroNotTheSum) {
  references.promote(1, kX, shared(7), {});
  references.hold(kX, 2, -1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  references.hold(kX, 2, +1);
  references.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
}

TEST_F(References, TheInnerLivesAsLongAsTheOuter) {
  references.promote(1, kY, shared(8), {});
  references.promote(1, kX, shared(7, {kY}), {});
  references.hold(kY, 1, -1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  references.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, (std::vector<std::uint64_t>{7, 8}));
}

TEST_F(References, AnAnswerCountsWhatIsInside) {
  references.promote(1, kY, shared(8), {});
  references.promote(1, kX, {}, {});
  references.hold(kX, 2, +1);
  references.await(kX, 2);
  EXPECT_TRUE(out.answers.empty());
  references.fulfil(kX, shared(7, {kY}), {});
  references.await(kX, 2);
  EXPECT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(references.total_holds(), 2 + 4) << "of X: 1, 2; of Y: 1, ourselves, twice 2";
}

TEST_F(References, AForwardedValueKeepsItsSource) {
  references.promote(1, kY, shared(8), {});
  wire::Value forwarded;
  forwarded.kind = wire::Value::Kind::forwarded;
  forwarded.forward = kY;
  references.promote(1, kX, forwarded, {});
  references.hold(kY, 1, -1);
  settle();
  EXPECT_EQ(references.size(), 2u);
  references.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{8});
}

TEST_F(References, InlineBytesAreKeptWithoutTheirFrame) {
  Blob frame(32, std::byte{1});
  frame[16] = std::byte{42};
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.payload_offset = 16;
  value.payload_size = 1;
  references.promote(1, kX, value, frame);
  frame.assign(32, std::byte{0});
  references.await(kX, 1);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].payload, Blob(1, std::byte{42}));
  EXPECT_EQ(out.answers[0].value.payload_offset, 0u);
}

TEST_F(References, AnAwaitReadBeforeItsPromoteWaitsOnePass) {
  references.await(kX, 2);
  EXPECT_TRUE(references.settle());
  references.promote(1, kX, shared(7), {});
  settle();
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, wire::Value::Kind::shared);

  references.await(kZ, 2);  // an object that is not known
  settle();
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.error->code, Code::object_lost);
}

TEST_F(References, AnAwaitOfWhatIsFreedIsAnswered) {
  references.promote(1, kX, {}, {});
  references.await(kX, 1);
  references.hold(kX, 1, -1);
  settle();
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, wire::Value::Kind::error);
}

TEST_F(References, TheDeadHoldNothingAndOweAnError) {
  references.promote(1, kX, {}, {});
  references.hold(kX, 2, +1);
  references.await(kX, 2);
  references.process_died(1, died);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.error->code, Code::object_lost);
  EXPECT_EQ(out.answers[0].value.error->cause->message, "killed");
  references.hold(kX, 1, +1);  // of a message that will never be read
  EXPECT_EQ(references.total_holds(), 1);
  references.process_died(2, died);
  settle();
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(References, TheForgottenStayDeadToWhatTheyMade) {
  references.promote(1, kX, {}, {});
  references.promote(2, kY, shared(7), {});
  references.await(kX, 2);
  for (const ProcessIndex process : {ProcessIndex{2}, ProcessIndex{1}}) {
    references.hold(kY, 3, +1);
    references.process_died(process, died);
    EXPECT_TRUE(references.is_dead(process));
    references.forget(process);
    EXPECT_FALSE(references.is_dead(process)) << "it would be kept for ever";
  }
  EXPECT_TRUE(out.answers.empty()) << "nobody is there who waits";
  EXPECT_EQ(references.maker_of(kY), std::nullopt);
  references.rebuild(kY, 3, kY);
  ASSERT_EQ(out.answers.size(), 1u) << "a dead process would be asked";
  EXPECT_EQ(out.answers[0].value.kind, wire::Value::Kind::error);
}

TEST_F(References, DeathsOfLongAgoAreForgottenButForOwnersOfWhatIsHere) {
  constexpr ProcessIndex kOwner = 100, kFirst = 101;
  const auto die = [&](ProcessIndex node) {
    references.add_node(node);
    return references.node_died(node, died);
  };
  references.add_node(kOwner);
  references.import_from(kX, kOwner, kOwner);
  references.hold(kX, 1, +1);
  EXPECT_EQ(die(kOwner), std::nullopt);
  ProcessIndex next = kFirst;
  while (references.dead_nodes() < ReferenceTable::kMostDeadNodes)
    EXPECT_EQ(die(next++), std::nullopt);
  EXPECT_EQ(die(next++), std::nullopt) << "what it owned is here";
  EXPECT_TRUE(references.is_dead(kOwner));
  EXPECT_EQ(die(next++), kFirst);
  EXPECT_FALSE(references.is_dead(kFirst));
  EXPECT_LE(references.dead_nodes(), ReferenceTable::kMostDeadNodes + 1);
  references.hold(kX, 1, -1);
  settle();
  for (std::size_t i = 0; i < ReferenceTable::kMostDeadNodes; ++i) die(next++);
  EXPECT_FALSE(references.is_dead(kOwner));
}

TEST_F(References, OfRefsWithoutAnOwnerTheOlderOnesAreForgottenWhenThereAreTooMany) {
  constexpr ProcessIndex kOwner = 100, kReceiver = 101;
  references.add_node(kReceiver);
  references.node_died(kOwner, died);
  const auto pass_on = [&](std::uint64_t n) {
    const ObjectId object{7, n};
    references.import_from(object, kOwner, kSelf);
    references.hold(object, kReceiver, +1);
    references.export_to(object, kReceiver);
    settle(2);
  };
  std::uint64_t n = 0;
  while (n < 2 * ReferenceTable::kMostOrphans) pass_on(++n);
  EXPECT_LE(references.orphans(), ReferenceTable::kMostOrphans);
  EXPECT_GE(references.orphans(), ReferenceTable::kMostOrphans / 2);
  EXPECT_EQ(references.size(), 0u);
  // The receiver takes this node for the owner. It is not counted for the remembered objects.
  references.peer_hold(kReceiver, {7, n}, kSelf, +1);
  EXPECT_EQ(references.size(), 0u);
  references.node_died(kReceiver, died);
  EXPECT_EQ(references.orphans(), 0u);
}

TEST_F(References, ADeathBetweenADropAndItsCountLeavesNothingToSettle) {
  references.promote(1, kX, shared(7), {});
  references.hold(kX, 2, -1);
  references.process_died(2, died);
  settle();
  references.hold(kX, 2, +1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  references.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
}

TEST_F(References, AFulfilForWhatIsGoneFreesWhatItBrings) {
  references.promote(1, kY, shared(8), {});
  references.hold(kY, 1, -1);
  references.fulfil(kX, shared(7, {kY}), {});
  settle();
  EXPECT_EQ(out.freed, (std::vector<std::uint64_t>{7, 8}));
  EXPECT_EQ(references.total_holds(), 0);
}

TEST_F(References, AnActorsLastHandleIsTold) {
  references.hold(kX, 2, +1);  // read before the creation
  references.stands_for(kX, kActor, 1);
  references.hold(kX, 1, -1);
  settle();
  EXPECT_TRUE(out.unused.empty());
  references.process_died(2, died);
  settle();
  EXPECT_EQ(out.unused, std::vector<ActorId>{kActor});
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(References, ValuesForTheAgentsOwnUse) {
  EXPECT_EQ(references.value_of(kX), nullptr);
  references.promote(1, kX, {}, {});
  EXPECT_EQ(references.value_of(kX), nullptr);
  references.fulfil(kX, shared(7), {});
  ASSERT_NE(references.value_of(kX), nullptr);
  EXPECT_EQ(references.value_of(kX)->location.offset, 7u);
}

}  // namespace
}  // namespace troupe::agent::reference_table_test
