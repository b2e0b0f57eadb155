#include "troupe/train/internal/gang_place.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace troupe::train::internal {
namespace {

/// Absorbs the rounding of sums and quotients of amounts, which are multiples of 0.0001.
constexpr double kRounding = 1e-6;
constexpr int kMostOnDevice = 10'000;

/// Returns floor(have / each), at most `most`.
int times(double have, double each, int most) {
  if (each <= 0) return most;
  const double count = std::floor(have / each + kRounding);
  return count >= most ? most : static_cast<int>(std::max(count, 0.0));
}

/// Returns how many ranks fit into these amounts, at most all of the gang.
int ranks_in(const GangNeed& need, double cpus, double gpus) {
  const int by_cpus = times(cpus, need.cpus, need.workers);
  if (need.gpus <= 0 || need.gpus >= 1)
    return std::min(by_cpus, times(gpus, need.gpus, need.workers));
  // A share of a GPU lies on one device.
  const double whole = std::floor(gpus + kRounding);
  const int each = times(1, need.gpus, need.workers);
  const double by_gpus = whole * each + times(gpus - whole, need.gpus, need.workers);
  return std::min(by_cpus, times(by_gpus, 1, need.workers));
}

/// A node with the number of tensor-parallel groups that it can take now, and gets.
struct Site {
  const NodeInfo* node = nullptr;
  int room = 0, gets = 0;
};

bool accepts(const NodeInfo& node) {
  const bool drains = node.draining && !TROUPE_MUTANT("gang.draining_node");
  return node.alive && !node.suspect && !drains && node.cpus > 0;
}

int room_of(const NodeInfo& node, const GangNeed& need, const GangHeld& held) {
  if (!accepts(node)) return 0;
  const auto at = held.find(node.id);
  const double ranks = at != held.end() ? at->second : 0;
  return ranks_in(need, std::min(node.cpus, node.cpus_free + ranks * need.cpus),
                  std::min(node.gpus, node.gpus_free + ranks * need.gpus)) /
         need.tp;
}

/// Returns the nodes in the order of ranks: the driver's, then by name, node-2 before node-10.
std::vector<Site> sites_of(const std::vector<NodeInfo>& nodes, const GangNeed& need, NodeId driver,
                           const GangHeld& held) {
  std::vector<Site> sites;
  for (const NodeInfo& node : nodes) sites.push_back({&node, room_of(node, need, held)});
  const auto key = [driver](const Site& site) {
    const NodeInfo& node = *site.node;
    return std::make_tuple(node.id != driver, node.name.size(), std::cref(node.name), node.id);
  };
  std::sort(sites.begin(), sites.end(),
            [&key](const Site& a, const Site& b) { return key(a) < key(b); });
  return sites;
}

/// Gives each group to the first of the nodes with the fewest. Precondition: there is room for all.
void spread(std::vector<Site>& sites, int groups) {
  for (; groups > 0; --groups) {
    Site* next = nullptr;
    for (Site& site : sites)
      if (site.gets < site.room && (next == nullptr || site.gets < next->gets)) next = &site;
    if (next == nullptr) return;
    ++next->gets;
  }
}

/// Fills the first node that holds all groups, else those with the most room.
void pack(std::vector<Site>& sites, int groups) {
  std::vector<Site*> order;
  for (Site& site : sites) order.push_back(&site);
  // The room of a node counts at most the groups that there are, so nodes that hold all are equal.
  std::stable_sort(order.begin(), order.end(),
                   [](const Site* a, const Site* b) { return a->room > b->room; });
  for (Site* site : order) {
    site->gets = std::min(site->room, groups);
    groups -= site->gets;
  }
}

/// Returns the rest of a sentence on why no cluster of these nodes ever takes the gang; empty when
/// it could.
std::string never(const std::vector<NodeInfo>& nodes, const GangNeed& need) {
  int all = 0, most = 0, count = 0;
  double cpus = 0, gpus = 0;
  for (const NodeInfo& node : nodes) {
    if (!node.alive && !node.suspect) continue;
    const int room = ranks_in(need, node.cpus, node.gpus) / need.tp;
    ++count;
    all += room;
    most = std::max(most, room);
    cpus = std::max(cpus, node.cpus);
    gpus = std::max(gpus, node.gpus);
  }
  const bool one = count < 2;
  if ((one ? most : all) >= need.workers / need.tp) return "";
  const bool of_cpus = ranks_in({need.workers, 1, need.cpus, 0}, cpus, 0) < need.workers;
  const double total = need.workers * (of_cpus ? need.cpus : need.gpus);
  const char* what = of_cpus ? "CPU" : "GPU";
  if (most == 0 && need.tp > 1)
    return fmt::format("has tp = {}, and no node has room for {} ranks with {} {} each", need.tp,
                       need.tp, of_cpus ? need.cpus : need.gpus, what);
  if (one)
    return fmt::format("needs {} {}, no node has more than {}", total, what, of_cpus ? cpus : gpus);
  return fmt::format("needs {} {}, and the {} nodes have room for {} ranks", total, what, count,
                     all * need.tp);
}

}  // namespace

GangPlaces gang_place(const std::vector<NodeInfo>& nodes, const GangNeed& need, NodeId driver,
                      const GangHeld& held) {
  const int groups = need.workers / need.tp;
  std::vector<Site> sites = sites_of(nodes, need, driver, held);
  if (need.cpus <= 0 && need.gpus <= 0 &&
      std::none_of(nodes.begin(), nodes.end(), [](const NodeInfo& n) { return n.cpus > 0; }))
    for (Site& site : sites) site.room = site.node->id == driver ? groups : 0;
  if (std::string why = never(nodes, need); !why.empty())
    return {GangPlaces::Fit::never, {}, std::move(why)};
  const int most = std::accumulate(sites.begin(), sites.end(), 0, [&](int sum, const Site& site) {
    return std::min(sum + site.room, groups);
  });
  if (most < groups) return {GangPlaces::Fit::not_now, {}, ""};
  if (need.spread)
    spread(sites, groups);
  else
    pack(sites, groups);
  GangPlaces places{GangPlaces::Fit::placed, {}, ""};
  for (const Site& site : sites)
    places.nodes.insert(places.nodes.end(), static_cast<std::size_t>(site.gets) * need.tp,
                        site.node->id);
  return places;
}

std::string gang_devices(std::string_view all, int rank, double gpus) {
  std::vector<std::string_view> devices;
  while (!all.empty()) {
    const std::size_t comma = std::min(all.find(','), all.size());
    devices.push_back(all.substr(0, comma));
    all.remove_prefix(std::min(comma + 1, all.size()));
  }
  const int on_one = gpus < 1 ? times(1, gpus, kMostOnDevice) : 1;
  const auto each = static_cast<std::size_t>(std::max(gpus, 1.0));
  const std::size_t first = static_cast<std::size_t>(rank / on_one) * each;
  std::string mine;
  for (std::size_t d = first; d < std::min(first + each, devices.size()); ++d)
    mine += (mine.empty() ? "" : ",") + std::string(devices[d]);
  return mine;
}

NodeId here(Context& ctx) {
  return ctx.node();
}

}  // namespace troupe::train::internal
