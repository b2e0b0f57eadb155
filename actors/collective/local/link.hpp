/// SimulatedLink: a simulated delay between the ranks of a local group, for tests of overlap. Other
/// groups have none.
///
///     local_group(2, {.link = {.latency = 1ms, .bytes_per_second = 1e9}});
#pragma once

#include "troupe/runtime/base/units.hpp"

namespace troupe::collective {

/// Before an operation meets the other ranks, it sleeps for the latency and for the time of the
/// bytes that traffic.hpp counts for its rank. It uses no CPU meanwhile, and abort() does not wake
/// it.
struct SimulatedLink {
  Duration latency{};
  double bytes_per_second = 0;  ///< 0: bytes take no time
  bool is_used() const noexcept { return latency != Duration{} || bytes_per_second > 0; }
};

}  // namespace troupe::collective
