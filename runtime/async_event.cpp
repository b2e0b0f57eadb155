#include "troupe/runtime/async_event.hpp"

namespace troupe {

bool AsyncEvent::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(set_, false);
}

/// False: it was set meanwhile.
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
