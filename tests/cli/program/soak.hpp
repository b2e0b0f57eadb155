/// A seeded load on a cluster, at whose end nothing is held any more.
#pragma once

#include "troupe/troupe.hpp"

namespace soak {

/// Puts, gets, tasks on refs, values with refs inside, actors that hold refs, workers and actors
/// that are killed, more bytes than a small node's memory takes. Every value that comes back is
/// checked. Then lets go of everything, prints what was done, and waits for the end of stdin.
/// Returns 1 when something was wrong.
int run(troupe::Context& ctx, unsigned seed, double seconds);

}  // namespace soak
