/// Values on their way out of a process.
#pragma once

#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <functional>
#include <memory>
#include <utility>

namespace troupe::client {

using wire::append_inline;
using wire::kAgentProcess;
using wire::store_location;
using wire::wire_location;

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

}  // namespace troupe::client
