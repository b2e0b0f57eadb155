// Tests who may join with a token, how long control keeps a key without a member, and that tokens
// stay spent across restarts.
#include "troupe/runtime/control/admissions.hpp"
#include "troupe/runtime/control/memory_store.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>

namespace troupe::control {
namespace {

using namespace std::chrono_literals;

NodeDescription joining_node(std::uint64_t n, const std::string& key = "key") {
  NodeDescription node;
  node.id = NodeId{1, n};
  node.public_key = key;
  return node;
}

struct AdmissionsTest : testing::Test {
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store = open_memory_store(disk, {}).value();
  AdmissionsOptions options;
  Time now = Time{} + 1000s;
  Admissions admissions = Admissions::recover(*store, options, now).value();

  std::optional<Code> refused(const std::string& token, const NodeDescription& node,
                              bool is_member = false) {
    const auto why = admissions.refusal(token, node, is_member);
    return why ? std::optional(why->code) : std::nullopt;
  }
  void commit(const Batch& writes) { ASSERT_TRUE(store->commit({&writes, 1}).ok()); }
  void join(const std::string& token, const NodeDescription& node) {
    ASSERT_EQ(refused(token, node), std::nullopt);
    commit(admissions.join(token, node));
    admissions.expire_later(node.id, now);
  }
  void restart() {
    store.reset();
    store = open_memory_store(disk, {}).value();
    admissions = Admissions::recover(*store, options, now).value();
  }
};

TEST_F(AdmissionsTest, ATokenAdmitsOneNodeForEver) {
  join("t1", joining_node(1));
  EXPECT_EQ(refused("t1", joining_node(2)), Code::invalid_argument);
  EXPECT_EQ(refused("t1", joining_node(1)), std::nullopt) << "the first answer may be lost";
  commit(admissions.forget(NodeId{1, 1}));
  EXPECT_EQ(refused("t1", joining_node(1)), Code::invalid_argument);
  restart();
  EXPECT_TRUE(admissions.is_spent("t1"));
  EXPECT_FALSE(admissions.is_spent("t2"));
}

TEST_F(AdmissionsTest, AnIdBelongsToOneKey) {
  join("t1", joining_node(1));
  EXPECT_EQ(refused("t2", joining_node(1, "another")), Code::invalid_argument);
  EXPECT_EQ(refused("t2", joining_node(2), true), Code::invalid_argument) << "a member has it";
  EXPECT_EQ(refused("t2", NodeDescription{}), Code::invalid_argument);
  restart();
  EXPECT_EQ(refused("t2", joining_node(1, "another")), Code::invalid_argument);
  EXPECT_EQ(refused("t2", joining_node(1)), std::nullopt);
}

TEST_F(AdmissionsTest, TheNodesThatHaveNotRegisteredAreBounded) {
  options.max_joined = 1;
  restart();
  join("t1", joining_node(1));
  EXPECT_EQ(refused("t2", joining_node(2)), Code::overloaded);
  EXPECT_EQ(refused("t1", joining_node(1)), std::nullopt) << "it has its place";
  commit(admissions.forget(NodeId{1, 1}));
  EXPECT_EQ(refused("t2", joining_node(2)), std::nullopt);
}

TEST_F(AdmissionsTest, ANodeIsForgottenOnceAndLeavesNoRecord) {
  join("t1", joining_node(1));
  commit(admissions.forget(NodeId{1, 1}));
  EXPECT_TRUE(admissions.forget(NodeId{1, 1}).empty());
  restart();
  EXPECT_TRUE(admissions.joined().empty());
}

TEST_F(AdmissionsTest, ItsTimeBeginsAnewWithEachCallAndWithEachControl) {
  join("t1", joining_node(1));
  now += 50s;
  admissions.expire_later(NodeId{1, 1}, now);
  EXPECT_EQ(admissions.next_expiry(), now + 75s);
  EXPECT_FALSE(admissions.pop_expired(now + 74s));
  restart();
  now += 75s;
  EXPECT_EQ(admissions.pop_expired(now), (NodeId{1, 1}));
  EXPECT_FALSE(admissions.pop_expired(now)) << "once";
  EXPECT_EQ(admissions.next_expiry(), Time::max());
}

TEST_F(AdmissionsTest, ARecordThatCannotBeReadIsAnError) {
  Batch writes;
  writes.put("joined/x", "nonsense");
  commit(writes);
  const auto read = Admissions::recover(*store, options, now);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message().find("joined node"), std::string::npos);
}

}  // namespace
}  // namespace troupe::control
