/// log_line: writes one line for people to the error output.
///
///     log_line("%s ends: %s", name.c_str(), why.c_str());   // "troupe: node1 ends: no heartbeat"
#pragma once

#include "troupe/runtime/base/assert.hpp"

namespace troupe {

/// Writes "troupe: ", the text (at most 4 KiB) and a newline with one system call, so that lines of
/// several processes do not mix. Any thread. Ignores an error of the write.
[[gnu::format(printf, 1, 2)]] TROUPE_API void log_line(const char* format, ...) noexcept;

}  // namespace troupe
