/// log_line: what a process of the runtime says to people, one line on the error output.
///
///     log_line("%s ends: %s", name.c_str(), why.c_str());   // "troupe: node1 ends: no heartbeat"
#pragma once

#include "troupe/runtime/base/assert.hpp"

namespace troupe {

/// Writes "troupe: ", the text of at most 4 KiB and a line's end with one system call, so that lines
/// of several processes do not mix. Any thread. An error of the write is ignored.
[[gnu::format(printf, 1, 2)]] TROUPE_API void log_line(const char* format, ...) noexcept;

}  // namespace troupe
