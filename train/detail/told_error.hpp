/// ToldError: an Error in the form in which a message between a rank and its supervisor carries
/// it.
///
///     event.error = told(error);
///     if (const std::optional<Error> error = error_of(event.error)) …
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::train::internal {

struct ToldError {
  std::uint16_t code = 0;
  std::uint8_t outcome = 0;
  std::string message, type, stack;
  std::string node, function;
  int pid = 0;
  int attempt = 0;
};

/// Returns the error and its causes, the outermost first, at most 16 of them.
TROUPE_API std::vector<ToldError> told(const Error& error);
/// Returns the error with its causes, or nothing for an empty list.
TROUPE_API std::optional<Error> error_of(const std::vector<ToldError>& told);
/// Returns the exception in flight as an Error. Call it inside a catch block. `loop` names the
/// function that threw.
TROUPE_API Error current_error(const char* loop);

}  // namespace troupe::train::internal
