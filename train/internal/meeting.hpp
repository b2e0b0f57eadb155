/// How the shared memory of a gang reaches its ranks: rank 0 makes it and hands copies of the
/// descriptor out over a socket with an abstract name of 128 random bits. Both ends refuse a peer
/// of another user (SO_PEERCRED).
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <string>

namespace troupe::train::internal {

/// A name for one gang; throws Unavailable when the system has no random numbers.
std::string meeting_name();
/// Hands `memory` to so many peers; throws TimedOut when they have not come by the deadline.
void hand_out(const std::string& name, const Fd& memory, int peers, Time deadline);
/// Fetches the descriptor from rank 0; waits for it until the deadline, then throws TimedOut.
Fd fetch(const std::string& name, Time deadline);

}  // namespace troupe::train::internal
