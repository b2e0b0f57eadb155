/// When a node tells control what it has free: soon after that changed, and not too often. A plain
/// state machine.
///
///     if (reports.due(now) && reports.is_news(report, leases.spilled_here(), now)) send(report);
///     timer.set(reports.next_deadline());
///
/// Invariant: an agent that has sent a request here hears of this node again, also when what it was
/// given came back before the next report and nothing seems to have changed: it counts as taken
/// there until then.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <cstdint>
#include <optional>

namespace troupe::agent {

class Reports {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(100);
  /// A busy loop comes by every few microseconds.
  static constexpr Duration kLook = std::chrono::milliseconds(2);

  /// Whether it is time to look at what there is to tell; if so, is_news() follows.
  bool due(Time now) {
    if (now < next_) return false;
    if (now < looked_ + kLook) {
      next_ = looked_ + kLook;
      return false;
    }
    looked_ = now;
    next_ = Time{};
    return true;
  }
  /// Whether this is to be sent; then it counts as sent. `spilled_here`: LeaseTable's.
  bool is_news(const control::NodeReport& report, std::uint64_t spilled_here, Time now) {
    if (told_ && spilled_here == told_of_ && same(report, *told_)) return false;
    told_ = report;
    told_of_ = spilled_here;
    next_ = now + kInterval;
    return true;
  }
  /// Control may know nothing.
  void forget() {
    told_.reset();
    next_ = Time{};
  }
  /// When due() has to be asked at the latest; Time::max(): when something has happened.
  Time next_deadline() const noexcept { return next_ > Time{} ? next_ : Time::max(); }

 private:
  static bool same(const control::NodeReport& a, const control::NodeReport& b) {
    return a.view.free == b.view.free && a.view.gpu_free == b.view.gpu_free &&
           a.view.accepts == b.view.accepts && a.view.waiting == b.view.waiting &&
           a.store_used == b.store_used && a.workers == b.workers && a.unreachable == b.unreachable;
  }

  Time next_{}, looked_ = Time{} - kLook;
  std::optional<control::NodeReport> told_;
  std::uint64_t told_of_ = 0;  ///< requests that others had sent here by then
};

}  // namespace troupe::agent
