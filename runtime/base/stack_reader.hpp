/// How Error::remote_stack() makes frames readable. Below it nothing can look up lines, so a room
/// above sets the function.
///
///     set_stack_reader(&os::readable_stack);
#pragma once

#include <string>

namespace troupe {

using StackReader = std::string (*)(const std::string& frames);

/// Sets the function for this process. Without one, frames stay as they arrived. Thread-safe.
void set_stack_reader(StackReader reader) noexcept;

}  // namespace troupe
