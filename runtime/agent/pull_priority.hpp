/// How soon the bytes of an object are wanted that this node pulls from its owner.
#pragma once

#include "troupe/runtime/agent/replicas.hpp"
#include "troupe/runtime/agent/transfer_plan.hpp"

namespace troupe::agent {

/// For a copy that is to be kept here whoever put the object waits; for one that is made anew
/// nobody does.
inline Priority pull_priority(const Replicas& replicas, ObjectId object) {
  if (!wire::is_copy(object)) return Priority::get;
  return replicas.is_coming(wire::original_of(object)) ? Priority::prefetch : Priority::wait;
}

}  // namespace troupe::agent
