/// Runs many seeds of the cluster world, each kept apart from the others by a process, and takes a
/// failing one to pieces.
///
///     Batch batch = run_batch(1, 1000, {});      // batch.failures, batch.text()
///     Tuning small = shrink(seed, {}, why);      // the least that still fails
#pragma once

#include "tests/simulation/cluster/cluster.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::cluster {

/// What one seed did; plain, so that it crosses a pipe.
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
  Trace trace;  ///< of all of them: what only makes the simulator faster must not change it
  FaultCounts faults;
  std::array<std::uint64_t, kMarks> marks{};
  std::vector<std::pair<std::uint64_t, std::string>> failures;

  /// Kinds of fault that struck at least so often.
  std::size_t kinds(std::uint64_t least) const;
  /// Why it did too little to prove anything; empty when it did enough.
  std::string floor() const;
  std::string text() const;
  std::string json() const;
};

/// In a process of its own: an abort is a violation.
Outcome run_isolated(std::uint64_t seed, const Tuning& tuning);
/// Every twentieth seed runs twice and must give the same trace.
Batch run_batch(std::uint64_t from, std::uint64_t seeds, const Tuning& tuning,
                std::size_t most_failures = 20);
/// Leaves out faults and work one by one while the seed still fails (in the same words, up to the
/// first colon). At most 300 runs.
Tuning shrink(std::uint64_t seed, Tuning tuning, const std::string& why);

}  // namespace troupe::sim::cluster
