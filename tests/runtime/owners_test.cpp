// OwnerTable: REF-1 nothing with a holder is freed, REF-2 the dead hold nothing, REF-3 every Await
// is answered once. tests/simulation/ownership_test.cpp judges the whole protocol.
#include "troupe/runtime/agent/owners.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::owners_test {
namespace {

const ObjectId kX{1, 1}, kY{1, 2}, kZ{1, 3};
const ActorId kActor{9, 9};

struct Recorder final : OwnerTable::Out {
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

struct Owners : testing::Test {
  Recorder out;
  OwnerTable owners{out};
  const Error died{Code::worker_died, "killed"};
  void settle(int passes = 8) {
    while (passes-- > 0 && owners.settle()) {
    }
    EXPECT_FALSE(owners.settle()) << "the agent would never sleep";
  }
};

TEST_F(Owners, KnowsWhoseMakingAnObjectIs) {
  EXPECT_FALSE(owners.is_made(kX));
  EXPECT_FALSE(owners.is_anothers(kX, 2)) << "nobody is known to make it";
  owners.hold(kX, 2, +1);
  EXPECT_FALSE(owners.is_made(kX)) << "it is merely counted";
  owners.escape(1, kX, {}, {});
  EXPECT_TRUE(owners.is_made(kX));
  EXPECT_TRUE(owners.is_anothers(kX, 2));
  EXPECT_FALSE(owners.is_anothers(kX, 1));
  owners.stands_for(kY, kActor, 1);
  EXPECT_TRUE(owners.is_anothers(kY, 1)) << "an actor's lifetime has no value";
  const ProcessIndex node = 50;
  owners.add_node(node);
  owners.hold(kX, node, +1, 1);
  EXPECT_EQ(owners.unsent(1, node, kX), 1);
  EXPECT_EQ(owners.unsent(2, node, kX), 0);
  owners.depart(kX, node, 1);
  EXPECT_EQ(owners.unsent(1, node, kX), 0) << "it has left";
}

TEST_F(Owners, AValueIsTakenFromTheOwnersNodeAlone) {
  const ProcessIndex owner = 50, other = 51;
  owners.add_node(owner);
  owners.add_node(other);
  owners.borrow(kX, owner, kSelf);
  owners.hold(kX, 1, +1);
  owners.await(kX, 1);
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  owners.ready_from_owner(other, kX, value, {});
  EXPECT_TRUE(out.answers.empty());
  owners.escape(1, kY, value, {});
  owners.hold(kY, owner, +1);
  owners.peer_hold(other, kY, other, -1);
  owners.hold(kY, 1, -1);
  settle();
  EXPECT_TRUE(owners.is_made(kY)) << "what the other takes back is its own count";
  owners.ready_from_owner(owner, kX, value, {});
  EXPECT_EQ(out.answers.size(), 1u);
}

TEST_F(Owners, FreedAtTheSecondLookOnly) {
  owners.escape(1, kX, shared(7), {});
  EXPECT_FALSE(owners.settle());
  owners.hold(kX, 1, -1);
  EXPECT_TRUE(owners.settle());
  EXPECT_TRUE(out.freed.empty());
  EXPECT_FALSE(owners.settle());
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(Owners, ACountReadLateSavesIt) {
  owners.escape(1, kX, shared(7), {});
  owners.hold(kX, 1, -1);  // read before the +1 that it follows
  EXPECT_TRUE(owners.settle());
  owners.hold(kX, 2, +1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  EXPECT_EQ(owners.total_holds(), 1);
}

TEST_F(Owners, EveryHolderMustBeAtZeroNotTheSum) {
  owners.escape(1, kX, shared(7), {});
  owners.hold(kX, 2, -1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  owners.hold(kX, 2, +1);
  owners.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
}

TEST_F(Owners, TheInnerLivesAsLongAsTheOuter) {
  owners.escape(1, kY, shared(8), {});
  owners.escape(1, kX, shared(7, {kY}), {});
  owners.hold(kY, 1, -1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  owners.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, (std::vector<std::uint64_t>{7, 8}));
}

TEST_F(Owners, AnAnswerCountsWhatIsInside) {
  owners.escape(1, kY, shared(8), {});
  owners.escape(1, kX, {}, {});
  owners.hold(kX, 2, +1);
  owners.await(kX, 2);
  EXPECT_TRUE(out.answers.empty());
  owners.fulfil(kX, shared(7, {kY}), {});
  owners.await(kX, 2);
  EXPECT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(owners.total_holds(), 2 + 4) << "of X: 1, 2; of Y: 1, ourselves, twice 2";
}

TEST_F(Owners, AForwardedValueKeepsItsSource) {
  owners.escape(1, kY, shared(8), {});
  wire::Value forwarded;
  forwarded.kind = wire::Value::Kind::forwarded;
  forwarded.forward = kY;
  owners.escape(1, kX, forwarded, {});
  owners.hold(kY, 1, -1);
  settle();
  EXPECT_EQ(owners.size(), 2u);
  owners.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{8});
}

TEST_F(Owners, InlineBytesAreKeptWithoutTheirFrame) {
  Blob frame(32, std::byte{1});
  frame[16] = std::byte{42};
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.payload_offset = 16;
  value.payload_size = 1;
  owners.escape(1, kX, value, frame);
  frame.assign(32, std::byte{0});
  owners.await(kX, 1);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].payload, Blob(1, std::byte{42}));
  EXPECT_EQ(out.answers[0].value.payload_offset, 0u);
}

TEST_F(Owners, AnAwaitReadBeforeItsEscapeWaitsOnePass) {
  owners.await(kX, 2);
  EXPECT_TRUE(owners.settle());
  owners.escape(1, kX, shared(7), {});
  settle();
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, wire::Value::Kind::shared);

