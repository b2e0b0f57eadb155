/// Counts the threads inside something that is to end, and lets none in after the end.
///
///     if (const Visitors::Visit visit(visitors); visit) …   // what it guards lives until here
///     visitors.close();                                     // returns once all have left
#pragma once

#include <atomic>
#include <cstdint>

namespace troupe::client {

/// Outlives what it guards: a late thread still reads it.
class Visitors {
 public:
  class Visit {
   public:
    explicit Visit(Visitors& visitors) noexcept
        : visitors_(visitors.enter() ? &visitors : nullptr) {}
    /// Enters nothing.
    Visit() noexcept = default;
    ~Visit() {
      if (visitors_ != nullptr) visitors_->leave();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    explicit operator bool() const noexcept { return visitors_ != nullptr; }

   private:
    Visitors* visitors_ = nullptr;
  };

  /// Lets nobody in from here on, and waits until all threads have left. Precondition: something
  /// ends their waits inside.
  void close() noexcept {
    std::uint64_t state = state_.fetch_or(kClosed, std::memory_order_seq_cst) | kClosed;
    for (; state != kClosed; state = state_.load(std::memory_order_acquire)) state_.wait(state);
  }

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
  bool enter() noexcept {
    if ((state_.fetch_add(1, std::memory_order_seq_cst) & kClosed) == 0) return true;
    leave();
    return false;
  }
  void leave() noexcept {
    if ((state_.fetch_sub(1, std::memory_order_release) & kClosed) != 0) state_.notify_all();
  }
  std::atomic<std::uint64_t> state_{0};
};

}  // namespace troupe::client
