/// place() without words, for who asks for every waiting wish whenever something has changed.
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

namespace troupe::scheduling {

/// As place(), but `why` is empty.
Decision choose(const ClusterView& view, const Shape& shape);

}  // namespace troupe::scheduling
