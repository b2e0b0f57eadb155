/// Which process has to end when a node runs out of memory, before the kernel chooses one: a plain
/// state machine.
///
///     if (guard.is_short(machine))
///       if (auto victim = guard.choose(machine, uses, now)) kill(victim->process, victim->why);
///
/// Who uses more than the `memory` that it asked for ends first, the one that exceeds it most; then
/// the newest task, since least is lost with it and it is tried again; then the newest actor.
/// Drivers and the agent are never chosen. After each choice nobody is chosen for `pause`, in which
/// the kernel takes the memory back, and for `patience` while one that was chosen still has some.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

/// Bytes; what the machine, its control group and the node's own limit leave.
struct MachineMemory {
  std::uint64_t total = 0, available = 0;
  std::string of;  ///< whose limit it is: "the machine"
};

/// A worker with a lease.
struct WorkerMemory {
  std::uint64_t process = 0;  ///< its index
  std::uint64_t pid = 0;
  std::uint64_t bytes = 0;  ///< that are its own; the object store's are not
  std::uint64_t asked = 0;  ///< `memory` of its lease; 0: none
  Time since{};             ///< of its lease
  bool is_actor = false;
  bool ending = false;  ///< it was chosen before, and is not buried yet
};

struct MemoryGuardOptions {
  double low = 0.02;  ///< part of the total that is left for the system
  std::uint64_t low_at_most = 512u << 20;
  Duration pause{std::chrono::seconds(1)};
  Duration patience{std::chrono::seconds(5)};
};

class MemoryGuard {
 public:
  struct Victim {
    std::uint64_t process = 0;
    std::string why;  ///< one sentence for whoever waits for its work
  };

  explicit MemoryGuard(MemoryGuardOptions options = {}) : options_(options) {}
  bool is_short(const MachineMemory& machine) const noexcept;
  /// nullopt: nobody can be chosen, or one was a moment ago. Precondition: is_short().
  std::optional<Victim> choose(const MachineMemory& machine, const std::vector<WorkerMemory>& uses,
                               Time now);

 private:
  MemoryGuardOptions options_;
  std::optional<Time> last_;
};

}  // namespace troupe::agent
