/// The scheduling classes of this process, each by its key. A class is a resource demand and,
/// when large arguments lie at another node, that node. Tasks of one key share leases, so tasks
/// that belong to another node have a key of their own. A plain state machine, used by
/// ClientEngine.
///
///     Nearest most;
///     most.add(node, bytes);                          // for each large argument
///     task.key = classes.place(task.key, most, here);  // the demand stays the same
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::client {

/// Finds the node with most bytes of some arguments. The first wins a tie.
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
  /// Arguments with fewer bytes move to the task; with this many the task moves to them.
  static constexpr std::uint64_t kWorthIt = 256 << 10;

  struct Class {
    wire::ResourceDemand demand;
    NodeId near{};             ///< node with the arguments of the task that was placed last
    std::uint64_t bytes = 0;   ///< how many bytes are there; 0: anywhere
    LeaseKey plain;            ///< key of the class with this demand and no node
    NodeId node{};             ///< node of its tasks; none: a plain class
    std::uint32_t nearby = 0;  ///< of a plain class: number of its classes with a node
    bool unused = false;       ///< of a plain class: only those still need it
  };

  /// Returns the key of the plain class for this demand. Key 0 is the default demand, and is kept
  /// for ever. Cost: one look-up, however many demands there are.
  LeaseKey key_for(const wire::ResourceDemand& demand);
  /// Returns the key for a task of this key whose arguments lie as `most` says. A task whose
  /// arguments are mostly at `here` keeps the plain key, and the next lease request names the
  /// bytes.
  LeaseKey place(LeaseKey key, const Nearest& most, NodeId here);
  /// Forgets a key that no task has any more. The key is not given out again, since messages of
  /// the agent about it may come late.
  void forget(LeaseKey key);
  bool knows(LeaseKey key) const { return key == 0 || others_.count(key) != 0; }
  /// Precondition: the key is known.
  const Class& at(LeaseKey key) const { return key == 0 ? first_ : others_.at(key); }
  std::size_t size() const noexcept { return 1 + others_.size(); }

  /// Maps a node to a small number and back. Number 0 is no node.
  std::uint32_t number_of(NodeId node);
  NodeId node(std::uint32_t number) const;

 private:
  Class& class_of(LeaseKey key) { return key == 0 ? first_ : others_.at(key); }

  Class first_;
  std::map<LeaseKey, Class> others_;
  std::unordered_multimap<std::size_t, LeaseKey> plain_;  ///< other plain classes by hash of demand
  LeaseKey last_;                                         ///< last key that was given out
  std::map<std::pair<LeaseKey, NodeId>, LeaseKey> near_;  ///< plain key and node → key
  std::vector<NodeId> nodes_;
};

}  // namespace troupe::client
