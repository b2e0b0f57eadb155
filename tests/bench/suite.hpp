/// The interface of a suite of benchmarks, and the function that runs suites.
///
///     class Core final : public Suite {…};
///     std::vector<Judged> rows = run(core, {.rounds = 5});
///
/// Every row is measured `rounds` times in each of its placements. Its floor is measured just
/// before it in the same round, on the same pinned CPUs. A floor that spreads too much is
/// measured again, five times in all. Placements alternate, so a slow phase of the machine
/// affects both.
#pragma once

#include "report.hpp"

#include <span>

namespace troupe::bench {

struct RunOptions {
  int rounds = 5;
  bool quick = false;  ///< a few calls of each row: it runs, no more
  std::string only;    ///< rows whose name contains it; empty: all
};

/// The index of a floor in its suite; kNoFloor for none.
inline constexpr int kNoFloor = -1;

struct RowInfo {
  const char* name;
  const char* unit;
  int floor;  ///< or kNoFloor
  Goal goal;
  bool both = true;  ///< both placements; else two_cpus, or one_cpu with one CPU
};

/// One measurement of a row. Zero members are absent.
struct Reading {
  double value = 0;
  double floor = 0;  ///< measured beside the value, replaces the suite's
  double ratio = 0;  ///< median of pairs of the two
};

class Suite {
 public:
  virtual ~Suite() = default;
  virtual const char* name() const = 0;
  virtual std::span<const RowInfo> rows() const = 0;
  /// Returns whether a floor can be measured in that placement.
  virtual bool has_floor(int, Placement) const { return true; }
  /// Measures a floor. The process has no other threads then.
  virtual Sample measure_floor(int floor, Placement placement) = 0;
  /// Returns the floor that shows how calm the machine is, for rows whose goal is not a ratio.
  virtual int calm_floor() const = 0;
  /// Measures one round: returns a reading for each of these rows (indices). The calling thread
  /// is restricted to the placement's CPUs until this returns. Throws when the run proves
  /// nothing.
  virtual std::vector<Reading> measure(std::span<const std::size_t> rows, Placement placement,
                                       bool quick) = 0;
};

/// Runs a suite. Precondition: troupe::enter was called, no Session lives, and this process has
/// no other thread.
std::vector<Judged> run(Suite& suite, const RunOptions& options);

/// Returns all suites, which live as long as the program.
std::span<Suite* const> suites();
Suite& core_suite();
Suite& objects_suite();
Suite& remote_suite();
Suite& control_suite();
Suite& train_suite();
Suite& tune_suite();
Suite& operate_suite();

}  // namespace troupe::bench
