/// The engine's one lock. It knows its holder, because a handle may be released anywhere, also by
/// code that holds the lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace troupe::client {

/// Optimised for the lock without contention, which a call takes several times: one inlined
/// atomic operation each way. Drepper's mutex 2 ("Futexes Are Tricky", 2011).
class EngineLock {
 public:
  EngineLock() noexcept = default;
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;
  void lock() noexcept {
    if (!take(std::memory_order_acquire, std::memory_order_relaxed)) wait();
    holder() = this;
  }
  /// A thread may publish work, try the lock, and leave the work to the holder if that fails. The
  /// holder looks for work after unlock(). unlock() and a try that fails are sequentially consistent,
  /// so that with such stores and loads of the work one of the two threads sees the other. A release
  /// and a relaxed load would let both miss: a load may be ordered before an earlier release.
  bool try_lock() noexcept {
    if (!take(std::memory_order_seq_cst, std::memory_order_seq_cst)) return false;
    holder() = this;
    return true;
  }
  void unlock() noexcept {
    holder() = nullptr;
    if (state_.exchange(kFree, std::memory_order_seq_cst) == kWaitedFor)  // on x86 still one xchg
      wake_one();
  }
  bool held_by_this_thread() const noexcept { return holder() == this; }

 private:
  enum : std::uint32_t { kFree, kTaken, kWaitedFor };
  bool take(std::memory_order success, std::memory_order failure) noexcept {
    std::uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kTaken, success, failure);
  }
  /// Sleeps until it has the lock. It takes the lock as kWaitedFor, since other threads may still
  /// wait: the unlock then wakes one.
  void wait() noexcept;
  void wake_one() noexcept;
  // Initial-exec: the address is found without a call into the loader, unlike a library's default
  // thread_local.
  static const EngineLock*& holder() noexcept {
    [[gnu::tls_model("initial-exec")]] static thread_local const EngineLock* held = nullptr;
    return held;
  }
  std::atomic<std::uint32_t> state_{kFree};
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
};

}  // namespace troupe::client
