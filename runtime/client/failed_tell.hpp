/// What people read of a tell that failed. It has no result that could carry its error.
#pragma once

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/client/actor_calls.hpp"

#include <string>

namespace troupe::client {

/// Logs the error. The end of an actor with many queued tells gives one line, with their number.
inline void log_failed_tell(const ActorCall& call, const Error& error) {
  const char* actor = call.call.callable->class_name;
  std::string group("tell ");
  group.append(actor).append(1, ' ').append(name_of(error.code()));
  log_counted(group, "a tell to %s failed: %s", actor, error.what());
}

}  // namespace troupe::client
