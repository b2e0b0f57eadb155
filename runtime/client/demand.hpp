/// What the options of a task or an actor ask of a node. Plain functions, for ClientEngine.
#pragma once

#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"

namespace troupe::client {

/// Returns the demand of a task, or of an actor. `default_cpus`: of one whose options name none.
wire::ResourceDemand demand_of(const detail::Request& request, double default_cpus);

/// Refuses amounts that would overflow, or round to nothing: no later stage checks them. Throws
/// InvalidArgument.
void check_amounts(const detail::Request& request);

}  // namespace troupe::client
