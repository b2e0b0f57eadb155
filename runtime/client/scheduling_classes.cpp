#include "troupe/runtime/client/scheduling_classes.hpp"

#include <algorithm>

namespace troupe::client {

void Nearest::add(NodeId node, std::uint64_t bytes) {
  auto at = std::find_if(sums_.begin(), sums_.end(),
                         [node](const auto& sum) { return sum.first == node; });
  if (at == sums_.end()) at = sums_.insert(at, {node, 0});
  at->second += bytes;
  if (at->second > this->bytes()) best_ = static_cast<std::size_t>(at - sums_.begin());
}

LeaseKey SchedulingClasses::key_for(const wire::ResourceDemand& demand) {
  if (first_.demand == demand) return 0;
  for (auto& [key, cls] : others_)
    if (cls.plain == key && cls.demand == demand) {
      cls.unused = false;
      return key;
    }
  Class& cls = others_[++last_];
  cls.demand = demand;
  cls.plain = last_;
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
    if (cls.nearby == 0)
      others_.erase(key);
    else
      class_of(key).unused = true;
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
