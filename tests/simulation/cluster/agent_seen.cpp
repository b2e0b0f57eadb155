/// Describes an agent's remaining work in words, for the end of a schedule and for reports of
/// failures.
#include "tests/simulation/cluster/agent.hpp"
#include "tests/simulation/cluster/cluster.hpp"

namespace troupe::sim::cluster {

std::string Agent::why_busy() const {
  std::string text;
  for (const auto& [index, proc] : processes_)
    if (proc->driver)
      text += proc->process
                  ? " driver " + index.str() + " waits for " + proc->process->program().waits_for()
                  : " driver " + index.str() + " is not welcome";
    else if (proc->process)
      text += " [" + index.str() + " " + proc->process->describe() + "]";
    else
      text += proc->starts_at ? " [starting]" : proc->reaped_at ? " [dead]" : " [none]";
  return text + requests();
}

/// Lists the lease requests that wait here and at other nodes, and why each waits.
std::string Agent::requests() const {
  std::string text;
  for (const auto& [index, proc] : processes_)
    for (const LeaseKey key : proc->keys) {
      const auto here = leases_.wanted(index, key), there = remote_.outstanding(index, key);
      if (here + there == 0) continue;
      text += " {" + index.str() + " wants " + std::to_string(here) + " here, " +
              std::to_string(there) + " elsewhere of " + key.str() + ": " +
              leases_.explain(index, key) + "}";
    }
  return text;
}

std::string Agent::left_over() const {
  std::string text;
  const auto add = [&](const char* what, std::size_t n) {
    if (n > 0) text += std::string(" ") + std::to_string(n) + " " + what;
  };
  add("jobs", jobs_.size());
  add("processes", processes_.size());
  add("leases", leases_.lease_count());
  add("workers", leases_.worker_count());
  add("proxies", proxies_.size());
  add("lives", actors_.hosted());
  add("watched actors", actors_.watched());
  add("pulls", moves_.pulls());
  add("memories of pulls", moves_.memory());
  add("dead processes that may be named", in_flight_refs_.dead());
  add("records", references_.size());
  add("objects in memory", store_.size());
  return text + seen_records();
}

/// Lists the records left in the reference table, for the report of a failure.
std::string Agent::seen_records() const {
  std::string text;
  std::size_t count = 0;
  references_.each([&](const agent::ReferenceTable::Seen& seen) {
    if (++count > 4) return;
    text += " (" + seen.object.str().substr(0, 6) + ":" + std::to_string(seen.object.low) +
            (seen.owner == kSelf ? " made by " + seen.producer.str() : " of " + seen.owner.str()) +
            ", kind " + std::to_string(static_cast<int>(seen.value.kind)) + ", held by";
    for (const auto& [holder, count] : seen.holders) {
      const auto node = remote_.node_of(holder);
      text += " " + holder.str() + (node ? "=n" + std::to_string(node->low) : std::string()) + ":" +
              std::to_string(count);
    }
    text += ")";
  });
  return text;
}

}  // namespace troupe::sim::cluster
