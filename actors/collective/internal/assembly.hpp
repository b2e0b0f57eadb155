/// Assembly: the rendezvous of the ranks that a launcher has started, for Mesh::from_environment().
/// Rank 0 listens on TCP, accepts the ranks that belong to its world, and tells them the name of
/// the socket where they fetch the group's memory.
#pragma once

#include "troupe/actors/collective/internal/greeting.hpp"
#include "troupe/actors/collective/internal/launch.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::collective::internal {

/// Returns the memory of a group of launch.world ranks, at least two. Blocks until all have come.
/// Connections from other programs are dropped. A rank that contradicts rank 0 is refused, and the
/// others go on. Throws InvalidArgument on the rank that is refused; Unavailable, which names the
/// missing ranks, on every rank that has waited for `timeout`.
Fd assemble(const Launch& launch, const MeshShape& shape, Duration timeout);

/// Do the work of assemble(), on rank 0 and on the other ranks.
Fd assemble_as_host(const Launch& launch, const Hello& mine, Duration timeout);
Fd assemble_as_guest(const Launch& launch, const Hello& mine, Duration timeout);

/// The least time that ranks have to fetch the memory after the last one has come, even if that was
/// at the deadline.
constexpr Duration kShareGrace = std::chrono::seconds(5);
constexpr Time share_deadline(Time deadline, Time now) noexcept {
  return std::max(deadline, deadline_after(now, kShareGrace));
}

}  // namespace troupe::collective::internal
