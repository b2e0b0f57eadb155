/// Whether the agent's next packet waits because this process has no file descriptor left for it.
/// The program may close files at any time, and nothing tells this process. So the packet is looked
/// at again and again. What waits for it ends in an error once the lack has lasted kPatience.
///
///     lack.met(now);                               // the packet found no descriptor
///     if (lack.is_lasting(now)) end_what_waits(DescriptorLack::error());
///     timer.set(lack.next_look());
///     lack.over();                                 // a packet was taken
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/result.hpp"

#include <atomic>
#include <cerrno>
#include <string>

namespace troupe::client {

class DescriptorLack {
 public:
  static constexpr Duration kLook = std::chrono::milliseconds(20);
  static constexpr Duration kPatience = std::chrono::milliseconds(500);
  static constexpr Duration kIdle = std::chrono::seconds(5);

  void met(Time now) noexcept {
    if (!exists()) since_ = now;
    next_look_ = now + kLook;
    exists_.store(true, std::memory_order_relaxed);
  }
  void over() noexcept {
    exists_.store(false, std::memory_order_relaxed);
    next_look_ = Time::max();
  }
  /// Any thread.
  bool exists() const noexcept { return exists_.load(std::memory_order_relaxed); }
  bool is_lasting(Time now) const noexcept { return exists() && now >= since_ + kPatience; }
  /// Whether an idle worker that its callers cannot reach shall end.
  bool may_end_process(Time now) const noexcept { return exists() && now >= since_ + kIdle; }
  /// Time::max(): there is no lack.
  Time next_look() const noexcept { return next_look_; }

  static Error error() {
    return Error(Code::unavailable,
                 std::string("this process has as many open files as it may, so it cannot reach "
                             "another process or more shared memory: close files, or ") +
                     memory_remedy(EMFILE));
  }

 private:
  std::atomic<bool> exists_{false};
  Time since_{};
  Time next_look_ = Time::max();
};

}  // namespace troupe::client
