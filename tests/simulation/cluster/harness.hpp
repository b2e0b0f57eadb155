/// Runs many seeds of the cluster world, isolates them in child processes, and shrinks a failing
/// one.
///
///     Batch batch = run_batch(1, 1000, {});      // batch.failures, batch.text()
///     Tuning small = shrink(seed, {}, why);      // the smallest schedule that still fails
#pragma once

#include "tests/simulation/cluster/cluster.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::cluster {

/// The result of one seed. It is a plain struct, so that it can be sent through a pipe.
struct Outcome {
  std::uint64_t seed = 0, trace = 0, events = 0, calls = 0, planned = 0;
  std::uint64_t settled = 0, excused = 0;
  double virtual_seconds = 0;
  bool counts = false;
  FaultCounts faults;
  std::array<std::uint64_t, kMarks> marks{};
  std::string violation;
};

struct Batch {
  std::uint64_t from = 0, seeds = 0, counted = 0, events = 0, calls = 0, repeated = 0;
  std::uint64_t settled = 0, excused = 0;
  double seconds = 0, virtual_seconds = 0;
  Trace trace;  ///< of all seeds; a mere speed-up of the simulator keeps it
  FaultCounts faults;
  std::array<std::uint64_t, kMarks> marks{};
  std::vector<std::pair<std::uint64_t, std::string>> failures;

  /// Returns how many kinds of fault struck at least `least` times.
  std::size_t kinds(std::uint64_t least) const;
  /// Returns why the batch did too little to prove anything, or an empty string.
  std::string floor() const;
  std::string text() const;
  std::string json() const;
};

/// Runs a seed in a child process, so that an abort counts as a violation.
Outcome run_isolated(std::uint64_t seed, const Tuning& tuning);
/// Runs a batch of seeds. Every twentieth seed runs twice and must give the same trace.
Batch run_batch(std::uint64_t from, std::uint64_t seeds, const Tuning& tuning,
                std::size_t most_failures = 20);
/// Leaves out faults and work one by one while the seed still fails with the same message up to
/// its first colon. Runs at most 300 schedules.
Tuning shrink(std::uint64_t seed, Tuning tuning, const std::string& why);

}  // namespace troupe::sim::cluster
