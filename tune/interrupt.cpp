#include "troupe/tune/internal/interrupt.hpp"

#include <atomic>

namespace troupe::tune {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void note_interrupt(int /*signal*/) {
  interrupted.store(true);
}

}  // namespace

InterruptWatch::InterruptWatch() noexcept {
  ::sigaction(SIGINT, nullptr, &before_);
  const bool by_default =
      (before_.sa_flags & SA_SIGINFO) == 0 && before_.sa_handler == SIG_DFL;  // NOLINT
  if (!by_default) return;
  interrupted.store(false);
  struct sigaction action{};
  action.sa_handler = note_interrupt;  // NOLINT
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  watches_ = ::sigaction(SIGINT, &action, nullptr) == 0;
}

InterruptWatch::~InterruptWatch() {
  if (watches_) ::sigaction(SIGINT, &before_, nullptr);
}

bool InterruptWatch::came() const noexcept {
  return watches_ && interrupted.load();
}

}  // namespace troupe::tune
