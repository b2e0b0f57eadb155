/// Decides when the actors of a job whose driver has ended are told to end, and when they are
/// killed. A plain state machine inside the Directory.
///
///     jobs.begin(job, actors, now);
///     jobs.left(job).erase(actor);             // it has ended
///     switch (jobs.look(job, ends, now)) ...;  // when it is due
///
/// A driver's handles go when it ends. An actor that has no other handle then ends first, and the
/// actors that it held end after it, so calls that its destructor sends still find them. Actors
/// that hold one another stay. When for `kQuiet` no actor has been about to end, the rest are told
/// to end together. Actors that have not ended in time are killed.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace troupe::control {

class EndingJobs {
 public:
  static constexpr Duration kQuiet = std::chrono::milliseconds(150);
  /// Counted from the driver's end: when all are told to end at the latest, and when all are
  /// killed.
  static constexpr Duration kAllTold = std::chrono::seconds(1);
  static constexpr Duration kAllKilled = std::chrono::seconds(3);
  enum class Next : std::uint8_t { wait, tell_all, kill_all };

  /// Begins the end of a job. `left`: its actors whose processes live or may live. Returns false
  /// when it has begun before.
  bool begin(JobId job, std::set<ActorId> left, Time now) {
    return jobs_.try_emplace(job, Ending{std::move(left), now + kQuiet, now}).second;
  }
  bool has(JobId job) const { return jobs_.count(job) != 0; }
  bool empty() const noexcept { return jobs_.empty(); }
  /// Precondition: has(job).
  std::set<ActorId>& left(JobId job) { return jobs_.at(job).left; }
  std::map<JobId, std::set<ActorId>> all() const {
    std::map<JobId, std::set<ActorId>> jobs;
    for (const auto& [job, ending] : jobs_) jobs.emplace(job, ending.left);
    return jobs;
  }
  void forget(JobId job) { jobs_.erase(job); }
  /// Returns what to do with the actors that are left. `ends`: one of them has been told to end and
  /// has not ended yet.
  Next look(JobId job, bool ends, Time now) {
    Ending& ending = jobs_.at(job);
    if (now >= ending.since + kAllKilled) return Next::kill_all;
    if (ending.told || now < ending.due) return Next::wait;
    if (ends && now < ending.since + kAllTold) {
      ending.due = std::min(now + kQuiet, ending.since + kAllTold);
      return Next::wait;
    }
    ending.told = true;
    return Next::tell_all;
  }
  std::optional<Time> next_deadline() const {
    std::optional<Time> next;
    for (const auto& [job, ending] : jobs_) {
      const Time due = ending.told ? ending.since + kAllKilled : ending.due;
      next = std::min(next.value_or(due), due);
    }
    return next;
  }

 private:
  struct Ending {
    std::set<ActorId> left;
    Time due{};         ///< when look() decides next
    Time since{};       ///< end of the driver
    bool told = false;  ///< all that were left have been told to end
  };
  std::map<JobId, Ending> jobs_;
};

}  // namespace troupe::control
