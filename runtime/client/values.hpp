/// Values on their way out of a process, and the two spellings of a location.
#pragma once

#include "troupe/objectstore/location.hpp"
#include "troupe/runtime/detail/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <functional>
#include <memory>
#include <utility>

namespace troupe::client {

/// Why a call has not run: the bytes of an argument are gone.
struct LostArgument {
  std::uint16_t number = 0;  ///< from 1; 0: not so
  ObjectId object;           ///< what it was forwarded to, if it was
};

/// The end of a call that never ran, since an argument ended in this error.
inline Error of_call_not_run(const Error& argument) {
  ErrorInfo info = argument.info();
  info.outcome = Outcome::not_executed;
  return Error(std::move(info));
}

/// A value ready to be sent: bytes (inline) or a location, with the handles inside.
struct OutgoingValue {
  wire::Value::Kind kind = wire::Value::Kind::pending;
  Blob bytes;
  wire::Location location;
  std::vector<detail::ObjectHandle> refs;
  bool bundled = false;    ///< shared: `refs` are bundles of those inside
  std::uint32_t site = 0;  ///< shared: the number of its call site; 0: unknown
  std::shared_ptr<const ErrorInfo> error;
  detail::ObjectHandle forward;
  LostArgument lost;  ///< error
};

/// The agent's process index on its own node.
inline constexpr std::uint64_t kAgentProcess = 0;

inline objectstore::Location store_location(const wire::Location& at) noexcept {
  return {at.segment, at.slot, at.generation, objectstore::ExtentId{at.extent}, at.offset,
          at.length,  0};
}
inline wire::Location wire_location(const objectstore::Location& at) noexcept {
  return {at.process, at.slot, at.generation, at.extent.value, at.offset, at.length};
}

/// Appends bytes to a frame's payload at a 16-byte boundary and points the value at them.
void append_inline(wire::Value& value, BlobView bytes, Blob& payload);

}  // namespace troupe::client
