/// Waiting items in the order of their turns, with a search for the first one that needs no more
/// than a bound. A tree over the turns keeps the least need of each part, so that the search
/// skips parts in which everything needs more. A plain container.
///
///     line.add(request, request.turn, {.cpus = kUnit});
///     Request* next = line.first({.cpus = free.cpus, .memory = free.memory});
///     line.erase(next->turn);
///
/// Turns only grow. Cost: the logarithm of the items for add() and erase(), and for
/// first() where one resource decides. A search that several resources decide may look at more.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace troupe::scheduling {

/// Amounts that decide mostly whether a demand fits. Custom resources are not among them.
struct Need {
  std::int64_t cpus = 0, gpus = 0, memory = 0;
  bool is_within(const Need& most) const noexcept {
    return cpus <= most.cpus && gpus <= most.gpus && memory <= most.memory;
  }
  friend Need least(const Need& a, const Need& b) noexcept {
    return {std::min(a.cpus, b.cpus), std::min(a.gpus, b.gpus), std::min(a.memory, b.memory)};
  }
  friend Need most(const Need& a, const Need& b) noexcept {
    return {std::max(a.cpus, b.cpus), std::max(a.gpus, b.gpus), std::max(a.memory, b.memory)};
  }
};

/// The bound that holds for every need.
inline constexpr std::int64_t kAnyAmount = std::numeric_limits<std::int64_t>::max() - 1;
inline constexpr Need kAnyNeed{kAnyAmount, kAnyAmount, kAnyAmount};

template <class T>
class WaitingLine {
 public:
  /// Precondition: the turn is larger than those of all items before.
  void add(T& item, std::uint64_t turn, const Need& need) {
    if (items_.size() == leaves_) make_room();
    items_.push_back({&item, turn});
    set(items_.size() - 1, need);
    ++size_;
  }
  /// Changes the need of the item with this turn. Precondition: there is one.
  void change(std::uint64_t turn, const Need& need) { set(place_of(turn), need); }
  /// Precondition: an item has this turn.
  void erase(std::uint64_t turn) {
    const std::size_t at = place_of(turn);
    items_[at].item = nullptr;
    set(at, kNever);
    if (--size_ == 0) items_.clear();
  }
  /// Returns the first item from this turn on that needs no more than `bound`, or nullptr.
  T* first(const Need& bound, std::uint64_t from = 0) const {
    if (size_ == 0) return nullptr;
    const std::size_t at = find(1, 0, leaves_, index_of(from), bound);
    return at < items_.size() ? items_[at].item : nullptr;
  }
  std::size_t size() const noexcept { return size_; }

 private:
  struct Item {
    T* item = nullptr;  ///< null: erased
    std::uint64_t turn = 0;
  };
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  static constexpr Need kNever{kMost, kMost, kMost};

  std::size_t index_of(std::uint64_t turn) const {
    const auto at = std::partition_point(items_.begin(), items_.end(),
                                         [&](const Item& item) { return item.turn < turn; });
    return static_cast<std::size_t>(at - items_.begin());
  }
  std::size_t place_of(std::uint64_t turn) const {
    const std::size_t at = index_of(turn);
    TROUPE_ASSERT(at < items_.size() && items_[at].turn == turn && items_[at].item != nullptr,
                  "no item has this turn");
    return at;
  }
  void set(std::size_t leaf, const Need& need) {
    std::size_t at = leaves_ + leaf;
    tree_[at] = need;
    while ((at /= 2) != 0) tree_[at] = least(tree_[2 * at], tree_[2 * at + 1]);
  }
  /// Drops erased items, and leaves room for as many as there are.
  void make_room() {
    std::vector<std::pair<Item, Need>> kept;
    kept.reserve(size_);
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (items_[i].item != nullptr) kept.emplace_back(items_[i], tree_[leaves_ + i]);
    leaves_ = std::max<std::size_t>(8, std::bit_ceil(2 * kept.size()));
    tree_.assign(2 * leaves_, kNever);
    items_.clear();
    for (const auto& [item, need] : kept) {
      tree_[leaves_ + items_.size()] = need;
      items_.push_back(item);
    }
    for (std::size_t at = leaves_ - 1; at != 0; --at)
      tree_[at] = least(tree_[2 * at], tree_[2 * at + 1]);
  }
  /// Searches the part of the tree below `node`, whose leaves are low..high-1.
  std::size_t find(std::size_t node, std::size_t low, std::size_t high, std::size_t from,
                   const Need& bound) const {
    if (high <= from || !tree_[node].is_within(bound)) return leaves_;
    if (high - low == 1) return low;
    const std::size_t middle = (low + high) / 2;
    const std::size_t left = find(2 * node, low, middle, from, bound);
    return left != leaves_ ? left : find(2 * node + 1, middle, high, from, bound);
  }

  std::vector<Item> items_;  ///< by turn
  std::vector<Need> tree_;   ///< node k has the children 2k and 2k+1; the leaves come last
  std::size_t leaves_ = 0;
  std::size_t size_ = 0;
};

}  // namespace troupe::scheduling
