#include "troupe/train/internal/gang_place.hpp"

#include <cmath>

namespace troupe::train::internal {

GangNeed need_of(int workers, double cpus_per_worker, double gpus_per_worker) noexcept {
  const auto n = static_cast<double>(workers);
  GangNeed need{n * cpus_per_worker, n * gpus_per_worker};
  if (gpus_per_worker > 0 && gpus_per_worker < 1)
    // floor(1 / share) workers fit on one GPU. The 1e-9 absorbs the rounding of 1 / share.
    need.gpus = std::ceil(n / std::floor(1 / gpus_per_worker + 1e-9));
  return need;
}

NodeId here(Context& ctx) {
  return ctx.node();
}

NodeId place_for(const Context& ctx, const GangNeed& need) {
  // Let the scheduler choose, as for a task of this need. It knows which resources are free or
  // still to come, and its error says why nothing fits.
  if (need.cpus > 0 || need.gpus > 0)
    return ctx.get(ctx.with({.name = "place for a gang", .cpus = need.cpus, .gpus = need.gpus})
                       .submit<here>());
  const NodeInfo* most = nullptr;
  const std::vector<NodeInfo> nodes = ctx.cluster().nodes;
  for (const NodeInfo& node : nodes) {
    if (!node.alive || node.cpus <= 0) continue;
    if (node.id == ctx.node()) return node.id;
    if (most == nullptr || node.cpus_free > most->cpus_free) most = &node;
  }
  return most != nullptr ? most->id : ctx.node();
}

}  // namespace troupe::train::internal
