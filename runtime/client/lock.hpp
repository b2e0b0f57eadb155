/// The engine's one lock, which knows its holder: a handle may be released anywhere, also by code
/// that holds it.
#pragma once

#include <mutex>

namespace troupe::client {

class EngineLock {
 public:
  void lock() {
    mutex_.lock();
    holder() = this;
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    holder() = this;
    return true;
  }
  void unlock() {
    holder() = nullptr;
    mutex_.unlock();
  }
  bool held_by_this_thread() const noexcept { return holder() == this; }

 private:
  static const EngineLock*& holder() noexcept {
    static thread_local const EngineLock* held = nullptr;
    return held;
  }
  std::mutex mutex_;
};

}  // namespace troupe::client
