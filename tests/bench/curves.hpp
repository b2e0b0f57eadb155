/// Curves of growth: troupe's times and memory against the number of tasks, objects, actors or
/// nodes.
#pragma once

#include "plot.hpp"

namespace troupe::bench {

/// Measures every curve, with medians of some runs as points, on all CPUs of this process. Takes
/// minutes. With `quick`, two small points each show only that it runs. Precondition: that of
/// run().
std::vector<Curve> measure_curves(bool quick);

}  // namespace troupe::bench
