// Tests the states of nodes that verbs show.
#include "troupe/runtime/cli/node_states.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace troupe::cli {
namespace {

control::ClusterRow node(const std::string& name) {
  control::ClusterRow row;
  row.description.id = NodeId::random();
  row.description.name = name;
  row.description.address = "10.0.0.7:6500";
  return row;
}

TEST(NodeStates, ANodeThatOthersCannotReachIsUnreachableAndSaysFromWhere) {
  std::vector<control::ClusterRow> nodes{node("node-0"), node("node-1"), node("node-2")};
  nodes[0].report.unreachable = {nodes[2].description.id};
  nodes[1].report.unreachable = {nodes[2].description.id};
  nodes[2].draining = true;
  nodes[2].slow = "slower than the others";
  const NodeStates states(nodes);
  EXPECT_STREQ(states.state_of(nodes[0]), "alive");
  EXPECT_EQ(states.why(nodes[0]), "");
  EXPECT_STREQ(states.state_of(nodes[2]), "unreachable");
  EXPECT_EQ(states.unreached_from(nodes[2]), (std::vector<std::string>{"node-0", "node-1"}));
  const std::string why = states.why(nodes[2]);
  EXPECT_EQ(why.rfind("unreachable from 2 nodes (node-0, node-1)", 0), 0u) << why;
  EXPECT_NE(why.find("10.0.0.7:6500"), std::string::npos) << why;
}

TEST(NodeStates, ASilentNodeIsSuspectAndASlowOneSaysWhy) {
  std::vector<control::ClusterRow> nodes{node("node-0"), node("node-1"), node("node-2")};
  nodes[0].suspect = true;
  nodes[1].avoided = true;
  nodes[1].slow = "slower than the others";
  nodes[2].draining = true;
  const NodeStates states(nodes);
  EXPECT_STREQ(states.state_of(nodes[0]), "suspect");
  EXPECT_STREQ(states.state_of(nodes[1]), "slow");
  EXPECT_EQ(states.why(nodes[1]), "slower than the others");
  EXPECT_STREQ(states.state_of(nodes[2]), "draining");
}

TEST(NodeStates, ASentenceNamesFiveNodesAtMost) {
  std::vector<control::ClusterRow> nodes;
  for (int i = 0; i < 8; ++i) nodes.push_back(node("node-" + std::to_string(i)));
  for (int i = 1; i < 8; ++i)
    nodes[static_cast<std::size_t>(i)].report.unreachable = {nodes[0].description.id};
  const std::string why = NodeStates(nodes).why(nodes[0]);
  EXPECT_NE(why.find("from 7 nodes (node-1, node-2, node-3, node-4, node-5, ...)"),
            std::string::npos)
      << why;
}

}  // namespace
}  // namespace troupe::cli
