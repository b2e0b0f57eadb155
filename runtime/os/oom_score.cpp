#include "troupe/runtime/os/oom_score.hpp"

#include "troupe/runtime/base/fd.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <iterator>

namespace troupe::os {

void raise_oom_score() noexcept {
  const Fd file(open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  char text[16];
  const ssize_t n = file ? read(file.get(), text, sizeof text) : -1;
  int score = 0;
  if (n <= 0 || std::from_chars(text, text + n, score).ec != std::errc()) return;
  score = std::min(std::max(score, 0) + kOomScoreStep, kMostOomScore);
  const auto end = std::to_chars(std::begin(text), std::end(text), score).ptr;
  (void)!write(file.get(), text, static_cast<std::size_t>(end - text));
}

}  // namespace troupe::os
