// Tests copies that outlive their node: which objects get one and when, and how an importer uses
// them when the owner is dead.
#include "troupe/runtime/agent/copy_plan.hpp"
#include "troupe/runtime/agent/reference_table.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::copies_test {
namespace {

using namespace std::chrono_literals;
using Kind = wire::Value::Kind;
const ObjectId kX{1, 1}, kY{1, 2}, kZ{1, 3};
constexpr ProcessIndex kA = 100, kM = 101;  // nodes
constexpr Time kNow{100s};

// --- the plan

TEST(CopyPlan, WhatIsLetGoAtOnceIsNotWritten) {
  CopyPlan plan({.after = 100ms});
  plan.wanted(kX, kNow);
  plan.wanted(kX, kNow + 50ms);
  EXPECT_FALSE(plan.next(kNow + 99ms));
  EXPECT_EQ(plan.next_deadline(), kNow + 100ms);
  EXPECT_FALSE(plan.over(kX)) << "there is no copy to drop";
  EXPECT_FALSE(plan.next(kNow + 1s));
  plan.wanted(kX, kNow);
  EXPECT_EQ(plan.next(kNow + 100ms), kX);
  plan.skipped(kX);
  EXPECT_EQ(plan.size(), 0u);
}

TEST(CopyPlan, WritesNoMoreAtATimeThanItMay) {
  CopyPlan plan({.after = 0s, .at_once = 100, .most = 2});
  for (const ObjectId id : {kX, kY, kZ}) plan.wanted(id, kNow);
  ASSERT_EQ(plan.next(kNow), kX);
  plan.began(kX, 150);
  EXPECT_FALSE(plan.next(kNow));
  EXPECT_EQ(plan.next_deadline(), Time::max());
  plan.ended(kX, kNow, true);
  ASSERT_EQ(plan.next(kNow), kY);
  plan.began(kY, 1);
  EXPECT_FALSE(plan.next(kNow)) << "as many files as it may have";
  EXPECT_TRUE(plan.over(kX));
  EXPECT_EQ(plan.next(kNow), kZ);
}

TEST(CopyPlan, AFailureIsTriedAgainLater) {
  CopyPlan plan({.after = 0s, .retry = 1s});
  plan.wanted(kX, kNow);
  plan.began(kX, 10);
  plan.ended(kX, kNow, false);
  EXPECT_EQ(plan.next_deadline(), kNow + 1s);
  EXPECT_FALSE(plan.over(kX));
}

TEST(CopyPlan, FullFoldersAreAskedLessAndLessOftenForAllOfThem) {
  CopyPlan plan({.after = 0s, .retry = 1s, .longest_pause = 3s});
  const auto try_one = [&plan](Time now, bool well) {
    const auto object = plan.next(now);
    if (!object) return false;
    plan.began(*object, 10);
    if (!well) plan.refused(now);
    plan.ended(*object, now, well);
    return true;
  };
  for (const ObjectId id : {kX, kY, kZ}) plan.wanted(id, kNow);
  EXPECT_TRUE(try_one(kNow, false));
  EXPECT_FALSE(try_one(kNow, false)) << "the others would be refused as well";
  EXPECT_EQ(plan.next_deadline(), kNow + 1s);
  EXPECT_TRUE(try_one(kNow + 1s, false));
  EXPECT_EQ(plan.next_deadline(), kNow + 3s) << "twice as long";
  EXPECT_TRUE(try_one(kNow + 3s, false));
  EXPECT_EQ(plan.next_deadline(), kNow + 6s) << "but no longer";
  EXPECT_TRUE(try_one(kNow + 6s, true));
  EXPECT_TRUE(try_one(kNow + 6s, true)) << "there is room again";
  EXPECT_TRUE(try_one(kNow + 6s, false));
  EXPECT_EQ(plan.next_deadline(), kNow + 7s);
}

TEST(CopyPlan, AnotherValueIsWrittenAfterTheFirst) {
  CopyPlan plan({.after = 100ms});
  plan.wanted(kX, kNow);
  plan.began(kX, 10);
  EXPECT_TRUE(plan.over(kX)) << "while it is being written";
  plan.wanted(kX, kNow + 1s);
  EXPECT_FALSE(plan.next(kNow + 2s));
  plan.ended(kX, kNow + 2s, true);
  EXPECT_EQ(plan.next(kNow + 2s), kX);
  plan.began(kX, 10);
  plan.ended(kX, kNow + 3s, true);
  EXPECT_TRUE(plan.over(kX));
  EXPECT_EQ(plan.size(), 0u);
}

// --- owners and importers

struct Recorder final : ReferenceTable::Out {
  std::vector<std::pair<ProcessIndex, wire::Value>> answers;
  std::vector<std::uint64_t> freed;
  std::vector<ObjectId> asked, pulls, wanted, over, made_again;
  void ready(ProcessIndex process, ObjectId, const wire::Value& value, BlobView) override {
    answers.emplace_back(process, value);
  }
  void free(const wire::Location& location) override { freed.push_back(location.offset); }
  void unreferenced(ActorId) override {}
  void peer_await(ProcessIndex, ObjectId object) override { asked.push_back(object); }
  void pull(ProcessIndex, ObjectId object, std::uint64_t) override { pulls.push_back(object); }
  void wants_copy(ObjectId object) override { wanted.push_back(object); }
  void copy_over(ObjectId object) override { over.push_back(object); }
  void rebuild(ProcessIndex, ObjectId object, ObjectId) override { made_again.push_back(object); }
};

wire::Value value_of(Kind kind, std::uint64_t offset = 0, std::vector<ObjectId> refs = {}) {
  wire::Value value;
  value.kind = kind;
  value.location.offset = offset;
  value.refs = std::move(refs);
  value.remote_bytes = kind == Kind::remote ? 10'000 : 0;
  return value;
}

struct ReferencesWithCopies : testing::Test {
  Recorder out;
  ReferenceTable references{out};
  const Error death{Code::unavailable, "its machine is off"};
  ReferencesWithCopies() {
    references.keep_copies();
    for (const ProcessIndex node : {kA, kM}) references.add_node(node);
  }
  void settle() {
    for (int pass = 0; pass < 8 && references.settle(); ++pass) {
    }
  }
  void arrive(ObjectId object) {
    references.import_from(object, kA, kA);
    references.hold(object, 1, +1);
  }
  Kind last() const { return out.answers.empty() ? Kind::pending : out.answers.back().second.kind; }
};

TEST_F(ReferencesWithCopies, WhatAnotherNodeHoldsAndIsKnownWantsOne) {
  references.promote(1, kX, value_of(Kind::shared, 7), {});
  EXPECT_TRUE(out.wanted.empty()) << "only this node holds it";
  references.hold(kX, kA, +1);
  EXPECT_EQ(out.wanted, std::vector<ObjectId>{kX});
  EXPECT_EQ(references.held_remotely(kX).value->location.offset, 7u);
  references.promote(1, kY, value_of(Kind::pending), {});
  references.hold(kY, kA, +1);
  EXPECT_EQ(references.held_remotely(kY).value, nullptr);
  EXPECT_EQ(out.wanted.size(), 1u) << "it is not known yet";
  references.fulfil(kY, value_of(Kind::shared, 8), {});
  EXPECT_EQ(out.wanted.back(), kY);
  references.hold(kX, kA, -1);
  EXPECT_EQ(references.held_remotely(kX).value, nullptr);
  references.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.over, std::vector<ObjectId>{kX});
}

