#include "troupe/objectstore/arena.hpp"

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <fstream>

namespace troupe::objectstore {
namespace {

// A control group without a limit has a huge number in v1 and the word max in v2. Neither is a
// number below this one.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::uint64_t read_limit(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return kNoLimit;
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? std::min(value, kNoLimit) : kNoLimit;
}

// Returns the least of the group's own limit and those of all groups above it. Inside a container
// the path, which is the host's, does not exist. The mount point then is the group itself, and it
// is read last.
std::uint64_t least_limit(const std::string& mount, std::string group, const char* file) {
  std::uint64_t least = kNoLimit;
  while (!group.empty() && group != "/") {
    least = std::min(least, read_limit(mount + group + "/" + file));
    group.resize(group.find_last_of('/'));
  }
  return std::min(least, read_limit(mount + "/" + file));
}

bool names_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

Bytes cgroup_memory_limit(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::uint64_t least = kNoLimit;
  std::string line;
  while (std::getline(groups, line)) {  // "id:controllers:/group"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/')
      continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (names_memory(controllers))
      least = std::min(least,
                       least_limit(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    if (controllers.empty())
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
        least = std::min(least, least_limit(root + mount, group, "memory.max"));
  }
  return {least == kNoLimit ? 0 : least};
}

Bytes usable_memory() {
  const std::uint64_t physical = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                 static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t limit = cgroup_memory_limit().count;
  return {limit == 0 ? physical : std::min(limit, physical)};
}

Bytes default_arena_bytes() {
  const std::uint64_t share = usable_memory().count / 10 * 3;
  return {std::clamp<std::uint64_t>(share, 64 << 20, std::uint64_t{256} << 30)};
}

Result<void> check_arena(Bytes each, unsigned stores) {
  constexpr std::uint64_t kMiB = 1 << 20;
  if (each.count < kMiB)
    return Error(Code::invalid_argument, "an object store of " + std::to_string(each.count) +
                                             " bytes is too small: at least 1 MiB");
  const std::uint64_t usable = usable_memory().count;
  if (each.count <= usable / stores) return {};
  return Error(Code::invalid_argument,
               std::to_string(stores) + " object store" + (stores == 1 ? "" : "s") + " of " +
                   std::to_string(each.count / kMiB) + " MiB: this process may use " +
                   std::to_string(usable / kMiB) + " MiB of memory, so at most " +
                   std::to_string(usable / stores / kMiB) + " MiB each");
}

}  // namespace troupe::objectstore
