#include "troupe/tune/internal/admission.hpp"

#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::tune {
namespace {

constexpr int kNoLimit = 1'000'000;
/// Absorbs the rounding of quotients of amounts, which are multiples of 0.0001.
constexpr double kRounding = 1e-6;
/// A host that ended so lately may still be in the free amounts of its node.
constexpr Duration kViewAge = std::chrono::seconds(2);

int times(double have, double each) {
  if (each <= 0) return kNoLimit;
  const double count = std::floor(have / each + kRounding);
  return count >= kNoLimit ? kNoLimit : static_cast<int>(std::max(count, 0.0));
}

/// Returns how many shares fit on so many devices. A share of a GPU lies on one device.
int shares(double gpus, double each) {
  if (each <= 0 || each >= 1) return times(gpus, each);
  const double whole = std::floor(gpus + kRounding);
  return times(whole * times(1, each) + times(gpus - whole, each), 1);
}

double amount_of(const NodeInfo& node, std::string_view resource) {
  for (const auto& [name, amount] : node.resources)
    if (name == resource) return amount;
  return 0;
}

/// Returns how many of these needs the node holds when nothing else runs on it.
int holds(const NodeInfo& node, const PerTrial& need) {
  int count = std::min(times(node.cpus, need.cpus), shares(node.gpus, need.gpus));
  count = std::min(
      count, times(static_cast<double>(node.memory.count), static_cast<double>(need.memory.count)));
  for (const Resource& each : need.resources)
    count = std::min(count, times(amount_of(node, each.name), each.amount));
  return count;
}

/// Returns the needs of a whole gang on one node.
PerTrial sum_of(const PerTrial& need) {
  if (need.workers < 1) return need;
  PerTrial sum = need;
  sum.cpus = need.cpus * need.workers;
  sum.gpus = need.gpus * need.workers;
  if (sum.gpus > 1) sum.gpus = std::ceil(sum.gpus - kRounding);
  sum.memory.count = need.memory.count * static_cast<std::uint64_t>(need.workers);
  sum.resources = {};
  for (const Resource& each : need.resources)
    sum.resources.add({each.name, each.amount * need.workers});
  return sum;
}

std::string counted(double amount, const char* what) {
  return number(amount) + " " + what + (amount == 1 ? "" : "s");
}

std::string words_of(const PerTrial& need) {
  std::vector<std::string> parts;
  if (need.cpus > 0) parts.push_back(counted(need.cpus, "CPU"));
  if (need.gpus > 0) parts.push_back(counted(need.gpus, "GPU"));
  if (need.memory.count > 0)
    parts.push_back(number(static_cast<double>(need.memory.count) / (1 << 20)) + " MiB of memory");
  for (const Resource& each : need.resources)
    if (each.amount > 0) parts.push_back(number(each.amount) + " " + std::string(each.name));
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text.empty() ? "nothing" : text;
}

/// Returns what the node has of the things that are needed.
std::string words_of(const NodeInfo& node, const PerTrial& need) {
  PerTrial has;
  has.cpus = need.cpus > 0 ? node.cpus : 0;
  has.gpus = need.gpus > 0 ? node.gpus : 0;
  if (need.memory.count > 0) has.memory = node.memory;
  std::string text = words_of(has) == "nothing" ? "" : words_of(has);
  if (need.gpus > 0 && node.gpus <= 0) text += text.empty() ? "no GPU" : " and no GPU";
  for (const Resource& each : need.resources)
    text += (text.empty() ? "" : " and ") + number(amount_of(node, each.name)) + " " +
            std::string(each.name);
  return text;
}

bool is_usable(const NodeInfo& node) {
  return node.alive && !node.suspect && !node.draining;
}

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune: per_trial." + why);
}

void check_amount(const std::string& name, double amount) {
  if (!std::isfinite(amount) || amount < 0)
    refuse(name + " is " + number(amount) + ": give a number that is not negative");
}

}  // namespace

