// Tests where the ranks of a gang go: every small cluster against the rules, and the sentences.
#include "troupe/train/internal/gang_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace troupe::train::internal {
namespace {

using Fit = GangPlaces::Fit;
using Counts = std::vector<int>;

NodeId id(std::uint64_t number) {
  return NodeId{number, 1};
}

/// A node "node-N" with this id, of `total` CPUs of which `free` are free.
NodeInfo node(int number, double total, double free) {
  NodeInfo info;
  info.id = id(static_cast<std::uint64_t>(number));
  info.name = "node-" + std::to_string(number);
  info.cpus = total;
  info.cpus_free = free;
  return info;
}

/// Returns the number of ranks on each node, by its number from 1. Fails unless the ranks of each
/// node are consecutive and the nodes in order.
Counts counts(const GangPlaces& places, int nodes) {
  Counts ranks(static_cast<std::size_t>(nodes));
  std::uint64_t last = 0;
  for (const NodeId place : places.nodes) {
    EXPECT_GE(place.high, last);
    last = place.high;
    ++ranks.at(last - 1);
  }
  return ranks;
}

/// Calls `check` with each list of `size` numbers from 0 to `most`.
void each_list(int size, int most, const std::function<void(const Counts&)>& check) {
  Counts list(static_cast<std::size_t>(size));
  for (;;) {
    check(list);
    std::size_t at = 0;
    while (at < list.size() && list[at] == most) list[at++] = 0;
    if (at == list.size()) return;
    ++list[at];
  }
}

void check_pack(const Counts& got, const Counts& room, int groups) {
  const auto whole = std::find_if(room.begin(), room.end(), [&](int r) { return r >= groups; });
  if (whole != room.end()) {
    EXPECT_EQ(got[static_cast<std::size_t>(whole - room.begin())], groups) << "the first that can";
    return;
  }
  Counts most = room;
  std::sort(most.rbegin(), most.rend());
  int least = 0;
  for (int held = 0; held < groups; ++least) held += most[static_cast<std::size_t>(least)];
  EXPECT_EQ(std::count_if(got.begin(), got.end(), [](int n) { return n > 0; }), least);
}

void check_spread(const Counts& got, const Counts& room) {
  for (std::size_t a = 0; a < got.size(); ++a)
    for (std::size_t b = 0; b < got.size(); ++b) {
      if (got[a] >= room[a]) continue;  // full
      EXPECT_LE(got[b], got[a] + (a < b ? 0 : 1)) << "uneven, or the first have not got the rest";
    }
}

TEST(GangPlace, EverySmallClusterObeysTheRules) {
  constexpr int kNodes = 3, kCpus = 4;
  each_list(kNodes, kCpus, [&](const Counts& free) {
    std::vector<NodeInfo> nodes;
    for (int i = 0; i < kNodes; ++i)
      nodes.insert(nodes.begin(), node(i + 1, kCpus, free[static_cast<std::size_t>(i)]));
    for (const int tp : {1, 2, 4})
      for (int groups = 1; groups * tp <= 13; ++groups)
        for (const bool spread : {false, true}) {
          const GangNeed need{.workers = groups * tp, .tp = tp, .cpus = 1, .spread = spread};
          const GangPlaces places = gang_place(nodes, need, id(1));
          Counts room;
          for (const int cpus : free) room.push_back(cpus / tp);
          const int all = std::accumulate(room.begin(), room.end(), 0);
          const Fit fit = groups > kNodes * (kCpus / tp) ? Fit::never
                          : groups > all                 ? Fit::not_now
                                                         : Fit::placed;
          ASSERT_EQ(places.fit, fit) << groups << " groups of " << tp;
          if (fit != Fit::placed) continue;
          Counts got = counts(places, kNodes);
          for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i] % tp, 0) << "a group spans nodes";
            got[i] /= tp;
            ASSERT_LE(got[i], room[i]);
          }
          ASSERT_EQ(std::accumulate(got.begin(), got.end(), 0), groups);
          spread ? check_spread(got, room) : check_pack(got, room, groups);
        }
  });
}

TEST(GangPlace, TheDriversNodeComesFirstAndThenNamesAsPeopleCount) {
  std::vector<NodeInfo> nodes{node(1, 1, 1), node(2, 1, 1), node(3, 1, 1)};
  nodes[0].name = "node-10";
  nodes[1].name = "node-9";
  nodes[2].name = "node-11";
  const GangNeed three{.workers = 3, .cpus = 1};
  EXPECT_EQ(gang_place(nodes, three, id(3)).nodes, (std::vector<NodeId>{id(3), id(2), id(1)}));
}

TEST(GangPlace, WhatTheGangBeforeHeldIsFree) {
  const std::vector<NodeInfo> nodes{node(1, 2, 0), node(2, 2, 1)};
  const GangNeed two{.workers = 2, .cpus = 1};
  EXPECT_EQ(gang_place(nodes, two, id(1)).fit, Fit::not_now);
  EXPECT_EQ(counts(gang_place(nodes, two, id(1), {{id(1), 1}}), 2), (Counts{1, 1}));
  EXPECT_EQ(counts(gang_place(nodes, two, id(1), {{id(2), 1}}), 2), (Counts{0, 2}));
  // What is reported as free again already does not count twice.
  EXPECT_EQ(gang_place({node(1, 1, 1)}, two, id(1), {{id(1), 1}}).fit, Fit::never);
}