  owners.await(kZ, 2);  // nobody's
  settle();
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_EQ(out.answers[1].value.error->code, Code::object_lost);
}

TEST_F(Owners, AnAwaitOfWhatIsFreedIsAnswered) {
  owners.escape(1, kX, {}, {});
  owners.await(kX, 1);
  owners.hold(kX, 1, -1);
  settle();
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.kind, wire::Value::Kind::error);
}

TEST_F(Owners, TheDeadHoldNothingAndOweAnError) {
  owners.escape(1, kX, {}, {});
  owners.hold(kX, 2, +1);
  owners.await(kX, 2);
  owners.process_died(1, died);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].value.error->code, Code::object_lost);
  EXPECT_EQ(out.answers[0].value.error->cause->message, "killed");
  owners.hold(kX, 1, +1);  // somebody sent it a message that nobody will read
  EXPECT_EQ(owners.total_holds(), 1);
  owners.process_died(2, died);
  settle();
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(Owners, TheForgottenStayDeadToWhatTheyMade) {
  owners.escape(1, kX, {}, {});
  owners.escape(2, kY, shared(7), {});
  owners.await(kX, 2);
  for (const ProcessIndex process : {2, 1}) {
    owners.hold(kY, 3, +1);
    owners.process_died(process, died);
    EXPECT_TRUE(owners.is_dead(process));
    owners.forget(process);
    EXPECT_FALSE(owners.is_dead(process)) << "it would be kept for ever";
  }
  EXPECT_TRUE(out.answers.empty()) << "nobody is there who waits";
  EXPECT_EQ(owners.maker_of(kY), std::nullopt);
  owners.rebuild(kY, 3, kY);
  ASSERT_EQ(out.answers.size(), 1u) << "a dead process would be asked";
  EXPECT_EQ(out.answers[0].value.kind, wire::Value::Kind::error);
}

