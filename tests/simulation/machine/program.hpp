/// The program that a simulated machine runs, as a user would write it, and its promises.
#pragma once

#include "tests/simulation/machine/baton.hpp"
#include "troupe/runtime/context.hpp"

#include <cstdint>

namespace troupe::sim::machine {

/// What a schedule did; a plain struct, so that it can be sent through a pipe.
struct Did {
  std::uint64_t calls = 0, values = 0, excused = 0, begun = 0, restarts = 0, lost = 0;
};

/// The work of one driver: a seeded mix of tasks, actors, names and waits. Every value is compared
/// with the one that was computed, and errors need a reason.
void drive(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did);

/// How many attempts of one task the faults so far may have ended.
std::uint64_t deaths_of(const Baton& baton);

/// Returns whether a full store caused the error. It may have struck the task that computed a lost
/// value again.
bool is_for_memory(const Error& error);

}  // namespace troupe::sim::machine
