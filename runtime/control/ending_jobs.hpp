/// Jobs whose drivers have ended, until none of their actors lives: when which of them are to end.
/// A plain state machine inside the Directory.
///
///     jobs.begin(job, actors, now);
///     jobs.left(job).erase(actor);             // it has ended
///     switch (jobs.look(job, ends, now)) ...;  // when it is due
///
/// What a driver held is let go when it ends, so an actor that nobody else holds ends first, and
/// then those that it held: what its destructor sends finds them. Actors that hold one another
/// stay. When for a while none has been about to end, they are told to end together. Who has not
/// ended in time is killed.
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
  /// From the end of the driver: all are told to end by then, and killed by then.
  static constexpr Duration kAllTold = std::chrono::seconds(1);
  static constexpr Duration kAllKilled = std::chrono::seconds(3);
  enum class Next : std::uint8_t { wait, tell_all, kill_all };

  /// `left`: its actors that live, or whose processes may. False: it has begun before.
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
  /// `ends`: whether one of them has been told to end and has not ended.
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
    Time due{};  ///< then those that are left are looked at
    Time since{};
    bool told = false;  ///< all that were left
  };
  std::map<JobId, Ending> jobs_;
};

}  // namespace troupe::control
