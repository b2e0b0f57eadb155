/// What an exception says of itself, whatever user code has thrown.
///
///     catch (...) { log(words_of_current_exception()); }
#pragma once

#include <string>

namespace troupe {

/// Its what(), or its type where that is null, empty or missing. Precondition: called inside a
/// catch block.
std::string words_of_current_exception();

}  // namespace troupe
