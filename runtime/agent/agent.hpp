/// The agent: one per node. It owns the node's shared memory and promoted refs, grants leases,
/// starts and buries workers.
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <string>

namespace troupe::agent {

/// A private agent: serves the one driver at the other end of the socket, and ends the node when
/// that closes. `options` is "cpus,memory" with 0 for defaults. Ends the process; never returns.
[[noreturn]] void run_agent(Fd driver, const std::string& options);

}  // namespace troupe::agent
