#include "troupe/runtime/scheduling/policy.hpp"

#include "troupe/runtime/scheduling/internal/choose.hpp"

#include <algorithm>
#include <compare>
#include <cstdio>
#include <optional>

namespace troupe::scheduling {
namespace {

constexpr double kPackUntil = 0.5;

/// Whether `have` covers `need`. A negative need is never covered, since it would add resources.
bool enough(std::int64_t have, std::int64_t need) {
  return need >= 0 && need <= have;
}

bool enough(const Resources& have, const Resources& need) {
  if (!enough(have.cpus, need.cpus) || !enough(have.memory, need.memory)) return false;
  return std::all_of(need.custom.begin(), need.custom.end(), [&](const auto& want) {
    return enough(have.custom_amount(want.first), want.second);
  });
}

bool has_labels(const NodeView& node, const Labels& labels) {
  return labels.empty() || std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
           return std::find(node.labels.begin(), node.labels.end(), label) != node.labels.end();
         });
}

bool expressible(Amount gpus) {
  return gpus >= 0 && (gpus <= kUnit || gpus % kUnit == 0);
}

/// Whether the empty node could take the demand, whatever placement the demand wants.
bool could_take(const NodeView& node, const ResourceDemand& demand) {
  return has_labels(node, demand.labels) && enough(node.total, demand.need) &&
         expressible(demand.need.gpus) && node.total.gpus >= demand.need.gpus;
}

bool has_free(const NodeView& node, const ResourceDemand& demand) {
  return enough(node.free, demand.need) &&
         (demand.need.gpus == 0 || !choose_gpus(node.gpu_free, demand.need.gpus).empty());
}

/// Use of the scarcest resource after the demand is placed, 0 to 1.
double use_after(const NodeView& node, const Resources& need) {
  double use = 0;
  const auto consider = [&use](double total, double free, double want) {
    if (total > 0) use = std::max(use, (total - free + want) / total);
  };
  const auto real = [](std::int64_t amount) { return static_cast<double>(amount); };
  consider(real(node.total.cpus), real(node.free.cpus), real(need.cpus));
  consider(real(node.total.gpus), real(node.free.gpus), real(need.gpus));
  consider(real(node.total.memory), real(node.free.memory), real(need.memory));
  for (const auto& [name, want] : need.custom)
    consider(real(node.total.custom_amount(name)), real(node.free.custom_amount(name)), real(want));
  return use;
}

bool holds(std::span<const NodeId> nodes, NodeId node) {
  return !nodes.empty() && std::ranges::binary_search(nodes, node);
}

std::uint64_t local_bytes(const ResourceDemand& demand, NodeId node) {
  for (const auto& [id, bytes] : demand.locality)
    if (id == node) return bytes;
  return 0;
}

/// Smaller is better; the members are compared in order. Of equal scores best_of() keeps the
/// lower id.
struct Score {
  double first = 0, second = 0, third = 0;
  friend auto operator<=>(const Score&, const Score&) = default;
};

Score score_of(const ClusterView& view, const ResourceDemand& demand, const NodeView& node) {
  const double use = use_after(node, demand.need);
  if (demand.placement == Placement::pack) return {-use, 0, 0};
  // Resources that are free on another node may be meant for requests that wait there for a
  // starting worker.
  const double crowd = node.id == view.self ? 0.0 : 1.0 + node.waiting;
  // A demand that reserves nothing adds no use of any resource, so the number of actors decides.
  if (demand.placement == Placement::spread) return {use, static_cast<double>(node.actors), crowd};
  const double pressure = use <= kPackUntil ? 0 : use;
  return {pressure, crowd, 0};
}

const NodeView* best_of(const ClusterView& view, const ResourceDemand& demand, bool no_slow,
                        std::span<const NodeId> without) {
  const NodeView* best = nullptr;
  Score best_score;
  std::uint64_t best_bytes = 0;
  for (const NodeView& node : view.nodes) {
    if (!fits_now(node, demand) || (no_slow && node.slow) || holds(without, node.id)) continue;
    const Score score = score_of(view, demand, node);
    const std::uint64_t bytes =
        demand.placement == Placement::any ? local_bytes(demand, node.id) : 0;
    const bool better =
        best == nullptr || bytes > best_bytes || (bytes == best_bytes && score < best_score);
    if (!better) continue;
    best = &node;
    best_score = score;
    best_bytes = bytes;
  }
  return best;
}