TEST_F(ReferencesWithCopies, WhatIsNamedByAValueThatAnotherNodeHoldsWantsOneToo) {
  references.promote(1, kZ, value_of(Kind::inline_bytes), {});
  references.promote(1, kY, {}, {});
  references.promote(1, kX, value_of(Kind::shared, 7, {kY}), {});
  EXPECT_EQ(references.held_remotely(kX).value, nullptr);
  references.hold(kX, kA, +1);
  EXPECT_EQ(out.wanted, std::vector<ObjectId>{kX});
  references.fulfil(kY, value_of(Kind::shared, 8, {kZ}), {});
  EXPECT_EQ(out.wanted, (std::vector<ObjectId>{kX, kY, kZ})) << "when it is known";
  for (const ObjectId object : out.wanted)
    EXPECT_NE(references.held_remotely(object).value, nullptr);
  references.hold(kX, kA, +1);
  EXPECT_EQ(out.wanted.size(), 3u) << "it has been said";
}

TEST_F(ReferencesWithCopies, WhatMayBeFoundByItsNameWantsOneThoughNoNodeHoldsIt) {
  references.promote(1, kY, value_of(Kind::inline_bytes), {});
  references.promote(1, kX, value_of(Kind::shared, 7, {kY}), {});
  EXPECT_TRUE(out.wanted.empty());
  references.may_be_found(kX);
  EXPECT_EQ(out.wanted, (std::vector<ObjectId>{kX, kY})) << "and what it names";
  for (const ObjectId object : out.wanted)
    EXPECT_NE(references.held_remotely(object).value, nullptr);
  references.may_be_found(kZ);
  EXPECT_EQ(out.wanted.size(), 2u) << "nothing is known of it";
}

