/// The log of a process: lines for people, on the error output.
///
///     log_line("%s ends: %s", name.c_str(), why.c_str());   // "troupe: node1 ends: no heartbeat"
///     flush_log();                                          // before _exit()
///
/// No caller waits for the reader of the error output, which may be a full pipe. A thread writes
/// the lines; the first line starts it. LogLines bounds what waits for it, and counts what is lost
/// and what repeats. The lines of a process keep their order. exit() flushes.
///
/// A child made by fork() has a log of its own. Without a thread, because the system starts none or
/// the process is in exit(), a line is written when there is room for it at once.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/units.hpp"

#include <string_view>

namespace troupe {

/// Queues "troupe: ", the text (at most 4 KiB) and a newline, which reach the system in one call:
/// lines of several processes do not mix. Never blocks. Any thread.
[[gnu::format(printf, 1, 2)]] TROUPE_API void log_line(const char* format, ...) noexcept;
/// The same for a line that may come in floods. The lines of a group become one line with their
/// number, up to a second later.
[[gnu::format(printf, 2, 3)]] TROUPE_API void log_counted(std::string_view group,
                                                          const char* format, ...) noexcept;
/// Writes a line when there is room for it at once, without a thread. For a process that must have
/// none; another one uses log_line().
[[gnu::format(printf, 1, 2)]] TROUPE_API void log_line_now(const char* format, ...) noexcept;
/// Writes a text as it is, after the lines before it. For the last words of a process. Blocks until
/// the text is written, 2 s at most.
TROUPE_API void log_last_words(std::string_view text) noexcept;

/// Blocks until the lines of this process are written, `bound` at most.
TROUPE_API void flush_log(Duration bound = std::chrono::milliseconds(500)) noexcept;

}  // namespace troupe