struct Want {
  std::int64_t amount;
  std::string text;
  std::string most_text;  ///< what the best node has
  std::int64_t most;
};

std::vector<Want> wants(const std::vector<const NodeView*>& nodes, const Resources& need,
                        Resources NodeView::* part) {
  std::vector<Want> list;
  const auto most = [&](auto amount_in) {
    std::int64_t best = 0;
    for (const NodeView* node : nodes) best = std::max(best, amount_in(node->*part));
    return best;
  };
  const auto add = [&](Amount want, const std::string& unit, auto amount_in) {
    if (want <= 0) return;
    const Amount has = most(amount_in);
    list.push_back({want, amount_text(want, unit), amount_text(has, ""), has});
  };
  add(need.gpus, "GPU", [](const Resources& r) { return r.gpus; });
  add(need.cpus, "CPU", [](const Resources& r) { return r.cpus; });
  for (const auto& custom : need.custom) {
    const std::string& name = custom.first;
    add(custom.second, name, [&name](const Resources& r) { return r.custom_amount(name); });
  }
  if (need.memory > 0) {
    const std::int64_t has = most([](const Resources& r) { return r.memory; });
    list.push_back({need.memory, memory_text(need.memory) + " memory", memory_text(has), has});
  }
  return list;
}

std::string join(const std::vector<Want>& list) {
  std::string text;
  for (const Want& want : list) text += (text.empty() ? "" : ", ") + want.text;
  return text.empty() ? "nothing" : text;
}

std::string node_text(const NodeView& node) {
  return node.name.empty() ? "node " + node.id.str() : "node " + node.name;
}

std::string explain_infeasible(const ClusterView& view, const ResourceDemand& demand) {
  if (view.nodes.empty()) return "there are no nodes";
  std::vector<const NodeView*> nodes;
  for (const NodeView& node : view.nodes) nodes.push_back(&node);
  if (demand.placement == Placement::node && !demand.soft) {
    const NodeView* node = view.find(demand.node);
    if (node == nullptr) return "must run on node " + demand.node.str() + ", which is not here";
    nodes = {node};
  }
  for (const auto& label : demand.labels) {
    std::vector<const NodeView*> left;
    for (const NodeView* node : nodes)
      if (has_labels(*node, {label})) left.push_back(node);
    if (left.empty())
      return "needs label " + label.first + "=" + label.second + ", no node " +
             (nodes.size() < view.nodes.size() ? "that fits otherwise " : "") + "has it";
    nodes = std::move(left);
  }
  if (!expressible(demand.need.gpus))
    return "needs " + amount_text(demand.need.gpus, "GPU") +
           ": more than one GPU must be a whole number";
  const bool named = demand.placement == Placement::node && !demand.soft;
  const std::string who =
      named ? node_text(*nodes.front()) + " has only " : "no node has more than ";
  const std::vector<Want> list = wants(nodes, demand.need, &NodeView::total);
  for (const Want& want : list)
    if (want.amount > want.most) return "needs " + want.text + ", " + who + want.most_text;
  return "needs " + join(list) + ", no single node has all of it";
}

std::string explain_busy(const ClusterView& view, const ResourceDemand& demand, bool no_slow) {
  std::vector<const NodeView*> nodes;
  std::size_t closed = 0;
  for (const NodeView& node : view.nodes) {
    if (!could_fit(node, demand) || (no_slow && node.slow)) continue;
    if (node.accepts)
      nodes.push_back(&node);
    else
      ++closed;
  }
  const std::string count = std::to_string(nodes.size() + closed);
  if (nodes.empty())
    return "the " + count + " node(s) that could take it accept nothing new (draining or suspect)";
  const std::vector<Want> list = wants(nodes, demand.need, &NodeView::free);
  for (const Want& want : list)
    if (want.amount > want.most)
      return "waits for " + want.text + ": of the " + count +
             " node(s) that have it, none has more than " + want.most_text + " free";
  return "waits for " + join(list) + ": no node has all of it free at once";
}

