/// On which node a gang runs.
#pragma once

#include "troupe/runtime/runtime.hpp"

namespace troupe::train::internal {

/// What all ranks need together.
struct GangNeed {
  double cpus = 0;
  double gpus = 0;
};
/// Of so many workers with so much each. GPUs below one share devices as the scheduler packs them.
GangNeed need_of(int workers, double cpus_per_worker, double gpus_per_worker) noexcept;

/// A node that has the need free; blocks until there is one. This node is preferred. Throws
/// Infeasible when no node could ever have it. Of a gang that needs nothing: this node when it has
/// CPUs at all, else that with the most free ones.
NodeId place_for(const Context& ctx, const GangNeed& need);

/// The node that runs the task.
NodeId here(Context& ctx);

}  // namespace troupe::train::internal
