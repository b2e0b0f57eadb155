/// A LeaseTable whose workers start when they are asked for, for tests of leases.
#pragma once

#include "tests/runtime/scheduling/views.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <variant>
#include <vector>

namespace troupe::scheduling::lease_tables {

template <class Event>
std::vector<Event> pick(const std::vector<LeaseEvent>& events) {
  std::vector<Event> found;
  for (const auto& event : events)
    if (const auto* match = std::get_if<Event>(&event)) found.push_back(*match);
  return found;
}

struct Table : LeaseTable {
  Time now{};
  explicit Table(LeaseOptions options) : LeaseTable(std::move(options), node_id(1)) {}
  /// Starts the requested workers, with running numbers, and returns all events.
  std::vector<LeaseEvent> settle() {
    std::vector<LeaseEvent> all;
    for (bool more = true; more;) {
      more = false;
      for (const auto& event : take_events()) {
        all.push_back(event);
        if (const auto* start = std::get_if<StartWorker>(&event)) {
          worker_started(++last_worker, now, start->dedicated, start->job);
          more = true;
        }
      }
      if (!more && next_deadline() && *next_deadline() <= now) on_timer(now);
    }
    return all;
  }
  /// Lets time pass until that many such events come at one time, and returns all of that time.
  template <class Event>
  std::vector<LeaseEvent> until(std::size_t count) {
    std::vector<LeaseEvent> events = settle();
    for (int i = 0; pick<Event>(events).size() != count && i < 100; ++i) {
      if (const auto due = next_deadline()) now = std::max(now, *due);
      on_timer(now);
      events = settle();
    }
    EXPECT_EQ(pick<Event>(events).size(), count);
    return events;
  }
  WorkerId last_worker = WorkerId::of(1000);  ///< no process is a worker and an owner by chance
};

inline LeaseOptions options(double cpus, std::uint32_t max_workers, double gpus = 0) {
  LeaseOptions o;
  o.total = {.cpus = amount_of(cpus), .gpus = amount_of(gpus), .memory = 1ll << 30};
  o.max_workers = max_workers;
  return o;
}

inline RequestKind of_job(JobNumber job) {
  return {.spilled = false, .dedicated = false, .job = job};
}

}  // namespace troupe::scheduling::lease_tables
