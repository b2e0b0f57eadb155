/// A time that is read from the clock when a core first needs it. The core's work before that
/// does not wait for the clock.
///
///     tasks.submit(std::move(task), LazyTime(&steady_now));  // a shell: the call goes out first
///     tasks.submit(std::move(task), Time{} + 3s);            // a test
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <cstdint>
#include <ctime>
#include <utility>

namespace troupe::client {

/// The time in milliseconds as 32 bits hold it: it begins anew after 49 days.
constexpr std::uint32_t milliseconds_of(Time at) noexcept {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count());
}

/// Returns the same time at each call. Not for several threads: the first call writes.
class LazyTime {
 public:
  LazyTime(Time at) noexcept : at_(at) {}
  explicit LazyTime(Time (*look)() noexcept) noexcept : look_(look) {}
  Time operator()() const noexcept {
    if (look_ != nullptr) at_ = std::exchange(look_, nullptr)();
    return at_;
  }
  /// Returns the time to some milliseconds: a fifth of the cost, if the clock was not read before.
  std::uint32_t milliseconds() const noexcept {
    if (look_ == nullptr) return milliseconds_of(at_);
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return milliseconds_of(Time(std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec)));
  }

 private:
  mutable Time at_{};
  mutable Time (*look_)() noexcept = nullptr;
};

}  // namespace troupe::client
