/// The workers that this agent has told to end, and when it kills those that have not. A plain
/// state machine.
///
///     if (workers.told(index, now)) …                       // the first time: tell it
///     for (const ProcessIndex late : workers.take_late(now)) kill(late);
///     workers.forget(index);                                // it has ended
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/os/zygote.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace troupe::agent {

class EndingWorkers {
 public:
  static constexpr Duration kPatience = os::kWorkersEnd;

  /// Returns false when the worker was told before. Its time is the one of the first call.
  bool told(ProcessIndex worker, Time now) {
    return due_.try_emplace(worker, now + kPatience).second;
  }
  void forget(ProcessIndex worker) { due_.erase(worker); }
  /// Returns whether the worker was told.
  bool has(ProcessIndex worker) const { return due_.count(worker) != 0; }
  /// Returns the workers whose time is over, each once.
  std::vector<ProcessIndex> take_late(Time now) {
    std::vector<ProcessIndex> late;
    for (auto& [worker, due] : due_) {
      if (due > now) continue;
      due = Time::max();
      late.push_back(worker);
    }
    return late;
  }
  Time next_deadline() const {
    Time next = Time::max();
    for (const auto& [worker, due] : due_) next = std::min(next, due);
    return next;
  }

 private:
  std::map<ProcessIndex, Time> due_;
};

}  // namespace troupe::agent
