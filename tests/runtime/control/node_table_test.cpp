// Tests what control shows of a node: an entry belongs to one process, early reports count, and
// rows and listeners follow the entries.
#include "troupe/runtime/control/node_table.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe::control {
namespace {

using scheduling::kUnit;

NodeRecord record_of(std::uint64_t n, Epoch epoch) {
  NodeRecord record;
  record.description.id = NodeId{0, n};
  record.description.name = "n" + std::to_string(n);
  record.description.resources.cpus = 4 * kUnit;
  record.description.resources.gpus = 2 * kUnit;
  record.epoch = epoch;
  return record;
}

NodeReport report_of(std::int64_t cpus) {
  NodeReport report;
  report.view.free.cpus = cpus * kUnit;
  return report;
}

struct NodeTableTest : testing::Test {
  NodeTable nodes;
  const NodeId one{0, 1}, two{0, 2};
};

TEST_F(NodeTableTest, ANodeOfAnEarlierControlIsSuspectUntilItRegisters) {
  nodes.recover(record_of(1, 5));
  ASSERT_NE(nodes.find(one), nullptr);
  EXPECT_TRUE(nodes.find(one)->suspect);
  EXPECT_FALSE(nodes.find(one)->accepts());
  EXPECT_TRUE(nodes.listeners(true).empty());
  nodes.up(record_of(1, 5));
  EXPECT_TRUE(nodes.find(one)->accepts());
  EXPECT_EQ(nodes.listeners(false), std::vector<NodeId>{one});
  nodes.report(one, 5, report_of(1));
  nodes.up(record_of(1, 5));
  EXPECT_EQ(nodes.find(one)->report.view.free.cpus, kUnit) << "it registers again";
}

TEST_F(NodeTableTest, AnotherProcessBeginsAnew) {
  nodes.up(record_of(1, 5));
  nodes.find(one)->avoided = true;
  nodes.report(one, 5, report_of(1));
  nodes.up(record_of(1, 6));
  EXPECT_FALSE(nodes.find(one)->avoided);
  EXPECT_EQ(nodes.find(one)->report.view.free.cpus, 4 * kUnit);
  EXPECT_EQ(nodes.find(one, 5), nullptr);
  EXPECT_FALSE(nodes.remove(one, 5)) << "the death of the process before";
  EXPECT_NE(nodes.find(one), nullptr);
  EXPECT_TRUE(nodes.remove(one, 6));
  EXPECT_EQ(nodes.find(one), nullptr);
}

TEST_F(NodeTableTest, WithoutAReportAllCountsAsFree) {
  nodes.up(record_of(1, 5));
  EXPECT_EQ(nodes.find(one)->report.view.free.cpus, 4 * kUnit);
  EXPECT_EQ(nodes.find(one)->report.view.gpu_free.size(), 2U);
}

TEST_F(NodeTableTest, AReportFromBeforeTheRegistrationCountsFromThenOn) {
  EXPECT_EQ(nodes.report(one, 5, report_of(1)), nullptr);
  nodes.up(record_of(1, 5));
  EXPECT_EQ(nodes.find(one)->report.view.free.cpus, kUnit);
  EXPECT_NE(nodes.report(one, 5, report_of(2)), nullptr);
  EXPECT_EQ(nodes.find(one)->report.view.free.cpus, 2 * kUnit);
  nodes.report(two, 7, report_of(1));
  nodes.remove(two, 7);
  nodes.up(record_of(2, 8));
  EXPECT_EQ(nodes.find(two)->report.view.free.cpus, 4 * kUnit) << "the dead one's report";
}

TEST_F(NodeTableTest, RowsSayWhatTheEntriesSay) {
  nodes.up(record_of(1, 5));
  nodes.up(record_of(2, 6));
  nodes.find(two)->draining = true;
  const auto rows = nodes.rows(9);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].report.view.name, "n1");
  EXPECT_TRUE(rows[0].report.view.accepts);
  EXPECT_EQ(rows[1].epoch, 6U);
  EXPECT_FALSE(rows[1].report.view.accepts);
  EXPECT_EQ(nodes.rows(1).size(), 1U);
  nodes.find(one)->suspect = true;
  EXPECT_EQ(nodes.listeners(false), std::vector<NodeId>{two});
  EXPECT_EQ(nodes.listeners(true).size(), 2U);
}

}  // namespace
}  // namespace troupe::control
