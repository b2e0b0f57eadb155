/// Chooses the process that must end when a node runs out of memory, before the kernel chooses
/// one. A plain state machine.
///
///     if (guard.is_short(machine))
///       if (auto victim = guard.choose(machine, uses, now)) kill(victim->process, victim->why);
///
/// The first choice is the worker that exceeds the `memory` of its lease most. The second is the
/// newest task, since it has done least work and runs again. The last is the newest actor. Drivers
/// and the agent are never chosen. After a choice none follows for `pause`, in which the kernel
/// takes the memory back, and for `patience` while a chosen worker still has memory.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

/// Bytes under the tightest limit: the machine's, its control group's or the node's own.
struct MachineMemory {
  std::uint64_t total = 0, available = 0;
  std::string of;  ///< the limit's name in messages: "the machine"
};

/// A worker with a lease.
struct WorkerMemory {
  ProcessIndex process;  ///< its index
  std::uint64_t pid = 0;
  std::uint64_t bytes = 0;  ///< private memory, without that of the object store
  std::uint64_t asked = 0;  ///< `memory` of its lease; 0: none
  Time since{};             ///< begin of its lease
  bool is_actor = false;
  bool ending = false;  ///< it was chosen before, and its death is not handled yet
};

struct MemoryGuardOptions {
  double low = 0.02;                       ///< part of the total that must stay available
  std::uint64_t low_at_most = 512u << 20;  ///< bound of that part in bytes
  Duration pause{std::chrono::seconds(1)};
  Duration patience{std::chrono::seconds(5)};
};

class MemoryGuard {
 public:
  struct Victim {
    ProcessIndex process;
    std::string why;  ///< one sentence, for the errors of processes that wait for its work
  };

  explicit MemoryGuard(MemoryGuardOptions options = {}) : options_(options) {}
  bool is_short(const MachineMemory& machine) const noexcept;
  /// Returns nullopt when no worker can be chosen, or one was chosen a moment ago. Precondition:
  /// is_short().
  std::optional<Victim> choose(const MachineMemory& machine, const std::vector<WorkerMemory>& uses,
                               Time now);

 private:
  MemoryGuardOptions options_;
  std::optional<Time> last_;
};

}  // namespace troupe::agent
