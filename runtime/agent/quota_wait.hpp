/// Decides how long a process waits for memory when its job's objects have reached the job's limit
/// of bytes. It waits until no byte of the job was freed for its patience. A plain state machine.
///
///     switch (wait.asked(accounting.freed_of(job), patience, now)) …  // request beyond the limit
///     wait.over();                                                    // a request was granted
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <cstdint>

namespace troupe::agent {

class QuotaWait {
 public:
  enum class Next : std::uint8_t { wait, pressure, refuse };
  static constexpr Duration kPressureEvery = std::chrono::milliseconds(500);
  /// A request that comes this long after the last one begins a new wait.
  static constexpr Duration kAnother = std::chrono::seconds(2);

  /// Handles a request beyond the limit; the process repeats it while it waits. `freed` is the sum
  /// of the job's bytes that have been freed so far. `pressure`, returned once in kPressureEvery:
  /// the process waits, and is to be told to free what it can.
  Next asked(std::uint64_t freed, Duration patience, Time now) {
    if (!waits_ || now - last_ask_ > kAnother) {
      waits_ = true;
      told_ = now - kPressureEvery;
      progress_ = now;
    } else if (freed != freed_) {
      progress_ = now;
    }
    freed_ = freed;
    last_ask_ = now;
    if (now - progress_ >= patience) {
      waits_ = false;
      return Next::refuse;
    }
    if (now - told_ < kPressureEvery) return Next::wait;
    told_ = now;
    return Next::pressure;
  }
  void over() noexcept { waits_ = false; }

 private:
  bool waits_ = false;
  std::uint64_t freed_ = 0;
  Time progress_{}, last_ask_{}, told_{};
};

}  // namespace troupe::agent