/// Returns the node to wait at: the asking node if it could ever take the demand, else the least
/// crowded.
const NodeView* place_to_wait(const ClusterView& view, const ResourceDemand& demand, bool no_slow,
                              std::span<const NodeId> without) {
  const NodeView* best = nullptr;
  for (const NodeView& node : view.nodes) {
    if (!could_fit(node, demand) || holds(without, node.id)) continue;
    const auto rank = [&](const NodeView& n) {
      const bool closed = !n.accepts || (no_slow && n.slow && n.id != view.self);
      return std::make_pair(closed ? 1u : 0u, n.id == view.self ? 0u : n.waiting + 1);
    };
    if (best == nullptr || rank(node) < rank(*best)) best = &node;
  }
  return best;
}

}  // namespace

void normalize(Resources& need) {
  const auto within = [](std::int64_t& amount) {
    amount = std::clamp(amount, -kMostAmount, kMostAmount);
  };
  within(need.cpus);
  within(need.gpus);
  within(need.memory);
  for (auto& [name, amount] : need.custom) within(amount);
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(need.custom.begin(), need.custom.end(), by_name))
    std::stable_sort(need.custom.begin(), need.custom.end(), by_name);
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(need.custom.begin(), need.custom.end(), same) == need.custom.end()) return;
  std::vector<std::pair<std::string, Amount>> once;
  for (auto& one : need.custom) {
    if (once.empty() || once.back().first != one.first) {
      once.push_back(std::move(one));
      continue;
    }
    once.back().second += one.second;
    within(once.back().second);
  }
  need.custom = std::move(once);
}

std::string amount_text(Amount amount, const std::string& unit) {
  char text[48];
  if (amount % kUnit == 0)
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(amount / kUnit));
  else
    std::snprintf(text, sizeof text, "%.6g",
                  static_cast<double>(amount) / static_cast<double>(kUnit));
  return unit.empty() ? text : text + (" " + unit);
}

std::string memory_text(std::int64_t bytes) {
  char text[48];
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1 << 30)
    std::snprintf(text, sizeof text, "%.4g GiB", value / (1 << 30));
  else if (bytes >= 1 << 20)
    std::snprintf(text, sizeof text, "%.4g MiB", value / (1 << 20));
  else
    std::snprintf(text, sizeof text, "%lld B", static_cast<long long>(bytes));
  return text;
}

const NodeView* ClusterView::find(NodeId id) const {
  const auto at = std::lower_bound(nodes.begin(), nodes.end(), id,
                                   [](const NodeView& node, NodeId key) { return node.id < key; });
  return at != nodes.end() && at->id == id ? &*at : nullptr;
}

void ClusterView::update(NodeView node) {
  const auto at =
      std::lower_bound(nodes.begin(), nodes.end(), node.id,
                       [](const NodeView& other, NodeId key) { return other.id < key; });
  if (at != nodes.end() && at->id == node.id)
    *at = std::move(node);
  else
    nodes.insert(at, std::move(node));
}

void ClusterView::erase(NodeId id) {
  if (const NodeView* node = find(id)) nodes.erase(nodes.begin() + (node - nodes.data()));
}

std::vector<std::int32_t> choose_gpus(const std::vector<Amount>& free, Amount gpus) {
  std::vector<std::int32_t> chosen;
  if (gpus <= 0 || !expressible(gpus)) return chosen;
  if (gpus < kUnit) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < free.size(); ++i)
      if (free[i] >= gpus && (!best || free[i] < free[*best])) best = i;
    if (best) chosen.push_back(static_cast<std::int32_t>(*best));
    return chosen;
  }
  for (std::size_t i = 0; i < free.size(); ++i)
    if (free[i] == kUnit && static_cast<Amount>(chosen.size()) < gpus / kUnit)
      chosen.push_back(static_cast<std::int32_t>(i));
  if (static_cast<Amount>(chosen.size()) < gpus / kUnit) chosen.clear();
  return chosen;
}

bool could_fit(const NodeView& node, const ResourceDemand& demand) {
  if (demand.placement == Placement::node && !demand.soft && node.id != demand.node) return false;
  return could_take(node, demand);
}

