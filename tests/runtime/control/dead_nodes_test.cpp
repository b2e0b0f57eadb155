// Tests that dead nodes stay known for a day, within a bound, and across restarts.
#include "troupe/runtime/control/dead_nodes.hpp"
#include "troupe/runtime/control/memory_store.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace troupe::control {
namespace {

constexpr std::int64_t kHour = 3600LL * 1'000'000'000;

DeadNode dead_node(std::uint64_t n, std::int64_t at) {
  DeadNode node;
  node.description.id = NodeId{1, n};
  node.description.name = "n" + std::to_string(n);
  node.description.public_key = "key";
  node.description.labels = {{"zone", "a"}};
  node.epoch = n;
  node.why = "its process is gone";
  node.died_unix_ns = at;
  return node;
}

struct DeadNodesTest : testing::Test {
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store = open_memory_store(disk, {}).value();
  DeadNodes dead = DeadNodes::recover(*store).value();
  void add(const DeadNode& node) {
    Batch writes;
    dead.add(node, writes);
    ASSERT_TRUE(store->commit({&writes, 1}).ok());
  }
  std::size_t records() {
    std::size_t count = 0;
    EXPECT_TRUE(store->scan("dead/", [&](auto, auto) { ++count; }).ok());
    return count;
  }
  void restart() {
    store.reset();
    store = open_memory_store(disk, {}).value();
    dead = DeadNodes::recover(*store).value();
  }
};

TEST_F(DeadNodesTest, AreTheNewestFirstForADayAlsoAfterARestart) {
  add(dead_node(1, kHour));
  add(dead_node(2, 2 * kHour));
  restart();
  const auto all = dead.list(3 * kHour);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].description.name, "n2");
  EXPECT_EQ(all[1].why, "its process is gone");
  EXPECT_EQ(all[1].description.labels, dead_node(1, 0).description.labels);
  EXPECT_TRUE(all[0].description.public_key.empty());
  EXPECT_EQ(dead.list(25 * kHour).size(), 1U);
  add(dead_node(3, 26 * kHour + 1));
  EXPECT_EQ(records(), 1U) << "the old ones are deleted with the next death";
}

TEST_F(DeadNodesTest, AreBounded) {
  for (std::uint64_t n = 1; n <= DeadNodes::kMost + 9; ++n) add(dead_node(n, kHour));
  EXPECT_EQ(records(), DeadNodes::kMost);
  const auto all = dead.list(kHour);
  EXPECT_EQ(all.size(), DeadNodes::kMost);
  EXPECT_EQ(all.back().epoch, 10U) << "the youngest stay";
  DeadNode wordy = dead_node(1'000, kHour);
  wordy.why.assign(1 << 20, 'x');
  add(wordy);
  EXPECT_EQ(dead.list(kHour).front().why.size(), DeadNodes::kMaxWhy);
}

TEST_F(DeadNodesTest, ARecordThatCannotBeReadIsAnError) {
  Batch writes;
  writes.put("dead/x", "nonsense");
  ASSERT_TRUE(store->commit({&writes, 1}).ok());
  const auto read = DeadNodes::recover(*store);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message().find("dead node"), std::string::npos);
}

}  // namespace
}  // namespace troupe::control
