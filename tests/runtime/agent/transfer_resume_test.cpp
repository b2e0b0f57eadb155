// Tests TransferPlan when a transfer breaks in the middle. Bytes that have arrived stay, other
// nodes are named, and a pull that joins a failing one does not fail with it. Also tests
// Broadcast, which names those nodes.
#include "tests/runtime/agent/transfer_plan_desk.hpp"
#include "troupe/runtime/agent/broadcast.hpp"
#include "troupe/runtime/base/random.hpp"

#include <algorithm>
#include <map>

namespace troupe::agent {
namespace {

using namespace test;

constexpr NodeId kThree{0, 3};
constexpr std::uint64_t kChunk = 256 << 10, kChunks = 16;

TEST(TransferResume, AConnectionThatBreaksAtAnyChunkGoesOnFromThere) {
  for (std::uint64_t k = 0; k <= kChunks; ++k) {
    Desk d;
    d.pull(kOne, 1, kChunks * kChunk);
    EXPECT_EQ(d.asks[0].have, 0u);
    d.plan.kept(d.asks[0].pull, k * kChunk, 77);
    d.end(kOne, d.offers[0].connection);
    ASSERT_EQ(d.asks.size(), 2u);
    EXPECT_EQ(d.asks[1].have, k * kChunk);
    EXPECT_EQ(d.asks[1].stamp, k == 0 ? 0u : 77u);
    EXPECT_EQ(d.asks[1].pull, d.asks[0].pull) << "the same memory";
    d.receive(d.asks[1]);
    EXPECT_EQ(d.completes.size(), 1u);
  }
}

TEST(TransferResume, OneThatBreaksAfterEachChunkArrivesAndOneThatBringsNothingIsGivenUp) {
  Desk d;
  d.pull(kOne, 1, kChunks * kChunk);
  for (std::uint64_t k = 1; k < kChunks; ++k) {
    ASSERT_EQ(d.asks.size(), k);
    d.plan.kept(d.asks.back().pull, k * kChunk, 77);
    d.end(kOne, d.offers.back().connection);
  }
  EXPECT_TRUE(d.failures.empty());
  EXPECT_EQ(d.asks.back().have, (kChunks - 1) * kChunk);
  d.end(kOne, d.offers.back().connection);
  d.end(kOne, d.offers.back().connection);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::unavailable);
  EXPECT_EQ(d.asks.size(), kChunks + 1);
  EXPECT_TRUE(d.memory.empty());
}

TEST(TransferResume, AnotherNodeThatTheOwnerNamesIsAsked) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.plan.elsewhere(kOne, d.asks[0].transfer, kTwo, d.now);
  d.settle();
  ASSERT_EQ(d.asks.size(), 2u);
  EXPECT_EQ(d.asks[1].node, kTwo);
  EXPECT_EQ(d.asks[1].connection, d.offers[1].connection);
  d.plan.received(kOne, d.asks[0].connection, d.asks[0].pull, d.now);
  d.settle();
  EXPECT_TRUE(d.completes.empty()) << "not of the owner any more";
  d.receive(d.asks[1]);
  ASSERT_EQ(d.completes.size(), 1u);
  EXPECT_EQ(d.completes[0].node, kOne) << "it is the owner's object";
  d.wait(30s);
  EXPECT_EQ(d.closes.size(), 2u) << "both connections are idle";
}

TEST(TransferResume, WhoeverDiesAtAnyChunkTheOwnerIsAskedForTheRest) {
  for (std::uint64_t k = 0; k < kChunks; ++k)
    for (const int how : {0, 1, 2}) {
      Desk d;
      d.pull(kOne, 1, kChunks * kChunk);
      d.plan.elsewhere(kOne, d.asks[0].transfer, kTwo, d.now);
      d.settle();
      d.plan.kept(d.asks[1].pull, k * kChunk, 9);
      if (how == 0) d.plan.node_died(kTwo, true, d.now);
      if (how == 2)
        d.plan.refused(kTwo, d.asks[1].transfer, Error(Code::object_lost, "gone"), d.now);
      d.settle();
      if (how != 2) d.end(kTwo, d.asks[1].connection);
      ASSERT_EQ(d.asks.size(), 3u) << how;
      EXPECT_EQ(d.asks[2].node, kOne);
      EXPECT_EQ(d.asks[2].have, k * kChunk);
      EXPECT_EQ(d.asks[2].without, kTwo);
      EXPECT_FALSE(d.asks[2].direct);
      d.plan.elsewhere(kOne, d.asks[2].transfer, kThree, d.now);
      d.settle();
      d.receive(d.asks[3]);
      EXPECT_EQ(d.completes.size(), 1u);
      EXPECT_TRUE(d.failures.empty() && d.memory.empty());
    }
}

