#include "troupe/runtime/base/log.hpp"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace troupe {

void log_line(const char* format, ...) noexcept {
  constexpr std::size_t kMost = 4096;
  constexpr char kPrefix[] = "troupe: ";
  constexpr std::size_t kBegin = sizeof kPrefix - 1;
  char line[kBegin + kMost + 1];
  std::memcpy(line, kPrefix, kBegin);
  va_list arguments;
  va_start(arguments, format);
  const int n = std::vsnprintf(line + kBegin, kMost, format, arguments);
  va_end(arguments);
  std::size_t end = kBegin + std::min(kMost - 1, static_cast<std::size_t>(std::max(n, 0)));
  line[end++] = '\n';
  while (::write(STDERR_FILENO, line, end) < 0 && errno == EINTR) {
  }
}

}  // namespace troupe
