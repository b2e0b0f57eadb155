/// The stack of a crash as a text that crosses processes, and the same text for a person.
///
///     agent:   error.remote_stack = stack_text(report);     // "    #0 /lib/libmix.so+0x12 [2f…]"
///     driver:  print(readable_stack(error.remote_stack));   // "    #0 mix(int) at mix.cpp:12 (…)"
#pragma once

#include "troupe/runtime/os/crash_record.hpp"

#include <cstddef>
#include <string>

namespace troupe::os {

inline constexpr std::size_t kMostStackText = 3 * 1024;  ///< bytes; frames beyond it are left out

/// Returns a line for the signal and its thread, and a line for each frame, with module, offset and
/// build-id. No control character passes.
std::string stack_text(const CrashReport& report);

/// Returns the text with function, file and line of each frame where they are known, else with
/// module and offset. Other lines stay. Blocks for at most 4 s: a child process reads the debug
/// information of this host, once for each place of this process's life. Thread-safe. Never fails.
std::string readable_stack(const std::string& text);

}  // namespace troupe::os