TEST(TransferResume, AfterSomeDetoursTheOwnerMustSendItItself) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(d.asks.back().direct);
    d.plan.elsewhere(kOne, d.asks.back().transfer, NodeId{0, 10u + static_cast<unsigned>(i)},
                     d.now);
    d.settle();
    d.plan.refused(d.asks.back().node, d.asks.back().transfer, Error(Code::object_lost, "no"),
                   d.now);
    d.settle();
  }
  EXPECT_TRUE(d.asks.back().direct);
  EXPECT_EQ(d.asks.size(), 7u);
  d.plan.elsewhere(kOne, d.asks.back().transfer, kTwo, d.now);  // kOne ignores the direct request
  d.settle();
  ASSERT_EQ(d.closes.size(), 1u);
  d.end(kOne, d.closes[0].connection);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::internal);
}

TEST(TransferResume, NobodyButTheOwnerNamesOthersAndTheDeadAreNotAsked) {
  Desk d;
  d.plan.node_died(kThree, true, d.now);
  d.pull(kOne, 1, kMiB);
  d.plan.elsewhere(kTwo, d.asks[0].transfer, kTwo, d.now);
  d.settle();
  EXPECT_EQ(d.asks.size(), 1u);
  d.plan.elsewhere(kOne, d.asks[0].transfer, kThree, d.now);
  d.settle();
  ASSERT_EQ(d.asks.size(), 2u);
  EXPECT_EQ(d.asks[1].node, kOne);
  EXPECT_EQ(d.asks[1].without, kThree);
  d.plan.elsewhere(kOne, d.asks[1].transfer, kTwo, d.now);
  d.settle();
  d.plan.elsewhere(kTwo, d.asks[2].transfer, kOne, d.now);  // kTwo may not name other nodes
  d.settle();
  EXPECT_EQ(d.closes.size(), 1u);
  d.end(kTwo, d.asks[2].connection);
  ASSERT_EQ(d.asks.size(), 4u);
  EXPECT_EQ(d.asks[3].node, kOne);
  d.receive(d.asks[3]);
  EXPECT_EQ(d.completes.size(), 1u);
}

TEST(TransferResume, TheOwnerDiesWhileAnotherSends) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.pull(kOne, 2, kMiB);
  for (int i : {0, 1})
    d.plan.elsewhere(kOne, d.asks[static_cast<std::size_t>(i)].transfer, kTwo, d.now);
  d.settle();
  d.plan.node_died(kOne, true, d.now);
  d.settle();
  EXPECT_TRUE(d.failures.empty()) << "their memory is written";
  d.receive(d.asks[2]);
  EXPECT_EQ(d.completes.size(), 1u);
  d.end(kTwo, d.asks[2].connection);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::object_lost);
}

// --- joining a pull that is about to fail

TEST(TransferResume, WhoJoinsAPullOfANodeThatWasOutOfReachDoesNotGetItsError) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.plan.node_died(kOne, false, d.now);  // its memory is still being written
  d.settle();
  d.pull(kOne, 1, kMiB);
  d.end(kOne, d.offers[0].connection);
  EXPECT_TRUE(d.failures.empty());
  ASSERT_EQ(d.asks.size(), 2u) << "asked anew";
  d.receive(d.asks[1]);
  EXPECT_EQ(d.completes.size(), 1u);
}

TEST(TransferResume, WhoJoinsAPullWithALastTryLeftHasAllOfThem) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.end(kOne, d.offers[0].connection);
  d.pull(kOne, 1, kMiB);
  d.end(kOne, d.offers[1].connection);
  EXPECT_TRUE(d.failures.empty());
  d.end(kOne, d.offers[2].connection);
  EXPECT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.asks.size(), 3u) << "and no more";
}

