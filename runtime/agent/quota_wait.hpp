/// How long a process waits whose job has as many bytes of objects as it may: until nothing of the
/// job's has been freed for its patience. A plain state machine.
///
///     switch (wait.asked(accounting.freed_of(job), patience, now)) …  // it asks in vain
///     wait.over();                                                    // it got what it asked for
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <cstdint>

namespace troupe::agent {

class QuotaWait {
 public:
  enum class Next : std::uint8_t { wait, pressure, refuse };
  static constexpr Duration kPressureEvery = std::chrono::milliseconds(500);
  /// From so long after the last ask on it is another one.
  static constexpr Duration kAnother = std::chrono::seconds(2);

  /// `freed`: bytes of its job that have been freed so far. pressure: it waits, and is to let go of
  /// what it can, which is said again and again.
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
