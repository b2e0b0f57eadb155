/// gang_place(): chooses a node for each rank of a gang. A pure function.
///
///     GangPlaces places = gang_place(ctx.cluster().nodes, {.workers = 4, .cpus = 1}, ctx.node());
///     if (places.fit == GangPlaces::Fit::placed) spawn(places.nodes);    // one for each rank
///
/// Nodes come in one order: the driver's, then by name. The ranks of a node are consecutive, and a
/// tensor-parallel group lies on one node.
#pragma once

#include "troupe/runtime/runtime.hpp"

#include <map>
#include <string>
#include <vector>

namespace troupe::train::internal {

struct GangNeed {
  int workers = 1;
  int tp = 1;                 ///< ranks that stay together; divides the workers
  double cpus = 0, gpus = 0;  ///< of each rank; a fraction of a GPU shares a device
  bool spread = false;        ///< evenly over all nodes, else on as few as possible
};

/// The number of ranks that a gang had on each node. Their resources count as free.
using GangHeld = std::map<NodeId, int>;

struct GangPlaces {
  enum class Fit : std::uint8_t {
    placed,   ///< `nodes` has a node for each rank
    not_now,  ///< resources that the cluster has are taken
    never,    ///< the cluster has too little, even when nothing else runs
  } fit = Fit::never;
  std::vector<NodeId> nodes;
  std::string why;  ///< never: the rest of a sentence that begins with "a gang of N"
};

/// Places the gang with what is free now. A node that drains, is suspect or has no CPUs gets no
/// rank; when no node has CPUs, a gang that reserves nothing goes to the driver's node.
GangPlaces gang_place(const std::vector<NodeInfo>& nodes, const GangNeed& need, NodeId driver,
                      const GangHeld& held = {});

/// The variable with the GPUs that CUDA shows to a process, as "0,3".
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
/// Returns the devices of a rank among those of its gang, when each rank has so many. A share of a
/// GPU lies on one device.
std::string gang_devices(std::string_view all, int rank, double gpus);

/// Returns the node that runs the task. A task that needs what a gang needs asks the scheduler how
/// long a new node may still come.
NodeId here(Context& ctx);

}  // namespace troupe::train::internal
