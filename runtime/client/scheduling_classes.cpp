#include "troupe/runtime/client/scheduling_classes.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>

namespace troupe::client {
namespace {

std::size_t hash_of(const wire::ResourceDemand& demand) {
  std::size_t hash = 0;
  const auto add = [&hash](const auto& part) {
    hash = hash * 1'099'511'628'211u + std::hash<std::remove_cvref_t<decltype(part)>>{}(part);
  };
  add(demand.cpus);
  add(demand.gpus);
  add(demand.memory_bytes);
  for (const auto& [name, amount] : demand.resources) {
    add(name);
    add(amount);
  }
  for (const auto& [name, value] : demand.labels) {
    add(name);
    add(value);
  }
  add(demand.node.low);
  return hash;
}

}  // namespace

void Nearest::add(NodeId node, std::uint64_t bytes) {
  auto at = std::find_if(sums_.begin(), sums_.end(),
                         [node](const auto& sum) { return sum.first == node; });
  if (at == sums_.end()) at = sums_.insert(at, {node, 0});
  at->second += bytes;
  if (at->second > this->bytes()) best_ = static_cast<std::size_t>(at - sums_.begin());
}

LeaseKey SchedulingClasses::key_for(const wire::ResourceDemand& demand) {
  if (first_.demand == demand) return 0;
  const std::size_t hash = hash_of(demand);
  const auto [begin, end] = plain_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (Class& known = others_.at(at->second); known.demand == demand) {
      known.unused = false;
      return at->second;
    }
  Class& cls = others_[++last_];
  cls.demand = demand;
  cls.plain = last_;
  plain_.emplace(hash, last_);
  return last_;
}

LeaseKey SchedulingClasses::place(LeaseKey key, const Nearest& most, NodeId here) {
  const LeaseKey plain = at(key).plain;
  const bool worth_it = most.node() && most.bytes() >= kWorthIt;
  LeaseKey chosen = plain;
  if (worth_it && most.node() != here) {
    const auto [at_node, is_new] =
        near_.try_emplace({plain, most.node()}, LeaseKey::of(last_.value + 1));
    if (is_new) {
      Class& cls = others_[++last_];
      cls.demand = at(plain).demand;
      cls.plain = plain;
      cls.node = most.node();
      ++class_of(plain).nearby;
    }
    chosen = at_node->second;
  }
  Class& cls = class_of(chosen);
  if (chosen == plain) cls.unused = false;
  cls.near = worth_it ? most.node() : NodeId{};
  cls.bytes = worth_it ? most.bytes() : 0;
  return chosen;
}

void SchedulingClasses::forget(LeaseKey key) {
  if (key == 0 || !knows(key)) return;
  const Class& cls = at(key);
  if (cls.plain == key) {
    if (cls.nearby != 0) {
      class_of(key).unused = true;
      return;
    }
    const auto [begin, end] = plain_.equal_range(hash_of(cls.demand));
    plain_.erase(std::find_if(begin, end, [key](const auto& one) { return one.second == key; }));
    others_.erase(key);
    return;
  }
  const LeaseKey plain = cls.plain;
  near_.erase({plain, cls.node});
  others_.erase(key);
  if (--class_of(plain).nearby == 0 && at(plain).unused) forget(plain);
}

std::uint32_t SchedulingClasses::number_of(NodeId node) {
  if (!node) return 0;
  const auto at = std::find(nodes_.begin(), nodes_.end(), node);
  if (at != nodes_.end()) return static_cast<std::uint32_t>(at - nodes_.begin()) + 1;
  nodes_.push_back(node);
  return static_cast<std::uint32_t>(nodes_.size());
}

NodeId SchedulingClasses::node(std::uint32_t number) const {
  return number == 0 || number > nodes_.size() ? NodeId{} : nodes_[number - 1];
}

}  // namespace troupe::client
