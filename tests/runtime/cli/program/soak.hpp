/// A seeded load on a cluster that holds nothing at its end.
#pragma once

#include "troupe/troupe.hpp"

namespace soak {

/// Runs puts, gets, tasks on refs, values with refs inside, and actors that hold refs. It kills
/// workers and actors, and makes more bytes than a small node's memory holds. It checks every
/// value that it reads. Then it drops everything, prints counts, and waits for the end of stdin.
/// Returns 1 when something was wrong.
int run(troupe::Context& ctx, unsigned seed, double seconds);

}  // namespace soak
