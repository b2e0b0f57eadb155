// Tests that work goes to its data. On three nodes a task runs where most bytes of its arguments
// are, if that node has room, and the bytes stay there. An object that all nodes want reaches all
// of them.
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

namespace locality_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::NodeId;
using troupe::Placement;
using troupe::Ref;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

/// The node on which the task ran, and whether it saw all arguments.
struct Seen {
  NodeId node;
  std::uint64_t sum = 0;
};
Seen look(Context& ctx, const Numbers& a, const Numbers& b) {
  std::uint64_t sum = std::accumulate(a.begin(), a.end(), std::uint64_t{0});
  sum = std::accumulate(b.begin(), b.end(), sum);
  return {ctx.node(), sum};
}
std::uint64_t hold_up(std::uint64_t ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return ms;
}

class ClusterLocality : public testing::Test {
 protected:
  explicit ClusterLocality(unsigned count = 3)
      : session({.cpus = 2, .memory = troupe::Bytes{256 * kMiB}, .nodes = count}) {
    if (!eventually([&] { return all_idle(ctx, count, 2); }))
      throw std::runtime_error("the nodes did not come up");
    for (const auto& node : ctx.cluster().nodes) nodes.push_back(node.id);
  }
  auto on(std::size_t node) { return ctx.with({.placement = Placement::on(nodes.at(node))}); }
  std::uint64_t used() {
    std::uint64_t sum = 0;
    for (const auto& row : ctx.cluster().nodes) sum += row.store_used.count;
    return sum;
  }

  troupe::Session session;
  Context ctx = session.context();
  std::vector<NodeId> nodes;
};

TEST_F(ClusterLocality, ATaskGoesToItsLargeArguments) {
  std::vector<Ref<Numbers>> large, small;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    large.push_back(on(i).submit<numbers>(i, 8 * kMiB));
    small.push_back(on(i).submit<numbers>(10 + i, kMiB));
  }
  (void)ctx.wait(large, {.count = large.size(), .timeout = kBound});
  (void)ctx.wait(small, {.count = small.size(), .timeout = kBound});
  const std::uint64_t made = 3 * 9 * kMiB;
  ASSERT_TRUE(eventually(
      [&] { return used() >= made && used() < made + kMiB && all_idle(ctx, nodes.size(), 2); }));
  std::uint64_t elsewhere = 0, moved = 0;
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::size_t other = (i + 1) % nodes.size();
      const Seen seen = ctx.get(ctx.submit<look>(large[i], small[other]), kBound);
      EXPECT_EQ(seen.sum, sum_of_numbers(i, 8 * kMiB) + sum_of_numbers(10 + other, kMiB));
      elsewhere += seen.node != nodes[i] ? 1u : 0u;
      moved += (seen.node != nodes[i] ? 8 * kMiB : 0) + (seen.node != nodes[other] ? kMiB : 0);
    }
  EXPECT_LE(elsewhere, 1u) << "of 9; one may meet a node that is not heard of for a moment";
  EXPECT_LE(moved, 9 * kMiB + elsewhere * 8 * kMiB) << "the small ones";
}

TEST_F(ClusterLocality, ATaskDoesNotWaitForANodeThatIsFull) {
  const auto large = on(1).submit<numbers>(std::uint64_t{1}, 4 * kMiB);
  (void)ctx.wait(std::vector{large}, {.count = 1, .timeout = kBound});
  std::vector<Ref<std::uint64_t>> busy;
  for (int i = 0; i < 2; ++i) busy.push_back(on(1).submit<hold_up>(std::uint64_t{4000}));
  ASSERT_TRUE(eventually([&] {
    for (const auto& row : ctx.cluster().nodes)
      if (row.id == nodes[1]) return row.cpus_free == 0;
    return false;
  }));
  const auto start = std::chrono::steady_clock::now();
  const Seen seen = ctx.get(ctx.submit<look>(large, Numbers()), kBound);
  EXPECT_EQ(seen.sum, sum_of_numbers(1, 4 * kMiB));
  if (std::chrono::steady_clock::now() < start + 3s) {  // later, there was room on the node again
    EXPECT_NE(seen.node, nodes[1]);
  }
  for (const auto& each : busy) EXPECT_EQ(ctx.get(each, kBound), 4000u);
}

struct Reader {
  Numbers numbers;
  NodeId node(troupe::ActorContext& ctx) const { return ctx.node(); }
  std::uint64_t sum() const {
    return std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
  }
};

TEST_F(ClusterLocality, AnActorGoesToItsLargeArguments) {
  std::vector<Ref<Numbers>> large;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    large.push_back(on(i).submit<numbers>(i, 2 * kMiB));
  (void)ctx.wait(large, {.count = large.size(), .timeout = kBound});
  ASSERT_TRUE(eventually([&] { return all_idle(ctx, nodes.size(), 2); }));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto reader = ctx.spawn<Reader>(large[i]);
    EXPECT_TRUE(ctx.get(reader.call<&Reader::node>(), kBound) == nodes[i]) << i;
    EXPECT_EQ(ctx.get(reader.call<&Reader::sum>(), kBound), sum_of_numbers(i, 2 * kMiB));
  }
}

class ClusterOfEight : public ClusterLocality {
 protected:
  ClusterOfEight() : ClusterLocality(8) {}
};

TEST_F(ClusterOfEight, AllNodesGetWhatOneHas) {
  constexpr std::uint64_t bytes = 16 * kMiB;
  const auto large = ctx.put(numbers(7, bytes));
  std::vector<Ref<Seen>> seen;
  for (std::size_t i = 1; i < nodes.size(); ++i)
    seen.push_back(on(i).submit<look>(large, Numbers()));
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const Seen one = ctx.get(seen[i - 1], kBound);
    EXPECT_EQ(one.sum, sum_of_numbers(7, bytes));
    EXPECT_EQ(one.node, nodes[i]);
  }
}

}  // namespace
}  // namespace locality_test