TEST(TransferResume, WhoJoinsOneWhoseNodeBrokeTheProtocolIsServedOnceMore) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.plan.on_bulk(kOne, d.asks[0].transfer, kMiB + 1, d.now);
  d.settle();
  d.pull(kOne, 1, kMiB);
  d.pull(kOne, 1, kMiB);
  d.end(kOne, d.offers[0].connection);
  ASSERT_EQ(d.asks.size(), 2u);
  d.plan.on_bulk(kOne, d.asks[1].transfer, kMiB + 1, d.now);
  d.settle();
  d.end(kOne, d.offers[1].connection);
  ASSERT_EQ(d.failures.size(), 1u) << "asked once for those that joined";
  EXPECT_EQ(d.asks.size(), 2u);
}

TEST(TransferResume, WhoWantsAnotherLifeOfTheObjectGetsThat) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.pull(kOne, 1, 2 * kMiB);  // the object was computed again, and is larger now
  d.receive(d.asks[0]);
  ASSERT_EQ(d.completes.size(), 1u);
  EXPECT_FALSE(d.completes[0].wanted);
  ASSERT_EQ(d.asks.size(), 2u);
  d.receive(d.asks[1]);
  EXPECT_TRUE(d.completes[1].wanted);
  d.pull(kOne, 2, kMiB);
  d.pull(kOne, 2, 2 * kMiB);
  d.plan.cancel(object(2), d.now);
  d.receive(d.asks[2]);
  EXPECT_EQ(d.asks.size(), 3u) << "nobody wants either";
  EXPECT_EQ(d.plan.pulls(), 0u);
}

TEST(TransferResume, APartOfALifeThatIsOverIsDroppedAndTheOtherIsFetchedFromItsBeginning) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.plan.kept(d.asks[0].pull, kMiB / 2, 77);
  d.end(kOne, d.offers[0].connection);
  ASSERT_EQ(d.asks.size(), 2u);
  EXPECT_EQ(d.asks[1].have, kMiB / 2);
  d.plan.refused(kOne, d.asks[1].transfer, Error(Code::object_lost, "its bytes are others"), d.now);
  d.settle();
  EXPECT_TRUE(d.failures.empty()) << "the owner has the object";
  ASSERT_EQ(d.asks.size(), 3u);
  EXPECT_EQ(d.asks[2].have, 0u);
  EXPECT_NE(d.asks[2].pull, d.asks[1].pull) << "others may be reading the old part";
  d.plan.refused(kOne, d.asks[2].transfer, Error(Code::object_lost, "it is gone"), d.now);
  d.settle();
  ASSERT_EQ(d.failures.size(), 1u) << "nothing of it was here";
  EXPECT_EQ(d.asks.size(), 3u);
  EXPECT_EQ(d.plan.pulls(), 0u);
}

TEST(TransferResume, ADeadNodeIsNotAskedAgainForThoseWhoJoin) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.plan.node_died(kOne, true, d.now);
  d.settle();
  d.pull(kOne, 1, kMiB);
  d.end(kOne, d.offers[0].connection);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::object_lost);
  EXPECT_EQ(d.asks.size(), 1u);
}

TEST(TransferResume, GetsGoBeforeWaitsAndWaitsBeforePrefetches) {
  PlanOptions options;
  options.node_bytes = kMiB;
  Desk d(options);
  d.pull(kOne, 1, kMiB, Priority::prefetch);
  d.pull(kOne, 2, kMiB, Priority::prefetch);
  d.pull(kOne, 3, kMiB, Priority::wait);
  d.pull(kOne, 4, kMiB, Priority::get);
  d.pull(kOne, 5, kMiB, Priority::prefetch);
  d.pull(kOne, 5, kMiB, Priority::wait);
  d.pull(kOne, 5, kMiB, Priority::prefetch);  // the priority does not become lower again
  for (std::size_t i = 0; i < 5; ++i) d.receive(d.asks[i]);
  std::vector<std::uint64_t> order;
  for (const auto& ask : d.asks) order.push_back(ask.object.low);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 4, 3, 5, 2}));
}

// --- which node serves which