TEST_F(ReferencesWithCopies, ANewValueEndsTheCopyOfTheOld) {
  references.promote(1, kX, value_of(Kind::shared, 7), {});
  references.hold(kX, kA, +1);
  out.wanted.clear();
  references.rebuild(kX, 1, kX);
  references.pull_failed(kX, Error(Code::object_lost, "there is no copy"));
  EXPECT_EQ(out.made_again, std::vector<ObjectId>{kX});
  EXPECT_EQ(out.over, std::vector<ObjectId>{kX});
  references.rebuilt(1, kX, value_of(Kind::shared, 9), {});
  EXPECT_EQ(out.wanted, std::vector<ObjectId>{kX});
}

TEST_F(ReferencesWithCopies, AnOwnerWhoseBytesAreBadReadsItsCopy) {
  references.promote(1, kX, value_of(Kind::shared, 7, {kY}), {});
  references.hold(kX, 2, +1);
  references.hold(kX, kA, +1);
  out.wanted.clear();
  references.rebuild(kX, 2, kX);
  references.rebuild(kX, kA, kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX}) << "once";
  references.await(kX, kM, false);
  references.hold(kX, kM, +1);
  EXPECT_TRUE(out.wanted.empty()) << "there is nothing to copy";
  EXPECT_TRUE(out.answers.empty()) << "another node would take the value for one without refs";
  references.pulled(kX, value_of(Kind::shared, 8).location);
  ASSERT_EQ(out.answers.size(), 3u);
  for (const auto& [who, value] : out.answers) {
    EXPECT_EQ(value.location.offset, 8u);
    EXPECT_EQ(value.refs, std::vector<ObjectId>{kY});
  }
  EXPECT_TRUE(out.made_again.empty());
  EXPECT_TRUE(out.over.empty()) << "the copy is good";
}

TEST_F(ReferencesWithCopies, ACopyThatHasNoRoomNowIsReadLater) {
  references.promote(1, kX, value_of(Kind::shared, 7), {});
  references.hold(kX, 2, +1);
  references.rebuild(kX, 2, kX);
  references.pull_failed(kX, Error(Code::out_of_memory, "the arena is full"));
  ASSERT_EQ(last(), Kind::error);
  references.await(kX, 2);
  EXPECT_EQ(out.pulls.size(), 2u);
  references.pulled(kX, value_of(Kind::shared, 8).location);
  EXPECT_EQ(out.answers.back().second.location.offset, 8u);
  EXPECT_TRUE(out.over.empty());
}

