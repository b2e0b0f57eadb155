/// The machine world: a private node whose agent, zygote, workers and driver are the product's, on
/// one simulated machine; or such nodes with control, on a machine each. Runs batches of seeds in
/// child processes.
///
///     Batch batch = run_batch({.from = 1, .seeds = 1000});   // batch.failures, batch.text()
#pragma once

#include "tests/simulation/machine/baton.hpp"
#include "tests/simulation/machine/program.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::machine {

struct Options {
  std::uint64_t from = 1, seeds = 1000;
  std::size_t nodes = 1;          ///< 1: a private node; else control and so many nodes
  std::set<std::string> off;      ///< names of faults
  std::set<std::uint64_t> muted;  ///< numbers of single faults of the plan, from 1 on
  std::uint64_t most_actions = ~std::uint64_t{0};  ///< of the driver
  bool verbose = false;
  std::size_t most_failures = 20;

  /// Returns the arguments of `./dev simulate` that play this seed.
  std::string replay(std::uint64_t seed) const;
};

struct Outcome {
  std::uint64_t seed = 0, trace = 0, turns = 0;
  double virtual_seconds = 0;
  std::array<std::uint64_t, kFaults> struck{};
  Did did;
  std::string violation;
};

struct Batch {
  Options options;
  std::uint64_t seeds = 0, repeated = 0, turns = 0;
  double seconds = 0, virtual_seconds = 0;
  std::array<std::uint64_t, kFaults> struck{};
  Did did;
  Trace trace;
  std::vector<std::pair<std::uint64_t, std::string>> failures;

  /// Returns why the batch did too little to prove anything, or an empty string.
  std::string floor() const;
  std::string text() const;
};

/// Runs a seed in a child process, so that a broken invariant that aborts counts too.
Outcome run_isolated(std::uint64_t seed, const Options& options);
/// Returns options with which the seed still breaks the promise of `why`, with as few faults and
/// actions as are found one by one.
Options shrink(std::uint64_t seed, Options options, const std::string& why);
/// Runs the seeds, 25 in each child. Two in a hundred run twice and must give the same trace.
Batch run_batch(const Options& options);

}  // namespace troupe::sim::machine
