/// place() without its sentence: for the lease table, which asks for every waiting request after
/// each change.
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

#include <span>

namespace troupe::scheduling {

/// As place(), but `why` is empty. `without`: nodes that are not considered, sorted.
Decision choose(const ClusterView& view, const ResourceDemand& demand,
                std::span<const NodeId> without = {});
/// As choose() in a cluster of this node alone, whatever placement the demand wants.
Decision choose_here(const NodeView& self, const ResourceDemand& demand);

}  // namespace troupe::scheduling
