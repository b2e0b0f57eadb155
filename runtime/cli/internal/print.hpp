/// Prints the document that `--json` asks for, and who did not answer; the verbs of cli/ share it.
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/observe/missing.hpp"

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace troupe::cli {

inline void print(const Json& document) {
  std::printf("%s\n", document.dump(2).c_str());
}

/// Returns the text without characters that steer a terminal. Its lines stay.
inline std::string escaped_lines(std::string_view text) {
  std::string escaped;
  for (;;) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    escaped += escaped_text(text.substr(0, end));
    if (end == text.size()) return escaped;
    escaped += '\n';
    text.remove_prefix(end + 1);
  }
}

/// Tells on stderr of which sources rows, or `what`, are missing, one a line.
inline void print_missing(const observe::Missing& missing, std::string_view what = "rows",
                          bool has_json = true) {
  std::fflush(stdout);
  for (const std::string& line : missing.lines(what, has_json))
    std::fprintf(stderr, "troupe: %s\n", line.c_str());
}

/// Returns whether somebody may read what is written to stdout. False when the reader of a pipe has
/// ended, also while nothing is written.
inline bool is_read() {
  pollfd entry{STDOUT_FILENO, 0, 0};
  return std::ferror(stdout) == 0 &&
         (poll(&entry, 1, 0) <= 0 || (entry.revents & (POLLERR | POLLHUP)) == 0);
}

}  // namespace troupe::cli