void check(const PerTrial& need) {
  check_amount("cpus", need.cpus);
  check_amount("gpus", need.gpus);
  if (need.gpus > 1 && need.gpus != std::floor(need.gpus))
    refuse("gpus is " + number(need.gpus) + ": give a whole number, or a fraction of one GPU");
  for (const Resource& each : need.resources)
    check_amount("resources, " + std::string(each.name) + ",", each.amount);
  if (need.workers < 0 || need.workers > 1024)
    refuse("workers is " + std::to_string(need.workers) +
           ": give the ranks of the trial's gang, 1 to 1024, or 0 without a gang");
}

Admission::Admission(const PerTrial& need, Policy policy)
    : need_(need), policy_(policy), host_(sum_of(need)) {
  check(need);
}

void Admission::nodes(std::vector<NodeInfo> nodes, Time now) {
  nodes_ = std::move(nodes);
  while (!gone_.empty() && now - gone_.front().first > kViewAge) gone_.pop_front();
  if (std::exchange(looked_, true) || need_.workers < 1) return;
  over_nodes_ = std::none_of(nodes_.begin(), nodes_.end(), [this](const NodeInfo& node) {
    return node.alive && holds(node, host_) > 0;
  });
  if (!over_nodes_) return;
  host_ = {};
  host_.cpus = 0;
}

void Admission::spawned(int host, std::optional<NodeId> node) {
  hosts_[host] = Host{node};
}

void Admission::ready(int host, NodeId node) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return;
  found->second.node = node;
  found->second.ready = true;
}

void Admission::gathered(int host) {
  const auto found = hosts_.find(host);
  if (found != hosts_.end()) found->second.gathered = true;
}

void Admission::idle(int host) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return;
  found->second.busy = false;
  found->second.gathered = false;
}

void Admission::resumed(int host) {
  const auto found = hosts_.find(host);
  if (found != hosts_.end()) found->second.busy = true;
}

void Admission::gone(int host, Time now) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return;
  if (found->second.node) gone_.emplace_back(now, *found->second.node);
  hosts_.erase(found);
}

std::string Admission::needs() const {
  return words_of(need_.workers > 0 && over_nodes_ ? sum_of(need_) : host_);
}

std::string Admission::never() const {
  const NodeInfo* largest = nullptr;
  int ranks = 0;
  for (const NodeInfo& node : nodes_) {
    if (!node.alive && !node.suspect) continue;
    if (!over_nodes_ && holds(node, host_) > 0) return "";
    ranks += std::min(holds(node, need_), need_.workers);
    const auto size = [this](const NodeInfo& each) {
      return std::pair(need_.gpus > 0 ? each.gpus : 0, each.cpus);
    };
    if (largest == nullptr || size(node) > size(*largest)) largest = &node;
  }
  if (over_nodes_ && ranks >= need_.workers && need_.gpus <= 0) return "";
  std::string text = "tune: a trial needs " + needs();
  if (need_.workers > 0)
    text += " for " + counted(need_.workers, "worker") + " of " + words_of(need_);
  const std::string has = largest != nullptr ? words_of(*largest, need_) : "";
  if (over_nodes_ && need_.gpus <= 0)
    text += ", and the cluster has room for " + counted(ranks, "worker");
  else if (largest == nullptr)
    text += ", and the cluster has no node";
  else
    text += ", and the largest node, " + largest->name + ", has " + has;
  return text + ": lower Options::per_trial, or add a larger node";
}

int Admission::slots() const {
  int all = 0;
  double cpus = 0;
  int ranks = 0;
  for (const NodeInfo& node : nodes_) {
    if (!node.alive) continue;
    cpus += node.cpus;
    all = std::min(kNoLimit, all + holds(node, host_));
    ranks = std::min(kNoLimit, ranks + holds(node, need_));
  }
  if (over_nodes_ && ranks < kNoLimit) return std::max(ranks / need_.workers, 1);
  return std::max(all < kNoLimit ? all : static_cast<int>(std::min(cpus, 1e6)), 1);
}