bool fits_now(const NodeView& node, const ResourceDemand& demand) {
  return node.accepts && could_fit(node, demand) && has_free(node, demand);
}

bool avoids_slow(const ClusterView& view, const ResourceDemand& demand,
                 std::span<const NodeId> without) {
  const bool any = std::any_of(view.nodes.begin(), view.nodes.end(),
                               [](const NodeView& node) { return node.slow; });
  return any && std::any_of(view.nodes.begin(), view.nodes.end(), [&](const NodeView& node) {
           return !node.slow && node.accepts && could_fit(node, demand) && !holds(without, node.id);
         });
}

Decision choose(const ClusterView& view, const ResourceDemand& demand,
                std::span<const NodeId> without) {
  const bool no_slow = avoids_slow(view, demand, without);
  if (demand.placement == Placement::node && demand.soft) {
    const NodeView* wanted = view.find(demand.node);
    if (wanted != nullptr && fits_now(*wanted, demand) && !(no_slow && wanted->slow) &&
        !holds(without, wanted->id))
      return {Decision::Kind::place, wanted->id, {}};
    ResourceDemand anywhere = demand;
    anywhere.placement = Placement::any;
    return choose(view, anywhere, without);
  }
  if (const NodeView* node = best_of(view, demand, no_slow, without))
    return {Decision::Kind::place, node->id, {}};
  if (const NodeView* node = place_to_wait(view, demand, no_slow, without))
    return {Decision::Kind::busy, node->id, {}};
  return {Decision::Kind::infeasible, NodeId{}, {}};
}

Decision choose_here(const NodeView& self, const ResourceDemand& demand) {
  if (!could_take(self, demand)) return {Decision::Kind::infeasible, NodeId{}, {}};
  // Slowness does not count here: a slow node is left out only where a faster one could take the
  // demand.
  const bool now = self.accepts && has_free(self, demand);
  return {now ? Decision::Kind::place : Decision::Kind::busy, self.id, {}};
}

Decision place(const ClusterView& view, const ResourceDemand& demand) {
  Decision decision = choose(view, demand);
  const bool prefers = demand.placement == Placement::node && demand.soft;
  ResourceDemand asked = demand;
  if (prefers) asked.placement = Placement::any;
  switch (decision.kind) {
    case Decision::Kind::place:
      decision.why = prefers && decision.node == demand.node ? "its preferred node has it free"
                                                             : "the node has it free";
      break;
    case Decision::Kind::busy:
      decision.why = explain_busy(view, asked, avoids_slow(view, asked));
      break;
    case Decision::Kind::infeasible: decision.why = explain_infeasible(view, asked); break;
  }
  return decision;
}

void take(NodeView& node, const Resources& need) {
  for (const std::int32_t device : choose_gpus(node.gpu_free, need.gpus))
    node.gpu_free[static_cast<std::size_t>(device)] -= std::min(need.gpus, kUnit);
  node.free.cpus -= need.cpus;
  node.free.gpus -= need.gpus;
  node.free.memory -= need.memory;
  for (const auto& [name, amount] : need.custom)
    for (auto& [key, free] : node.free.custom)
      if (key == name) free -= amount;
}

void give_back(NodeView& node, const Resources& need) {
  node.free.cpus = std::min(node.total.cpus, node.free.cpus + need.cpus);
  node.free.gpus = std::min(node.total.gpus, node.free.gpus + need.gpus);
  node.free.memory = std::min(node.total.memory, node.free.memory + need.memory);
  for (const auto& [name, amount] : need.custom)
    for (auto& [key, free] : node.free.custom)
      if (key == name) free = std::min(node.total.custom_amount(name), free + amount);
  // The devices are not known here: fill the most used ones first. The next report corrects it.
  Amount left = need.gpus;
  while (left > 0) {
    auto least = std::min_element(node.gpu_free.begin(), node.gpu_free.end());
    if (least == node.gpu_free.end() || *least == kUnit) break;
    const Amount back = std::min(left, kUnit - *least);
    *least += back;
    left -= back;
  }
}

}  // namespace troupe::scheduling
