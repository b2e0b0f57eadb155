/// How troupe grows: times and memory against the number of what there is.
#pragma once

#include "plot.hpp"

namespace troupe::bench {

/// Every curve, each point the median of some runs, on whatever CPUs this process has. Takes
/// minutes; `quick`: two small points each, to see that it runs. Precondition: as run().
std::vector<Curve> measure_curves(bool quick);

}  // namespace troupe::bench
