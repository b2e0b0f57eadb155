/// Work of the program that needs several nodes: tasks and actors on chosen nodes, values that lie
/// at other nodes, chains of large values, references that a task returns, replicas and names.
///
///     FarWork far(ctx, baton, seed, did);
///     far.act();      // some piece of it; judges what has ended
///     far.end();      // judges the rest, and lets go of everything
#pragma once

#include "tests/simulation/machine/baton.hpp"
#include "tests/simulation/machine/program.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::machine {

/// The argument of each function.
struct FarJob {
  std::uint64_t id = 0;
  std::uint64_t work_us = 0;
  std::uint64_t size = 0;
  std::uint64_t replicas = 1;
};

class FarWork {
 public:
  FarWork(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did);
  ~FarWork();
  FarWork(const FarWork&) = delete;
  FarWork& operator=(const FarWork&) = delete;
  void act();
  void end();

 private:
  using Values = std::vector<std::uint64_t>;
  struct Actors;
  /// A result that is judged later. Errors are excused once `deaths` is reached; 0: any death.
  struct Small {
    Ref<std::uint64_t> ref;
    std::uint64_t id = 0, expected = 0, deaths = 3;
    NodeId only;                     ///< where it must have run
    const Process* owner = nullptr;  ///< of what it needs; null: the driver
  };
  struct Large {
    Ref<Values> ref;
    std::uint64_t expected = 0, deaths = 3, copies = 1;
    const Process* owner = nullptr;  ///< as above
  };
  FarJob job();
  NodeId some_node();
  TaskOptions somewhere();
  std::uint64_t deaths() const;
  std::uint64_t dead_nodes() const;
  bool is_node_dead(std::size_t node) const;
  /// Returns whether the owner's node has ended, which keeps the record of what it owned.
  bool is_owner_dead(const Process* owner) const;
  /// Returns whether a node refuses its work, since a fault struck the first start of its zygote.
  bool is_refused(const Small& one, const Error& error) const;
  void excuse(const char* what, const Error& error, bool may);
  void judge(const Small& one);
  void judge(const Large& one);
  void tasks();
  void chains();
  void returned_refs();
  void replicas();
  void names();
  void look();

  const Context& ctx_;
  Baton& baton_;
  Random random_;
  Did& did_;
  std::vector<NodeId> nodes_;
  std::uint64_t next_id_ = 0;
  std::vector<Small> small_;
  std::vector<Large> large_;
  std::map<std::string, Large> names_;
  std::unique_ptr<Actors> actors_;
};

}  // namespace troupe::sim::machine
