// Tests Owners: OWNER-1 to OWNER-3.
#include "troupe/runtime/agent/owners.hpp"

#include "tests/runtime/agent/quiet_tables.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::owners_test {
namespace {

constexpr NodeId kSelfNode{0, 1}, kOther{0, 2}, kThird{0, 3};
constexpr ProcessIndex kProcess = 1;
constexpr ObjectId kObject{0, 4}, kInner{0, 8};
constexpr ObjectId kWithCopies{0, 16 | wire::kHasCopies};

struct OwnersTest : testing::Test {
  OwnersTest() : references(quiet), remote(quiet_remote, [this] { return next++; }) {}
  /// Lets this node know an object of another node, which the process holds.
  void import(ObjectId object, NodeId from) {
    owners.take_in(from, {object, from});
    references.hold(object, kProcess, +1);
  }
  void lose(NodeId node) {
    ErrorInfo why;
    why.code = Code::unavailable;
    why.message = "lost";
    owners.node_lost(node, why);
    remote.node_died(node, "lost", false);
  }

  QuietReferences quiet;
  QuietRemote quiet_remote;
  ProcessIndex next = 10;
  ReferenceTable references;
  RemoteTable remote;
  Owners owners{kSelfNode, references, remote};
};

TEST_F(OwnersTest, NodeAndItsIndexNameEachOther) {
  const ProcessIndex other = owners.index_of(kOther);
  EXPECT_EQ(owners.index_of(kOther), other);
  EXPECT_NE(owners.index_of(kThird), other);
  EXPECT_EQ(owners.node_behind(other), kOther);
  EXPECT_EQ(owners.node_behind(kSelf), kSelfNode);
  EXPECT_EQ(owners.index_of_owner(kSelfNode), kSelf);
  EXPECT_EQ(owners.index_of_owner({}), kSelf);
  EXPECT_EQ(owners.index_of_owner(kOther), other);
}

TEST_F(OwnersTest, RefIsNamedWithItsOwnerWhenItLeaves) {
  import(kInner, kOther);
  EXPECT_EQ(owners.owner_of(kInner), kOther);
  EXPECT_EQ(owners.owner_of(kObject), kSelfNode);
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.refs = {kInner, kObject};
  const wire::PeerReady answer = owners.answer_of(kObject, value);
  ASSERT_EQ(answer.refs.size(), 2u);
  EXPECT_EQ(answer.refs[0].owner, kOther);
  EXPECT_EQ(answer.refs[1].owner, kSelfNode);
}

TEST_F(OwnersTest, ValueLeavesWithItsSizeInPlaceOfItsLocation) {
  wire::Value value;
  value.kind = wire::Value::Kind::shared;
  value.location.length = 77;
  const wire::PeerReady answer = owners.answer_of(kObject, value);
  EXPECT_EQ(answer.value.kind, wire::Value::Kind::remote);
  EXPECT_EQ(answer.value.remote_bytes, 77u);
}

TEST_F(OwnersTest, OwnerOutOfReachIsNamedForAnObjectWithCopiesOnly) {
  const ProcessIndex other = owners.index_of(kOther);
  EXPECT_EQ(owners.name_of(other, kObject, kThird), kOther);
  lose(kOther);
  EXPECT_TRUE(owners.is_lost(other));
  EXPECT_EQ(owners.node_behind(other), kOther);
  EXPECT_EQ(owners.name_of(other, kObject, kThird), kThird);
  EXPECT_EQ(owners.name_of(other, kWithCopies, kThird), kOther);
  EXPECT_FALSE(owners.is_lost(owners.index_of(kOther))) << "it has come back under a new index";
}

TEST_F(OwnersTest, RefsOfAValueAreImportedBeforeItIsReady) {
  import(kObject, kOther);
  wire::PeerReady ready;
  ready.object = kObject;
  ready.value.kind = wire::Value::Kind::remote;
  ready.value.remote_bytes = 5;
  ready.refs = {{kInner, kThird}};
  const ProcessIndex other = owners.index_of(kOther);
  ASSERT_TRUE(owners.take_value(other, other, ready, {}));
  EXPECT_EQ(owners.owner_of(kInner), kThird);
  const wire::Value* value = references.value_of(kObject);
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(value->refs, std::vector<ObjectId>{kInner});
}

TEST_F(OwnersTest, ValueWithTooManyRefsChangesNothing) {
  import(kObject, kOther);
  wire::PeerReady ready;
  ready.object = kObject;
  ready.value.kind = wire::Value::Kind::remote;
  ready.refs.resize(wire::kMaxRefs + 1, {kInner, kThird});
  const ProcessIndex other = owners.index_of(kOther);
  EXPECT_FALSE(owners.take_value(other, other, ready, {}));
  EXPECT_EQ(references.value_of(kObject), nullptr);
}

}  // namespace
}  // namespace troupe::agent::owners_test