std::vector<Admission::Site> Admission::sites(Time now) const {
  std::vector<Site> all;
  const bool bare = std::none_of(nodes_.begin(), nodes_.end(),
                                 [](const NodeInfo& node) { return node.cpus > 0; });
  for (const NodeInfo& node : nodes_) {
    if (!is_usable(node) || (node.cpus <= 0 && !bare)) continue;
    Site site;
    site.node = &node;
    site.total = holds(node, host_);
    for (const auto& [id, host] : hosts_) {
      if (host.node != node.id) continue;
      ++site.all;
      if (host.busy) ++site.busy;
      if (!host.busy && site.idle < 0) site.idle = id;
    }
    int seen = site.all;  // the most hosts that the free amounts may leave out
    for (const auto& [when, at] : gone_)
      if (at == node.id && now - when <= kViewAge) ++seen;
    const double cpus = std::max(node.cpus - node.cpus_free - seen * host_.cpus, 0.0);
    const double gpus = std::max(node.gpus - node.gpus_free - seen * host_.gpus, 0.0);
    const int left =
        std::min(times(node.cpus - cpus, host_.cpus), shares(node.gpus - gpus, host_.gpus));
    site.others = std::max(site.total - left, 0);
    all.push_back(site);
  }
  return all;
}

int Admission::busy() const {
  return static_cast<int>(std::count_if(hosts_.begin(), hosts_.end(),
                                        [](const auto& each) { return each.second.busy; }));
}

bool Admission::waits(int host) const {
  const auto found = hosts_.find(host);
  if (found == hosts_.end() || !found->second.busy) return false;
  return !found->second.ready || (over_nodes_ && !found->second.gathered);
}

bool Admission::one_waits() const {
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [this](const auto& each) { return waits(each.first); });
}

/// Returns whether the free amounts of all nodes hold a gang.
bool Admission::gang_fits() const {
  int ranks = 0;
  for (const NodeInfo& node : nodes_) {
    if (!is_usable(node)) continue;
    NodeInfo free = node;
    free.cpus = node.cpus_free;
    free.gpus = node.gpus_free;
    ranks = std::min(kNoLimit, ranks + holds(free, need_));
  }
  return ranks >= need_.workers;
}

int Admission::room(Time now) const {
  const int running = busy();
  if (unknown()) {
    const bool next = running == 0 || (!one_waits() && (!over_nodes_ || gang_fits()));
    return running + (next ? 1 : 0);
  }
  int room = running;
  for (const Site& site : sites(now))
    room = std::min(kNoLimit, room + site.fits() + site.all - site.busy);
  return std::max(room, 1);
}

Admission::Choice Admission::choose(std::optional<NodeId> prefer, Time now) const {
  if (need_.labels.size() > 0) {  // nobody but the scheduler knows the labels of a node
    for (const auto& [id, host] : hosts_)
      if (!host.busy) return {id, host.node};
    return {};
  }
  const std::vector<Site> all = sites(now);
  const Site* best = nullptr;
  const auto use = [](const Site& site) {
    const double whole = site.total < kNoLimit ? site.total : std::max(site.node->cpus, 1e-3);
    return (site.busy + site.others) / whole;
  };
  for (const Site& site : all) {
    if (site.fits() < 1 && site.idle < 0) continue;
    if (prefer && site.node->id == *prefer) {
      best = &site;
      break;
    }
    const bool better = best == nullptr || (policy_ == Policy::spread ? use(site) < use(*best)
                                                                      : use(site) > use(*best));
    if (better) best = &site;
  }
  if (best == nullptr) return {};
  return {best->idle, best->node->id};
}

bool Admission::accepts(NodeId node) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [node](const NodeInfo& each) { return each.id == node && is_usable(each); });
}

bool Admission::is_lost(NodeId node) const {
  return std::none_of(nodes_.begin(), nodes_.end(), [node](const NodeInfo& each) {
    return each.id == node && (each.alive || each.suspect);
  });
}

}  // namespace troupe::tune
