/// The suite "core": tasks, actor calls and objects on a private one-node cluster, against what
/// shared memory alone can do.
///
///     std::vector<Judged> rows = run_core({.rounds = 5});
///
/// Every row is measured `rounds` times, its floor just before it in the same round, on the same
/// pinned CPUs. Placement one_cpu: driver, agent and worker share one CPU; two_cpus: the driver on
/// one, the worker on the other, the agent where there is room.
#pragma once

#include "report.hpp"

namespace troupe::bench {

struct CoreOptions {
  int rounds = 5;
  bool quick = false;  ///< a few calls of each only: does it run, not how fast
  std::string only;    ///< rows whose name contains it; empty: all
};
/// Precondition: troupe::enter was called, no Session lives and this process has no other thread.
std::vector<Judged> run_core(const CoreOptions& options);

/// Names of all rows, for those who check a report.
std::vector<std::string> core_names();

}  // namespace troupe::bench
