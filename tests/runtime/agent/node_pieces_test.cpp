// Tests that the answer to ListNodes passes a ring in pieces, whatever the nodes offer.
#include "troupe/runtime/agent/node_pieces.hpp"

#include "troupe/runtime/ring/ring.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe::agent::node_pieces_test {
namespace {

wire::Nodes nodes(std::size_t rows, std::size_t resources, std::size_t name) {
  wire::Nodes answer{7, {}};
  for (std::size_t i = 0; i < rows; ++i) {
    wire::NodeRow& row = answer.rows.emplace_back();
    row.id = NodeId{1, i};
    row.name = "node-" + std::to_string(i);
    row.address = "host-" + std::to_string(i) + ".cluster";
    for (std::size_t n = 0; n < resources; ++n)
      row.resources.emplace_back(std::string(name, static_cast<char>('a' + n % 26)), 10'000);
  }
  return answer;
}

/// Returns the rows of all pieces in order. Checks that each piece fits a ring's frame.
std::vector<wire::NodeRow> joined(const std::vector<wire::Nodes>& pieces) {
  std::vector<wire::NodeRow> rows;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].request, 7u);
    EXPECT_EQ(pieces[i].more, i + 1 < pieces.size());
    EXPECT_LE(wire::FrameWriter().encode(wire::NodeMessage(pieces[i])).size(), ring::kMaxFrame);
    rows.insert(rows.begin(), pieces[i].rows.begin(), pieces[i].rows.end());
  }
  return rows;
}

TEST(NodePieces, FewNodesComeInOnePiece) {
  EXPECT_EQ(pieces_of(nodes(0, 0, 0)).size(), 1u);
  const auto pieces = pieces_of(nodes(3, 2, 8));
  EXPECT_EQ(pieces.size(), 1u);
  EXPECT_EQ(joined(pieces).size(), 3u);
}

TEST(NodePieces, NodesWithManyResourcesFitTheFramesOfARing) {
  const auto rows = joined(pieces_of(nodes(100, wire::kMaxResources, 40)));
  ASSERT_EQ(rows.size(), 100u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].id, (NodeId{1, i}));
    EXPECT_EQ(rows[i].resources.size(), wire::kMaxResources);
  }
}

TEST(NodePieces, RowThatIsTooLargeLeavesOutResources) {
  const auto rows = joined(pieces_of(nodes(3, wire::kMaxResources, 1000)));
  ASSERT_EQ(rows.size(), 3u);
  for (const wire::NodeRow& row : rows) {
    EXPECT_GT(row.resources.size(), 0u);
    EXPECT_LT(row.resources.size(), wire::kMaxResources);
  }
}

}  // namespace
}  // namespace troupe::agent::node_pieces_test
