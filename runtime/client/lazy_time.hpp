/// A time that is read from the clock when a core first needs it. The core's work before that
/// does not wait for the clock.
///
///     tasks.submit(std::move(task), LazyTime(&steady_now));  // a shell: the call goes out first
///     tasks.submit(std::move(task), Time{} + 3s);            // a test
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <utility>

namespace troupe::client {

/// Returns the same time at each call. Not for several threads: the first call writes.
class LazyTime {
 public:
  LazyTime(Time at) noexcept : at_(at) {}
  explicit LazyTime(Time (*look)() noexcept) noexcept : look_(look) {}
  Time operator()() const noexcept {
    if (look_ != nullptr) at_ = std::exchange(look_, nullptr)();
    return at_;
  }

 private:
  mutable Time at_{};
  mutable Time (*look_)() noexcept = nullptr;
};

}  // namespace troupe::client
