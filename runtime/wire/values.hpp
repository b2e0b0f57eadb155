/// What client and agent agree on beside the messages: the two spellings of a location, inline
/// bytes in a payload, and limits that both go by.
#pragma once

#include "troupe/objectstore/location.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/wire/messages.hpp"

namespace troupe::wire {

/// The agent's process index on its own node.
inline constexpr std::uint64_t kAgentProcess = 0;

inline objectstore::Location store_location(const Location& at) noexcept {
  return {at.segment, at.slot, at.generation, objectstore::ExtentId{at.extent}, at.offset,
          at.length,  0};
}
inline Location wire_location(const objectstore::Location& at) noexcept {
  return {at.process, at.slot, at.generation, at.extent.value, at.offset, at.length};
}

/// Appends bytes to a frame's payload at a 16-byte boundary and points the value at them.
void append_inline(Value& value, BlobView bytes, Blob& payload);

/// What an agent says on its doorbell: until when its actors may answer, as a moment of the clock
/// that goes on while the machine sleeps (up_time()), or one of these.
inline constexpr std::int64_t kServesAlways = 0;  ///< a private node, or one that says nothing
inline constexpr std::int64_t kServesNever = 1;   ///< until it says something else
inline std::int64_t actor_lease_word(Time until) noexcept {
  return until <= Time{} ? kServesNever : until.time_since_epoch().count();
}

/// What holds without TROUPE_LINEAGE.
inline constexpr Bytes kDefaultLineage{64 << 20};

/// TROUPE_LINEAGE: bytes of calls that are kept for computing lost values again. Throws
/// InvalidArgument for a text that is no size.
Bytes lineage_limit(const Environment& environment);

}  // namespace troupe::wire
