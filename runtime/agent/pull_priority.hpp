/// The priority with which this node pulls an object's bytes from its owner.
#pragma once

#include "troupe/runtime/agent/replicas.hpp"
#include "troupe/runtime/agent/transfer_plan.hpp"

namespace troupe::agent {

/// An object that a process opens has the highest priority. For a first copy, the process that put
/// the object waits. For a copy that restores the number of copies, no process waits.
inline Priority pull_priority(const Replicas& replicas, ObjectId object) {
  if (!wire::is_copy(object)) return Priority::get;
  return replicas.is_coming(wire::original_of(object)) ? Priority::prefetch : Priority::wait;
}

}  // namespace troupe::agent
