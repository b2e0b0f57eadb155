/// place() without words, for who asks for every waiting request whenever something has changed.
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

namespace troupe::scheduling {

/// As place(), but `why` is empty.
Decision choose(const ClusterView& view, const Shape& shape);
/// As choose() where there is this node alone, whatever placement the shape wants.
Decision choose_here(const NodeView& self, const Shape& shape);

}  // namespace troupe::scheduling
