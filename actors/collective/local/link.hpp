/// SimulatedLink: a wire between the ranks of a local group that takes time. For tests of overlap
/// only: nothing but a local group has one.
///
///     local_group(2, {.link = {.latency = 1ms, .bytes_per_second = 1e9}});
#pragma once

#include "troupe/runtime/base/units.hpp"

namespace troupe::collective {

/// Before it meets the others, an operation sleeps for the latency and for the bytes that
/// traffic.hpp counts for its rank. It uses no CPU meanwhile, and abort() does not wake it.
struct SimulatedLink {
  Duration latency{};
  double bytes_per_second = 0;  ///< 0: bytes take no time
  bool is_used() const noexcept { return latency != Duration{} || bytes_per_second > 0; }
};

}  // namespace troupe::collective
