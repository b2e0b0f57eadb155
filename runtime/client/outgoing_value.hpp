/// Values on their way out of a process, and the names that client/ takes from wire/. Serves
/// ClientEngine and the result sinks.
#pragma once

#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace troupe::client {

using wire::append_inline;
using wire::kAgentProcess;
using wire::store_location;
using wire::wire_location;

/// Names the argument whose lost bytes kept a call from running.
struct LostArgument {
  std::uint16_t number = 0;  ///< position from 1; 0: none
  ObjectId object;           ///< the object that it was forwarded to, if any
};

/// The receiver for which a value is encoded.
struct Receiver {
  ProcessIndex holder;        ///< the holder that its refs are counted for
  bool by_reference = false;  ///< on another node: locations in memory mean nothing to it
  /// It looks for lost bytes itself. Forwarded values then name objects that can be computed
  /// again.
  bool recovers = false;
  bool only_references = false;  ///< its frame has no room for small values either
  std::uint64_t frame = 0;       ///< the frame's number, if the receiver is on this node
  std::uint32_t waiting = 0;     ///< earlier frames that wait outside the ring
};
inline Receiver for_agent() noexcept {
  return {.holder = kAgentProcess};
}

/// Returns the error of a call that never ran because an argument ended in this error.
inline Error of_call_not_run(const Error& argument) {
  ErrorInfo info = argument.info();
  info.outcome = Outcome::not_executed;
  return Error(std::move(info));
}

/// A value that is ready to be sent: inline bytes or a location, with the handles inside.
struct OutgoingValue {
  wire::Value::Kind kind = wire::Value::Kind::pending;
  Blob bytes;
  wire::Location location;
  std::vector<detail::ObjectHandle> refs;
  bool bundled = false;    ///< shared: `refs` are bundles of the refs inside
  std::uint32_t site = 0;  ///< shared: number of its call site; 0: unknown
  std::shared_ptr<const ErrorInfo> error;
  detail::ObjectHandle forward;
  LostArgument lost;  ///< of an error
};

}  // namespace troupe::client
