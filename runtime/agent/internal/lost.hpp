/// Makes values of kind `error`, for the parts of the agent that end a wait for a lost object.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <memory>
#include <string>
#include <utility>

namespace troupe::agent::internal {

inline wire::Value error_value(std::shared_ptr<const ErrorInfo> info) {
  wire::Value value;
  value.kind = wire::Value::Kind::error;
  value.error = std::move(info);
  return value;
}

/// Returns an ObjectLost. The node of its cause is named as its own.
inline wire::Value lost(std::string message, const Error* cause = nullptr) {
  ErrorInfo info;
  info.code = Code::object_lost;
  info.message = std::move(message);
  if (cause != nullptr) {
    info.cause = cause->shared_info();
    info.origin.node = cause->where().node;
  }
  return error_value(std::make_shared<const ErrorInfo>(std::move(info)));
}

/// Returns the answer to a node that takes this one for the owner of an object that it imports.
inline wire::Value no_owner() {
  return lost("the node that owned the object is out of reach of all who were asked");
}

}  // namespace troupe::agent::internal
