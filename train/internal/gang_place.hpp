/// Chooses the node on which fit() runs a gang.
#pragma once

#include "troupe/runtime/runtime.hpp"

namespace troupe::train::internal {

/// Resources of all ranks together.
struct GangNeed {
  double cpus = 0;
  double gpus = 0;
};
/// Returns the need of `workers` workers. For fractions of a GPU it counts whole devices, packed
/// as the scheduler packs them.
GangNeed need_of(int workers, double cpus_per_worker, double gpus_per_worker) noexcept;

/// Returns a node that has the need free, preferably this one; blocks until there is one. Throws
/// Infeasible when no node could ever have it. For a gang that needs nothing, returns this node
/// when it has CPUs at all, else the node with the most free CPUs.
NodeId place_for(const Context& ctx, const GangNeed& need);

/// Returns the node that runs the task. A task function for place_for().
NodeId here(Context& ctx);

}  // namespace troupe::train::internal