TEST(Broadcast, TheFirstTwoAreServedHereTheOthersByThem) {
  Broadcast tree;
  std::map<NodeId, std::size_t> fed;
  std::map<NodeId, std::size_t> depth;
  for (std::uint64_t n = 1; n <= 30; ++n) {
    const auto other = tree.place(object(1), 5, NodeId{0, n}, {}, false);
    EXPECT_EQ(other.has_value(), n > 2);
    ++fed[other.value_or(NodeId{})];
    const NodeId node{0, n};
    depth[node] = 1 + (other ? depth.at(*other) : 0);
    EXPECT_LE(depth.rbegin()->second, 4u) << n;
  }
  for (const auto& [node, count] : fed) EXPECT_LE(count, 2u);
}

/// Each node's link sends one piece at a time. A node can pass a piece on once it has arrived.
TEST(Broadcast, EightNodesHaveItInLittleMoreThanTheTimeOfTwoCopies) {
  constexpr std::size_t nodes = 8, pieces = 64;
  Broadcast tree;
  std::map<std::size_t, std::vector<std::size_t>> children;
  for (std::size_t n = 1; n <= nodes; ++n) {
    const auto other = tree.place(object(1), 5, NodeId{0, n}, {}, false);
    children[other ? other->low : 0].push_back(n);
  }
  std::vector<std::size_t> has(nodes + 1, 0);
  has[0] = pieces;
  std::size_t ticks = 0, sent_by_origin = 0;
  for (; std::count(has.begin(), has.end(), pieces) <= static_cast<long>(nodes); ++ticks) {
    ASSERT_LT(ticks, 4 * pieces);
    const std::vector<std::size_t> had = has;
    for (const auto& [from, to] : children) {
      const auto next = std::min_element(
          to.begin(), to.end(), [&](std::size_t a, std::size_t b) { return had[a] < had[b]; });
      if (had[*next] >= had[from]) continue;
      ++has[*next];
      sent_by_origin += from == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(sent_by_origin, 2 * pieces);
  EXPECT_LE(ticks, 2 * pieces + 2 * nodes);
}

TEST(Broadcast, WhoDidNotDeliverIsNotNamedUntilItHasAskedItself) {
  Broadcast tree;
  tree.place(object(1), 5, kOne, {}, false);
  tree.place(object(1), 5, kTwo, {}, false);
  EXPECT_EQ(tree.place(object(1), 5, kThree, {}, false), kOne);
  EXPECT_EQ(tree.place(object(1), 5, kThree, kOne, false), kTwo);
  EXPECT_EQ(tree.place(object(1), 5, kThree, kTwo, false), std::nullopt) << "nobody is left";
  EXPECT_EQ(tree.place(object(1), 5, NodeId{0, 4}, {}, false), kThree);
  EXPECT_EQ(tree.place(object(1), 5, kOne, {}, false), kThree);
  EXPECT_EQ(tree.place(object(1), 5, NodeId{0, 5}, {}, true), std::nullopt) << "it insists";
  EXPECT_EQ(tree.place(object(1), 6, NodeId{0, 6}, {}, false), std::nullopt) << "another life";
}

TEST(Broadcast, ForgetsWhatWasNotAskedForLongest) {
  Broadcast tree({.fan = 1, .objects = 3});
  for (std::uint64_t n = 1; n <= 5; ++n) tree.place(object(n), 5, kOne, {}, false);
  EXPECT_EQ(tree.size(), 3u);
  EXPECT_EQ(tree.place(object(5), 5, kTwo, {}, false), kOne);
  EXPECT_EQ(tree.place(object(1), 5, kTwo, {}, false), std::nullopt);
}

/// Nodes ask, fail, die and ask again in any order. The nodes that are named as sources must form
/// no circle.
TEST(Broadcast, NoCircles) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Broadcast tree;
    std::map<NodeId, NodeId> source;  // each node's source
    for (int step = 0; step < 200; ++step) {
      const NodeId node{0, 1 + random.below(9)};
      if (random.chance(0.1)) {
        tree.node_died(node);
        source.erase(node);
        std::erase_if(source, [&](const auto& each) { return each.second == node; });
        continue;
      }
      const NodeId without = random.chance(0.3) ? source[node] : NodeId{};
      const auto other = tree.place(object(1), 1, node, without, random.chance(0.1));
      source.erase(node);
      if (!other) continue;
      source[node] = *other;
      NodeId at = node;
      for (int i = 0; i < 20 && source.count(at) != 0; ++i) at = source.at(at);
      ASSERT_EQ(source.count(at), 0u) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace troupe::agent
