/// The threads of this process that wait for values, so that a list can say for which. Serves
/// ClientEngine, under its lock.
///
///     const WaitingThreads::Here here(threads, {&handle, 1}, 1);   // while the thread waits
#pragma once

#include "troupe/runtime/client/lazy_time.hpp"
#include "troupe/runtime/engine/engine.hpp"

#include <cstdint>
#include <span>

namespace troupe::client {

class WaitingThreads {
 public:
  /// A thread that waits for `count` of the objects, while this lives.
  class Here {
   public:
    Here(WaitingThreads& all, std::span<const detail::ObjectHandle> objects, std::size_t count)
        : all_(all), objects_(objects), count_(count), next_(all.first_) {
      if (next_ != nullptr) next_->previous_ = this;
      all.first_ = this;
    }
    ~Here() {
      if (next_ != nullptr) next_->previous_ = previous_;
      (previous_ != nullptr ? previous_->next_ : all_.first_) = next_;
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
    std::span<const detail::ObjectHandle> objects() const noexcept { return objects_; }
    std::size_t count() const noexcept { return count_; }
    std::uint32_t since_ms() const noexcept { return since_ms_; }

   private:
    friend class WaitingThreads;
    WaitingThreads& all_;
    std::span<const detail::ObjectHandle> objects_;
    std::size_t count_;
    std::uint32_t since_ms_ = LazyTime(&steady_now).milliseconds();
    Here* previous_ = nullptr;
    Here* next_;
  };

  /// Calls look_at with each thread, the one that waits for the shortest time first.
  template <class F>
  void each(F look_at) const {
    for (const Here* at = first_; at != nullptr; at = at->next_) look_at(*at);
  }

 private:
  Here* first_ = nullptr;
};

}  // namespace troupe::client
