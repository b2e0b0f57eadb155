/// place() without words, for who asks for every waiting request whenever something has changed.
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

namespace troupe::scheduling {

/// As place(), but `why` is empty.
Decision choose(const ClusterView& view, const ResourceDemand& demand);
/// As choose() where there is this node alone, whatever placement the demand wants.
Decision choose_here(const NodeView& self, const ResourceDemand& demand);

}  // namespace troupe::scheduling
