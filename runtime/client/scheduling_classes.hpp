/// The kinds of leases that this process asks for, each by its key: what the tasks need and, when
/// their large arguments lie at another node, which. Tasks of one key share leases, so those that
/// belong elsewhere have keys of their own. A plain state machine.
///
///     Nearest most;
///     most.add(node, bytes);                          // for each large argument
///     task.key = classes.place(task.key, most, here);  // the demand stays
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

class SchedulingClasses {
 public:
  /// Fewer bytes of arguments move where the work is done.
  static constexpr std::uint64_t kWorthIt = 256 << 10;

  struct Class {
    wire::ResourceDemand demand;
    NodeId near{};            ///< where the arguments of the task that was placed last are
    std::uint64_t bytes = 0;  ///< how many; 0: anywhere
    std::uint64_t plain = 0;  ///< the key of the same demand for tasks that belong to no other node
    NodeId node{};            ///< to which its tasks belong; none: a plain one
    std::uint32_t nearby = 0;  ///< of a plain one: keys of its demand for other nodes
    bool unused = false;       ///< of a plain one: only those need it
  };

  /// The key for tasks of this demand. Key 0: the default demand, and kept for ever. O(demands)
  /// comparisons.
  std::uint64_t key_for(const wire::ResourceDemand& demand);
  /// The key for a task of this key whose arguments are there. One whose arguments are mostly at
  /// `here` keeps the plain one, and the next lease request says so.
  std::uint64_t place(std::uint64_t key, const Nearest& most, NodeId here);
  /// No task has this key any more. It is not given out again: what the agent says of it may be
  /// late.
  void forget(std::uint64_t key);
  bool knows(std::uint64_t key) const { return key == 0 || others_.count(key) != 0; }
  /// Precondition: it is known.
  const Class& at(std::uint64_t key) const { return key == 0 ? first_ : others_.at(key); }
  std::size_t size() const noexcept { return 1 + others_.size(); }

  /// A small number for a node, never 0, and back; 0: none.
  std::uint32_t number_of(NodeId node);
  NodeId node(std::uint32_t number) const;

 private:
  Class& class_of(std::uint64_t key) { return key == 0 ? first_ : others_.at(key); }

  Class first_;
  std::map<std::uint64_t, Class> others_;
  std::uint64_t last_ = 0;                                          ///< key that was given out
  std::map<std::pair<std::uint64_t, NodeId>, std::uint64_t> near_;  ///< plain key and node → key
  std::vector<NodeId> nodes_;
};

}  // namespace troupe::client
