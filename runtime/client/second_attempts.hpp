/// Which functions run how long as a rule, and which two Tasks are attempts of one task. A plain
/// state machine of TaskManager, which starts and ends the attempts.
///
///     second.ran(function, ran);                          // of functions with second attempts
///     if (now >= second.due(function, since)) second.pair(slow, attempt);
///     if (Task* other = second.part(task)) …              // `task` is over; `other` goes on alone
///
/// Invariants: ATTEMPTS-1 A Task is in one pair at most. ATTEMPTS-2 Nothing is due before the usual
/// time of the function is known.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/client/runtime_estimate.hpp"

#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::client {

struct Task;

class SecondAttempts {
 public:
  /// Notes the run time of a function. The name must outlive this object.
  void ran(std::string_view function, Duration time) { usual_[function].add(time); }
  bool knows_any() const noexcept { return !usual_.empty(); }
  /// Returns when a call of the function that began at `since` has run too long; Time::max(): its
  /// usual time is not known.
  Time due(std::string_view function, Time since) const;

  /// Notes that both are attempts of one task. Precondition: neither has another attempt.
  void pair(Task& slow, Task& second);
  bool any() const noexcept { return !pairs_.empty(); }
  /// Returns the other attempt of the task; nullptr: there is none.
  Task* other(const Task& task) const noexcept;
  /// Makes the other attempt the only one, and returns it; nullptr: there is none.
  Task* part(const Task& task) noexcept;
  /// The number of pairs that there have been.
  std::size_t begun() const noexcept { return begun_; }

 private:
  std::vector<std::pair<Task*, Task*>> pairs_;  ///< few
  std::map<std::string_view, RuntimeEstimate> usual_;
  std::size_t begun_ = 0;
};

}  // namespace troupe::client