TEST_F(Owners, DeathsOfLongAgoAreForgottenButForOwnersOfWhatIsHere) {
  constexpr ProcessIndex kOwner = 100, kFirst = 101;
  const auto die = [&](ProcessIndex node) {
    owners.add_node(node);
    return owners.node_died(node, died);
  };
  owners.add_node(kOwner);
  owners.borrow(kX, kOwner, kOwner);
  owners.hold(kX, 1, +1);
  EXPECT_EQ(die(kOwner), std::nullopt);
  ProcessIndex next = kFirst;
  while (owners.dead_nodes() < OwnerTable::kMostDeadNodes) EXPECT_EQ(die(next++), std::nullopt);
  EXPECT_EQ(die(next++), std::nullopt) << "what it owned is here";
  EXPECT_TRUE(owners.is_dead(kOwner));
  EXPECT_EQ(die(next++), kFirst);
  EXPECT_FALSE(owners.is_dead(kFirst));
  EXPECT_LE(owners.dead_nodes(), OwnerTable::kMostDeadNodes + 1);
  owners.hold(kX, 1, -1);
  settle();
  for (std::size_t i = 0; i < OwnerTable::kMostDeadNodes; ++i) die(next++);
  EXPECT_FALSE(owners.is_dead(kOwner));
}

TEST_F(Owners, OfRefsWithoutAnOwnerTheOlderOnesAreForgottenWhenThereAreTooMany) {
  constexpr ProcessIndex kOwner = 100, kReceiver = 101;
  owners.add_node(kReceiver);
  owners.node_died(kOwner, died);
  const auto pass_on = [&](std::uint64_t n) {
    const ObjectId object{7, n};
    owners.borrow(object, kOwner, kSelf);
    owners.hold(object, kReceiver, +1);
    owners.depart(object, kReceiver);
    settle(2);
  };
  std::uint64_t n = 0;
  while (n < 2 * OwnerTable::kMostOrphans) pass_on(++n);
  EXPECT_LE(owners.orphans(), OwnerTable::kMostOrphans);
  EXPECT_GE(owners.orphans(), OwnerTable::kMostOrphans / 2);
  EXPECT_EQ(owners.size(), 0u);
  // The receiver takes us for the owner: of those that are remembered nobody is counted.
  owners.peer_hold(kReceiver, {7, n}, kSelf, +1);
  EXPECT_EQ(owners.size(), 0u);
  owners.node_died(kReceiver, died);
  EXPECT_EQ(owners.orphans(), 0u);
}

TEST_F(Owners, ADeathBetweenADropAndItsCountLeavesNothingToSettle) {
  owners.escape(1, kX, shared(7), {});
  owners.hold(kX, 2, -1);
  owners.process_died(2, died);
  settle();
  owners.hold(kX, 2, +1);
  settle();
  EXPECT_TRUE(out.freed.empty());
  owners.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
}

TEST_F(Owners, AFulfilForWhatIsGoneFreesWhatItBrings) {
  owners.escape(1, kY, shared(8), {});
  owners.hold(kY, 1, -1);
  owners.fulfil(kX, shared(7, {kY}), {});
  settle();
  EXPECT_EQ(out.freed, (std::vector<std::uint64_t>{7, 8}));
  EXPECT_EQ(owners.total_holds(), 0);
}

TEST_F(Owners, AnActorsLastHandleIsTold) {
  owners.hold(kX, 2, +1);  // read before the creation
  owners.stands_for(kX, kActor, 1);
  owners.hold(kX, 1, -1);
  settle();
  EXPECT_TRUE(out.unused.empty());
  owners.process_died(2, died);
  settle();
  EXPECT_EQ(out.unused, std::vector<ActorId>{kActor});
  EXPECT_EQ(owners.size(), 0u);
}

TEST_F(Owners, ValuesForTheAgentsOwnUse) {
  EXPECT_EQ(owners.value_of(kX), nullptr);
  owners.escape(1, kX, {}, {});
  EXPECT_EQ(owners.value_of(kX), nullptr);
  owners.fulfil(kX, shared(7), {});
  ASSERT_NE(owners.value_of(kX), nullptr);
  EXPECT_EQ(owners.value_of(kX)->location.offset, 7u);
}

}  // namespace
}  // namespace troupe::agent::owners_test
