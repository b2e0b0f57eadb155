#include "troupe/runtime/agent/memory_guard.hpp"

#include <algorithm>
#include <tuple>

namespace troupe::agent {
namespace {

std::uint64_t excess(const WorkerMemory& use) {
  return use.asked != 0 && use.bytes > use.asked ? use.bytes - use.asked : 0;
}

/// The order of choice: the worker with the largest rank is chosen first.
auto rank(const WorkerMemory& use) {
  return std::make_tuple(excess(use), !use.is_actor, use.since, use.process);
}

std::string mib(std::uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

}  // namespace

bool MemoryGuard::is_short(const MachineMemory& machine) const noexcept {
  const auto low = static_cast<std::uint64_t>(options_.low * static_cast<double>(machine.total));
  return machine.total != 0 && machine.available < std::min(low, options_.low_at_most);
}

std::optional<MemoryGuard::Victim> MemoryGuard::choose(const MachineMemory& machine,
                                                       const std::vector<WorkerMemory>& uses,
                                                       Time now) {
  const auto still_ends = [](const WorkerMemory& use) { return use.ending && use.bytes != 0; };
  const bool any_ends = std::any_of(uses.begin(), uses.end(), still_ends);
  if (last_ && now < *last_ + (any_ends ? options_.patience : options_.pause)) return std::nullopt;
  const WorkerMemory* found = nullptr;
  for (const WorkerMemory& use : uses)
    if (!use.ending && (found == nullptr || rank(*found) < rank(use))) found = &use;
  if (found == nullptr) return std::nullopt;
  last_ = now;
  const WorkerMemory& victim = *found;
  std::string why = "process " + std::to_string(victim.pid) + " was ended, since of " +
                    mib(machine.total) + " of " + machine.of + " only " + mib(machine.available) +
                    " were left; it used " + mib(victim.bytes);
  if (excess(victim) != 0)
    why += ", more than the " + mib(victim.asked) + " that it had asked for";
  else
    why += victim.is_actor ? " and was the newest actor; no task could end instead"
                           : " and was the newest task";
  return Victim{victim.process, std::move(why)};
}

}  // namespace troupe::agent
