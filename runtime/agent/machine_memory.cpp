#include "troupe/runtime/agent/machine_memory.hpp"

#include "troupe/runtime/base/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace troupe::agent {
namespace {

/// Returns the bytes behind the name in /proc/meminfo ("name   number kB"); 0 without such a line.
std::uint64_t meminfo(const std::string& root, const std::string& name) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string found;
    std::uint64_t kilobytes = 0;
    if (words >> found >> kilobytes && found == name) return kilobytes << 10;
  }
  return 0;
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  MachineMemory least{meminfo(root, "MemTotal:"), meminfo(root, "MemAvailable:"), "the machine"};
  const std::uint64_t machine = least.total;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const bool v2 = group.is_v2;
    const std::uint64_t most =
        group.number(v2 ? "memory.max" : "memory.limit_in_bytes").value_or(0);
    if (most == 0 || most >= machine) continue;  // no limit, or none that counts
    std::uint64_t used = group.number(v2 ? "memory.current" : "memory.usage_in_bytes").value_or(0);
    // Cached pages of files are given back when a process needs memory.
    const std::uint64_t cached =
        group.number("memory.stat", v2 ? "inactive_file" : "total_inactive_file").value_or(0);
    used -= std::min(used, cached);
    const std::uint64_t left = most - std::min(most, used);
    if (left < least.available) least = {most, left, "the control group"};
  }
  return least;
}

}  // namespace troupe::agent
