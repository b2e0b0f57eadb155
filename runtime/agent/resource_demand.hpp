/// Conversion of resource demands between their form on the wire and that of the lease table and
/// control.
///
///     leases.request(owner, key, demand_of(message.demand), backlog, now);
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>

namespace troupe::agent {

inline scheduling::ResourceDemand demand_of(const wire::ResourceDemand& from) {
  scheduling::ResourceDemand demand;
  demand.need.cpus = from.cpus;
  demand.need.gpus = from.gpus;
  demand.need.memory = scheduling::at_most_amount(from.memory_bytes);
  demand.need.custom = from.resources;
  scheduling::normalize(demand.need);
  demand.labels = from.labels;
  demand.placement = static_cast<scheduling::Placement>(from.placement);
  demand.node = from.node;
  demand.soft = from.soft;
  return demand;
}

/// The reverse, for another agent. Fields that concern this node alone are left out.
inline wire::ResourceDemand wire_demand(const scheduling::ResourceDemand& from) {
  wire::ResourceDemand demand;
  demand.cpus = from.need.cpus;
  demand.gpus = from.need.gpus;
  demand.memory_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(0, from.need.memory));
  demand.resources = from.need.custom;
  demand.labels = from.labels;
  demand.placement = static_cast<std::uint8_t>(from.placement);
  demand.node = from.node;
  demand.soft = from.soft;
  return demand;
}

}  // namespace troupe::agent
