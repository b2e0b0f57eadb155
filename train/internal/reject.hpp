/// Helpers that refuse an argument with InvalidArgument.
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <string>

namespace troupe::train::internal {

[[noreturn]] inline void reject(std::string message) {
  throw InvalidArgument(Code::invalid_argument, std::move(message));
}

/// Throws InvalidArgument unless the condition holds.
inline void require(bool condition, const char* message) {
  if (!condition) reject(message);
}

}  // namespace troupe::train::internal
