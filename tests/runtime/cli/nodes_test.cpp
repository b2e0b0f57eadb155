// Tests which node a person means by a name or a part of an id.
#include "troupe/runtime/cli/verbs.hpp"

#include <gtest/gtest.h>

#include <string>

namespace troupe::cli {
namespace {

control::ClusterRow row_named(const std::string& name, NodeId id) {
  control::ClusterRow row;
  row.description.name = name;
  row.description.id = id;
  return row;
}

/// Returns why the text is refused; empty: it is not.
std::string why_refused(const control::ListReply& reply, const std::string& text) {
  try {
    (void)find_node(reply, text);
    return "";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit, Exit::usage);
    return failure.error.message();
  }
}

bool has_part(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(FindNode, ANameOfSeveralLivingNodesIsRefusedWithTheirIds) {
  const NodeId first{1, 2}, second{3, 4}, third{5, 6};
  control::ListReply reply;
  reply.nodes = {row_named("node-0", first), row_named("node-1", second),
                 row_named("node-1", third)};
  const std::string why = why_refused(reply, "node-1");
  EXPECT_TRUE(has_part(why, "2 nodes have the name 'node-1'")) << why;
  EXPECT_TRUE(has_part(why, second.str()) && has_part(why, third.str())) << why;
  EXPECT_FALSE(has_part(why, first.str())) << why;
  EXPECT_EQ(find_node(reply, third.str()).description.id, third);
  EXPECT_EQ(find_node(reply, "node-0").description.id, first);
}

TEST(FindNode, AnIdMayBeShortenedToEightDigitsOfOneNode) {
  const NodeId first{0x1111111100000000, 2}, second{0x1111111122222222, 4};
  control::ListReply reply;
  reply.nodes = {row_named("node-0", first), row_named("node-1", second)};
  EXPECT_EQ(find_node(reply, second.str().substr(0, 12)).description.id, second);
  EXPECT_TRUE(has_part(why_refused(reply, second.str().substr(0, 8)), "2 nodes have the id"));
  EXPECT_TRUE(has_part(why_refused(reply, second.str().substr(0, 7)), "no node of the cluster"));
}

TEST(FindNode, ANodeThatHasEndedIsNamedAsSuch) {
  control::ListReply reply;
  reply.nodes = {row_named("node-0", {1, 2})};
  control::DeadNode dead, left;
  dead.description.name = "node-1";
  left.description.name = "node-2";
  left.left = true;
  reply.dead_nodes = {dead, left};
  EXPECT_TRUE(has_part(why_refused(reply, "node-1"), "'node-1' is dead"));
  EXPECT_TRUE(has_part(why_refused(reply, "node-2"), "'node-2' has left"));
  const std::string bad = why_refused(reply, "\x1b[2J");
  EXPECT_TRUE(has_part(bad, "node-0 (")) << bad;
  EXPECT_FALSE(has_part(bad, "\x1b"));
}

}  // namespace
}  // namespace troupe::cli
