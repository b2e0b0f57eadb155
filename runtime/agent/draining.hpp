/// Whether this node drains: it takes nothing new, and leaves when it is empty or its time is over.
/// A plain state machine.
///
///     draining.begin(/*within=*/60s, now);
///     if (draining.is_over(/*is_empty=*/leases == 0 && actors == 0 && drivers == 0, now)) …
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/deadline.hpp"

#include <optional>

namespace troupe::agent {

class Draining {
 public:
  /// The node drains from now on. The last call decides the time; Duration::max() sets no limit.
  void begin(Duration within, Time now) { until_ = deadline_after(now, within); }
  bool is_on() const noexcept { return until_.has_value(); }
  /// Returns whether the node leaves now.
  bool is_over(bool is_empty, Time now) const noexcept {
    return until_ && (is_empty || now >= *until_);
  }
  Time next_deadline() const noexcept { return until_.value_or(Time::max()); }

 private:
  std::optional<Time> until_;
};

}  // namespace troupe::agent
