/// What a suite of benchmarks is, and the one way in which all of them run.
///
///     class Core final : public Suite {…};
///     std::vector<Judged> rows = run(core, {.rounds = 5});
///
/// Every row is measured `rounds` times in each placement it has, its floor just before it in the
/// same round, on the same pinned CPUs. A floor that spreads too much is tried again, five times in
/// all. Placements alternate, so that a slow minute of the machine meets both.
#pragma once

#include "report.hpp"

#include <span>

namespace troupe::bench {

struct RunOptions {
  int rounds = 5;
  bool quick = false;  ///< a few calls of each only: does it run, not how fast
  std::string only;    ///< rows whose name contains it; empty: all
};

/// A floor of a suite by its number there.
inline constexpr int kNoFloor = -1;

struct RowInfo {
  const char* name;
  const char* unit;
  int floor;  ///< or kNoFloor
  Goal goal;
  bool both = true;  ///< placements; else two_cpus, or one_cpu when there is only one
};

/// One measurement of a row.
struct Reading {
  double value = 0;
  double floor = 0;  ///< not 0: measured beside it, instead of the suite's floor
  double ratio = 0;  ///< not 0: of the two, measured in pairs
};

class Suite {
 public:
  virtual ~Suite() = default;
  virtual const char* name() const = 0;
  virtual std::span<const RowInfo> rows() const = 0;
  /// Whether a floor can be had there.
  virtual bool has_floor(int, Placement) const { return true; }
  /// In a process without other threads.
  virtual Sample measure_floor(int floor, Placement placement) = 0;
  /// The floor that tells how calm the machine is while rows are measured whose goal is no ratio.
  virtual int calm_floor() const = 0;
  /// One round: a reading for each of these rows (indices). The calling thread may use the
  /// placement's CPUs only, until this returns. Throws what makes the run worthless.
  virtual std::vector<Reading> measure(std::span<const std::size_t> rows, Placement placement,
                                       bool quick) = 0;
};

/// Precondition: troupe::enter was called, no Session lives and this process has no other thread.
std::vector<Judged> run(Suite& suite, const RunOptions& options);

/// The suites that there are; they live as long as the program.
std::span<Suite* const> suites();
Suite& core_suite();
Suite& objects_suite();
Suite& remote_suite();
Suite& control_suite();
Suite& train_suite();

}  // namespace troupe::bench