TEST(GangPlace, DrainingSuspectAndDeadNodesHaveNoRoom) {
  for (int what = 0; what < 3; ++what) {
    std::vector<NodeInfo> nodes{node(1, 2, 2), node(2, 2, 2)};
    nodes[0].draining = what == 0;
    nodes[0].suspect = what == 1;
    nodes[0].alive = what == 0;
    EXPECT_EQ(counts(gang_place(nodes, {.workers = 2, .cpus = 1}, id(1)), 2), (Counts{0, 2}));
    const Fit all = gang_place(nodes, {.workers = 4, .cpus = 1}, id(1)).fit;
    EXPECT_EQ(all, what == 2 ? Fit::never : Fit::not_now) << "a suspect node may come back";
  }
}

TEST(GangPlace, AGangThatReservesNothingStaysWithItsDriverUnlessThatHasNoCpus) {
  const GangNeed five{.workers = 5};
  EXPECT_EQ(counts(gang_place({node(1, 1, 0), node(2, 1, 0)}, five, id(2)), 2), (Counts{0, 5}));
  EXPECT_EQ(counts(gang_place({node(1, 0, 0), node(2, 1, 0)}, five, id(1)), 2), (Counts{0, 5}));
  EXPECT_EQ(counts(gang_place({node(1, 0, 0)}, five, id(1)), 1), (Counts{5}));
  const GangNeed spread{.workers = 5, .spread = true};
  EXPECT_EQ(counts(gang_place({node(1, 1, 0), node(2, 1, 0)}, spread, id(1)), 2), (Counts{3, 2}));
}

TEST(GangPlace, SharesOfAGpuLieOnOneDeviceAndRanksWithGpusOnOneNode) {
  NodeInfo gpus = node(1, 1, 1);
  gpus.gpus = gpus.gpus_free = 2;
  const auto fit = [&](int workers, double each, double free) {
    gpus.gpus_free = free;
    return gang_place({gpus}, {.workers = workers, .gpus = each}, id(1)).fit;
  };
  EXPECT_EQ(fit(4, 0.5, 2), Fit::placed);
  EXPECT_EQ(fit(5, 0.5, 2), Fit::never);
  EXPECT_EQ(fit(3, 0.4, 2), Fit::placed);
  EXPECT_EQ(fit(5, 0.4, 2), Fit::never)
      << "two shares of 0.4 fit on a device, and not two and a half";
  EXPECT_EQ(fit(3, 0.5, 1), Fit::not_now);
  EXPECT_EQ(fit(2, 1, 2), Fit::placed);
  std::vector<NodeInfo> two{gpus, node(2, 1, 1)};
  two[0].gpus = two[0].gpus_free = two[1].gpus = two[1].gpus_free = 1;
  EXPECT_EQ(counts(gang_place(two, {.workers = 2, .gpus = 1}, id(1)), 2), (Counts{1, 1}));
  EXPECT_EQ(gang_place(two, {.workers = 3, .gpus = 1}, id(1)).fit, Fit::never);
  EXPECT_EQ(gang_place(two, {.workers = 2, .tp = 2, .gpus = 1}, id(1)).fit, Fit::never);
}

TEST(GangPlace, TheSentencesNameWhatIsMissing) {
  const auto why = [](const std::vector<NodeInfo>& nodes, const GangNeed& need) {
    return gang_place(nodes, need, id(1)).why;
  };
  EXPECT_EQ(why({node(1, 2, 2)}, {.workers = 3, .cpus = 1}),
            "needs 3 CPU, no node has more than 2");
  EXPECT_EQ(why({node(1, 2, 2), node(2, 2, 2)}, {.workers = 5, .cpus = 1}),
            "needs 5 CPU, and the 2 nodes have room for 4 ranks");
  EXPECT_EQ(why({node(1, 2, 2), node(2, 2, 2)}, {.workers = 4, .tp = 4, .cpus = 1}),
            "has tp = 4, and no node has room for 4 ranks with 1 CPU each");
}

TEST(GangPlace, RanksShareTheDevicesOfTheirGang) {
  EXPECT_EQ(gang_devices("4,5,7", 0, 1), "4");
  EXPECT_EQ(gang_devices("4,5,7", 2, 1), "7");
  EXPECT_EQ(gang_devices("4,5,7,9", 1, 2), "7,9");
  EXPECT_EQ(gang_devices("4,GPU-ab", 1, 0.5), "4");
  EXPECT_EQ(gang_devices("4,GPU-ab", 2, 0.5), "GPU-ab");
  EXPECT_EQ(gang_devices("", 0, 1), "");
}

}  // namespace
}  // namespace troupe::train::internal
