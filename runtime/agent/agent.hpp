/// The entry point of the agent, the process of a node that owns its shared memory and promoted
/// refs, grants leases, and starts workers. boot/ calls it in a process whose role is agent.
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <string>

namespace troupe::agent {

/// Runs an agent until its node ends, then ends the process. `options` is "cluster…" for a node of
/// a cluster, whose launcher is at the other end of the socket and sends an os::AgentConfig. Else
/// it is an os::NodeOffer as text for a private node, whose one driver is at the other end of the
/// socket: the node ends when that closes.
[[noreturn]] void run_agent(Fd driver, const std::string& options);

}  // namespace troupe::agent
