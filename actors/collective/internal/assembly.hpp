/// Assembly: how the ranks that a launcher has started find each other. Rank 0 listens on TCP, lets
/// in those that belong to its world, and names the socket where they fetch the group's memory.
#pragma once

#include "troupe/actors/collective/internal/greeting.hpp"
#include "troupe/actors/collective/internal/launch.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::collective::internal {

/// The memory of a group of launch.world ranks, more than one; blocks until all have come.
/// Strangers are dropped; a rank that contradicts rank 0 is refused, and the others go on. Throws
/// InvalidArgument, one sentence, on the rank that is refused; Unavailable, naming who is missing,
/// on every rank that has waited for `timeout`.
Fd assemble(const Launch& launch, const MeshShape& shape, Duration timeout);

/// What assemble() is on rank 0 and on the others.
Fd assemble_as_host(const Launch& launch, const Hello& mine, Duration timeout);
Fd assemble_as_guest(const Launch& launch, const Hello& mine, Duration timeout);

/// Least time for ranks that have all come to fetch the memory, however late they came.
constexpr Duration kShareGrace = std::chrono::seconds(5);
constexpr Time share_deadline(Time deadline, Time now) noexcept {
  return std::max(deadline, deadline_after(now, kShareGrace));
}

}  // namespace troupe::collective::internal
