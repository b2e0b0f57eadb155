/// The kinds of leases that this process asks for, each by its key: what the tasks need and, when
/// their large arguments lie at another node, which. Tasks of one key share leases, so those that
/// belong elsewhere have keys of their own. A plain state machine.
///
///     Nearest most;
///     most.add(node, bytes);                          // for each large argument
///     task.key = wishes.place(task.key, most, here);  // the shape stays
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <map>
#include <utility>
#include <vector>

namespace troupe::client {

/// Where most bytes of some arguments are. Of equal ones the first counts.
class Nearest {
 public:
  void add(NodeId node, std::uint64_t bytes);
  NodeId node() const noexcept { return best_ < sums_.size() ? sums_[best_].first : NodeId{}; }
  std::uint64_t bytes() const noexcept { return best_ < sums_.size() ? sums_[best_].second : 0; }

 private:
  std::vector<std::pair<NodeId, std::uint64_t>> sums_;
  std::size_t best_ = 0;
};

class Wishes {
 public:
  /// Fewer bytes of arguments move where the work is done.
  static constexpr std::uint64_t kWorthIt = 256 << 10;

  struct Wish {
    wire::Shape shape;
    NodeId near{};            ///< where the arguments of the task that was placed last are
    std::uint64_t bytes = 0;  ///< how many; 0: anywhere
    std::uint64_t plain = 0;  ///< the key of the same shape for tasks that belong to no other node
  };

  /// Key 0: the default shape.
  Wishes() { wishes_.emplace_back(); }
  /// O(shapes) comparisons.
  std::uint64_t key_for(const wire::Shape& shape);
  /// The key for a task of this key whose arguments are there. One whose arguments are mostly at
  /// `here` keeps the plain one, and the next wish says so.
  std::uint64_t place(std::uint64_t key, const Nearest& most, NodeId here);
  const Wish& at(std::uint64_t key) const { return wishes_[key]; }
  std::size_t size() const noexcept { return wishes_.size(); }

  /// A small number for a node, never 0, and back; 0: none.
  std::uint32_t number_of(NodeId node);
  NodeId node(std::uint32_t number) const;

 private:
  std::vector<Wish> wishes_;
  std::map<std::pair<std::uint64_t, NodeId>, std::uint64_t> near_;  ///< plain key and node → key
  std::vector<NodeId> nodes_;
};

}  // namespace troupe::client
