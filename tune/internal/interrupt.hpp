/// InterruptWatch: notices the first Ctrl-C while it lives. The second one ends the process as
/// before.
///
///     const InterruptWatch interrupt;
///     while (!interrupt.came()) …
///
/// It does nothing in a process that handles or ignores SIGINT itself. One at a time.
#pragma once

#include <csignal>

namespace troupe::tune {

class InterruptWatch {
 public:
  InterruptWatch() noexcept;
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  ~InterruptWatch();
  bool came() const noexcept;
  /// Whether it would notice one.
  bool watches() const noexcept { return watches_; }

 private:
  bool watches_ = false;
  struct sigaction before_{};
};

}  // namespace troupe::tune
