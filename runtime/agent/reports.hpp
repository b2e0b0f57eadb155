/// Decides when a node sends its NodeReport (free resources, store, workers) to control: soon
/// after a change, and not too often. A plain state machine of the agent.
///
///     if (reports.due(now) && reports.is_news(report, leases.spilled_here(), now)) send(report);
///     timer.set(reports.next_deadline());
///
/// Invariant: a further report follows each lease request from another agent, even if the lease
/// came back before the report and no number has changed. The other agent counts the resources as
/// taken until it sees that report.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <cstdint>
#include <optional>

namespace troupe::agent {

class Reports {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(100);
  /// Least time between two looks, since a busy event loop asks every few microseconds.
  static constexpr Duration kLook = std::chrono::milliseconds(2);

  /// Whether it is time to make a report and pass it to is_news().
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
  /// Whether this report is to be sent; if so, it counts as sent. `spilled_here` is
  /// LeaseTable::spilled_here().
  bool is_news(const control::NodeReport& report, std::uint64_t spilled_here, Time now) {
    if (told_ && spilled_here == told_of_ && same(report, *told_)) return false;
    told_ = report;
    told_of_ = spilled_here;
    next_ = now + kInterval;
    return true;
  }
  /// Makes the next report news: control may have lost the earlier ones.
  void forget() {
    told_.reset();
    next_ = Time{};
  }
  /// When to call due() at the latest; Time::max(): after the next event.
  Time next_deadline() const noexcept { return next_ > Time{} ? next_ : Time::max(); }

 private:
  static bool same(const control::NodeReport& a, const control::NodeReport& b) {
    return a.view.free == b.view.free && a.view.gpu_free == b.view.gpu_free &&
           a.view.accepts == b.view.accepts && a.view.waiting == b.view.waiting &&
           a.view.most_actors == b.view.most_actors && a.store_used == b.store_used &&
           a.workers == b.workers && a.unreachable == b.unreachable;
  }

  Time next_{}, looked_ = Time{} - kLook;
  std::optional<control::NodeReport> told_;
  std::uint64_t told_of_ = 0;  ///< `spilled_here` at the last report
};

}  // namespace troupe::agent