TEST_F(ReferencesWithCopies, AnObjectThatIsFreedWhileItsCopyIsReadLeavesNothing) {
  references.promote(1, kX, value_of(Kind::shared, 7), {});
  references.rebuild(kX, 1, kX);
  references.hold(kX, 1, -1);
  settle();
  references.pulled(kX, value_of(Kind::shared, 8).location);
  EXPECT_EQ(out.freed, (std::vector<std::uint64_t>{7, 8}));
  EXPECT_EQ(out.over, std::vector<ObjectId>{kX});
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesWithCopies, TheBytesOfADeadNodesObjectAreAskedOfItsCopy) {
  arrive(kX);
  references.await(kX, 1, false);
  references.ready_from_owner(kA, kX, value_of(Kind::remote, 0, {kY}), {});
  EXPECT_EQ(last(), Kind::remote);
  references.node_died(kA, death);
  EXPECT_TRUE(out.pulls.empty()) << "nobody wants them";
  references.await(kX, 1);
  EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX});
  references.pulled(kX, value_of(Kind::shared, 7).location);
  EXPECT_EQ(last(), Kind::shared);
  EXPECT_EQ(references.total_holds(), 3)
      << "the ref inside, by the value as before and by who got it";
}

TEST_F(ReferencesWithCopies, WhoWaitsForBytesAtTheDeathWaitsForTheCopy) {
  arrive(kX);
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  references.await(kX, 1);
  EXPECT_EQ(out.pulls.size(), 1u);
  references.node_died(kA, death);
  EXPECT_EQ(out.pulls.size(), 2u);
  EXPECT_TRUE(out.answers.empty());
  references.pull_failed(kX, Error(Code::object_lost, "there is no copy"));
  EXPECT_EQ(last(), Kind::error);
  references.await(kX, 1);
  EXPECT_EQ(out.pulls.size(), 3u) << "it may be there yet";
  references.pull_failed(kX, Error(Code::object_lost, "there is no copy"));
  references.rebuild(kX, 1, kX);
  ASSERT_EQ(last(), Kind::error);
  EXPECT_EQ(out.answers.back().second.error->code, Code::object_lost) << "nobody computes it again";
}

TEST_F(ReferencesWithCopies, AnUnknownValueOfADeadNodeIsAskedOfItsCopy) {
  arrive(kX);
  arrive(kY);
  references.await(kX, 1, false);
  references.node_died(kA, death);
  EXPECT_EQ(out.asked, (std::vector<ObjectId>{kX, kX})) << "the owner, then its copy";
  EXPECT_TRUE(out.answers.empty());
  references.ready_from_owner(kA, kX, value_of(Kind::inline_bytes), {});
  EXPECT_EQ(last(), Kind::inline_bytes);
  references.await(kY, 1);
  EXPECT_EQ(out.asked.back(), kY) << "when somebody wants it";
  references.ready_from_owner(kA, kY, value_of(Kind::error), {});
  EXPECT_EQ(last(), Kind::error);
}

TEST_F(ReferencesWithCopies, ARefThatComesAfterItsOwnersDeathIsAskedOfItsCopy) {
  references.node_died(kA, death);
  references.import_from(kX, kA, kM);
  references.hold(kX, 1, +1);
  EXPECT_TRUE(out.answers.empty());
  references.await(kX, 1);
  EXPECT_EQ(out.asked, std::vector<ObjectId>{kX});
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  EXPECT_EQ(out.pulls, std::vector<ObjectId>{kX});
  references.pulled(kX, value_of(Kind::shared, 7).location);
  EXPECT_EQ(last(), Kind::shared);
  references.hold(kX, 1, -1);
  settle();
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(references.size(), 0u);
}

TEST_F(ReferencesWithCopies, ABadCopyHereIsReadAgainFromTheShared) {
  arrive(kX);
  references.await(kX, 1);
  references.ready_from_owner(kA, kX, value_of(Kind::remote), {});
  references.pulled(kX, value_of(Kind::shared, 7).location);
  references.node_died(kA, death);
  EXPECT_EQ(last(), Kind::shared) << "what is here stays good";
  references.rebuild(kX, 1, kX);
  EXPECT_EQ(out.freed, std::vector<std::uint64_t>{7});
  EXPECT_EQ(out.pulls.size(), 2u);
  references.pulled(kX, value_of(Kind::shared, 8).location);
  EXPECT_EQ(out.answers.back().second.location.offset, 8u);
}

}  // namespace
}  // namespace troupe::agent::copies_test
