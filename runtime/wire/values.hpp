/// Conventions that client and agent share beside the messages: locations, inline bytes in a
/// payload, values of the actor lease, and the lineage limit.
#pragma once

#include "troupe/objectstore/location.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/wire/messages.hpp"

namespace troupe::wire {

/// The agent's process index on its own node.
inline constexpr ProcessIndex kAgentProcess;

inline objectstore::Location store_location(const Location& at) noexcept {
  return {at.segment, at.slot, at.generation, objectstore::ExtentId{at.extent}, at.offset,
          at.length,  0};
}
inline Location wire_location(const objectstore::Location& at) noexcept {
  return {at.process, at.slot, at.generation, at.extent.value, at.offset, at.length};
}

/// Appends bytes to a frame's payload at a 16-byte boundary and points the value at them.
void append_inline(Value& value, BlobView bytes, Blob& payload);

/// Values of the actor lease, which an agent publishes on its doorbell (Doorbell::say). It is the
/// moment until which the agent's actors may answer, or one of the two constants. The moment is in
/// ns of up_time(), a clock that goes on while the machine sleeps.
inline constexpr std::int64_t kServesAlways = 0;  ///< a private node, or nothing published yet
inline constexpr std::int64_t kServesNever = 1;   ///< not until another value is published
inline std::int64_t actor_lease_word(Time until) noexcept {
  return until <= Time{} ? kServesNever : until.time_since_epoch().count();
}

/// The limit without TROUPE_LINEAGE.
inline constexpr Bytes kDefaultLineage{64 << 20};

/// Returns TROUPE_LINEAGE: how many bytes of calls a process keeps so that lost values can be
/// computed again. Throws InvalidArgument for a text that is no size.
Bytes lineage_limit(const Environment& environment);

}  // namespace troupe::wire
