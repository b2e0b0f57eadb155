/// Describes the current exception, of whatever type user code has thrown.
///
///     catch (...) { log(words_of_current_exception()); }
#pragma once

#include <string>

namespace troupe {

/// Returns the exception's what(), or its type's name when what() is null, empty or missing.
/// Precondition: called inside a catch block.
std::string words_of_current_exception();

}  // namespace troupe
