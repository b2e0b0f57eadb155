/// Node's carrying out of what LeaseTable, ReferenceTable and ActorHost decide.
#include "troupe/runtime/agent/node.hpp"

#include <utility>

namespace troupe::agent {

// --- leases

void Node::carry_out_leases() {
  for (auto events = leases_.take_events(); !events.empty(); events = leases_.take_events())
    for (auto& event : events) leasing_.carry_out(event, steady_now());
}

std::optional<std::pair<JobId, JobNumber>> Node::job_of(ProcessIndex process) {
  const Process* one = processes_.find(process);
  if (one == nullptr) return std::nullopt;
  return std::pair(one->job, one->job_number);
}

}  // namespace troupe::agent
