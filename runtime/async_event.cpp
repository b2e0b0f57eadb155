#include "troupe/runtime/async_event.hpp"

namespace troupe {

/// Returns whether the event was set, and resets it.
bool AsyncEvent::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(set_, false);
}

/// Returns true if the coroutine must wait, false if the event was set between take() and now. The
/// check under the same lock as in set() closes that gap: no set() is lost.
bool AsyncEvent::wait(Waiter waiter) {
  const std::lock_guard lock(mutex_);
  if (waiter_)
    throw InvalidArgument(Code::invalid_argument,
                          "AsyncEvent: two coroutines wait for one event: give each its own");
  if (std::exchange(set_, false)) return false;
  waiter_ = std::move(waiter);
  return true;
}

void AsyncEvent::set() {
  std::optional<Waiter> woken;
  {
    const std::lock_guard lock(mutex_);
    woken = std::exchange(waiter_, std::nullopt);
    if (!woken) {
      set_ = true;
      return;
    }
  }
  detail::Engine* engine = detail::Engine::current();
  if (engine == nullptr) return;
  engine->post([woken = std::move(*woken)] {
    woken.handle.resume();
    woken.root->resumed();
  });
}

}  // namespace troupe
