/// Passes the shared memory of a group to its ranks. Rank 0 makes the memory and sends copies of
/// the descriptor over a Unix socket with an abstract name of 128 random bits. Both ends refuse a
/// peer of another user (SO_PEERCRED).
///
///     const std::string name = new_rendezvous_name();        // tell it to every rank
///     share_group(name, create_shm_group({.size = 4}), 3, deadline);   // rank 0
///     Fd memory = fetch_group(name, deadline);                         // the three others
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <string>

namespace troupe::collective {

/// Returns a new name, which is valid within one network namespace. Throws Unavailable when the
/// system has no random numbers.
TROUPE_API std::string new_rendezvous_name();

/// Sends `memory` to `peers` processes, each over a connection of its own. Blocks until all have
/// come. Throws TimedOut when they have not come by the deadline; Unavailable when the system gives
/// no socket, or no descriptor until the deadline.
TROUPE_API void share_group(const std::string& name, const Fd& memory, int peers, Time deadline);

/// Waits for rank 0 and returns its descriptor. Throws TimedOut at the deadline; Unavailable when a
/// process of another user answers, or the system gives no socket or no descriptor.
TROUPE_API Fd fetch_group(const std::string& name, Time deadline);

}  // namespace troupe::collective
