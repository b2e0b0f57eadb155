/// The drivers of this node whose jobs a person stops. Each has kGrace to end; then it is killed. A
/// plain state machine of the agent.
///
///     stops.begin(job, handle_of_driver, now);
///     for (const Fd& driver : stops.take_late(now)) os::kill_process(driver);
///
/// Invariants: JOBSTOP-1 A driver gets kGrace from the first begin() of its job, and take_late()
/// returns its handle once. A second begin() changes nothing but a missing
/// handle. JOBSTOP-2 A driver that has ended its session is not killed: its process may go on.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <utility>
#include <vector>

namespace troupe::agent {

class JobStops {
 public:
  static constexpr Duration kGrace = std::chrono::seconds(10);

  /// Owns `driver`, the handle of the driver's process. The handle also keeps its pid from being
  /// taken for another process. None: the process cannot be killed from here.
  void begin(JobId job, Fd driver, Time now) {
    for (Stop& stop : stops_)
      if (stop.job == job) {
        if (!stop.driver) stop.driver = std::move(driver);
        return;
      }
    stops_.push_back({job, std::move(driver), now + kGrace});
  }
  /// The job's driver has ended its session.
  void forget(JobId job) {
    std::erase_if(stops_, [job](const Stop& stop) { return stop.job == job; });
  }
  /// Returns the handles of the drivers whose time is over. Some may have ended.
  std::vector<Fd> take_late(Time now) {
    std::vector<Fd> late;
    std::erase_if(stops_, [&](Stop& stop) {
      if (stop.until > now) return false;
      if (stop.driver) late.push_back(std::move(stop.driver));
      return true;
    });
    return late;
  }
  /// Returns when to call take_late() next.
  Time next_deadline() const {
    return stops_.empty() ? Time::max() : stops_.front().until;  // they end in order
  }

 private:
  struct Stop {
    JobId job;
    Fd driver;
    Time until{};
  };
  std::vector<Stop> stops_;  ///< by `until`
};

}  // namespace troupe::agent
