#include "troupe/runtime/client/wishes.hpp"

#include <algorithm>

namespace troupe::client {

void Nearest::add(NodeId node, std::uint64_t bytes) {
  auto at = std::find_if(sums_.begin(), sums_.end(),
                         [node](const auto& sum) { return sum.first == node; });
  if (at == sums_.end()) at = sums_.insert(at, {node, 0});
  at->second += bytes;
  if (at->second > this->bytes()) best_ = static_cast<std::size_t>(at - sums_.begin());
}

std::uint64_t Wishes::key_for(const wire::Shape& shape) {
  for (std::size_t key = 0; key < wishes_.size(); ++key)
    if (wishes_[key].plain == key && wishes_[key].shape == shape) return key;
  const std::uint64_t key = wishes_.size();
  wishes_.push_back({shape, {}, 0, key});
  return key;
}

std::uint64_t Wishes::place(std::uint64_t key, const Nearest& most, NodeId here) {
  const std::uint64_t plain = wishes_[key].plain;
  const bool worth_it = most.node() && most.bytes() >= kWorthIt;
  std::uint64_t chosen = plain;
  if (worth_it && most.node() != here) {
    const auto [at, is_new] = near_.try_emplace({plain, most.node()}, wishes_.size());
    if (is_new) wishes_.push_back({wire::Shape(wishes_[plain].shape), {}, 0, plain});
    chosen = at->second;
  }
  Wish& wish = wishes_[chosen];
  wish.near = worth_it ? most.node() : NodeId{};
  wish.bytes = worth_it ? most.bytes() : 0;
  return chosen;
}

std::uint32_t Wishes::number_of(NodeId node) {
  if (!node) return 0;
  const auto at = std::find(nodes_.begin(), nodes_.end(), node);
  if (at != nodes_.end()) return static_cast<std::uint32_t>(at - nodes_.begin()) + 1;
  nodes_.push_back(node);
  return static_cast<std::uint32_t>(nodes_.size());
}

NodeId Wishes::node(std::uint32_t number) const {
  return number == 0 || number > nodes_.size() ? NodeId{} : nodes_[number - 1];
}

}  // namespace troupe::client
