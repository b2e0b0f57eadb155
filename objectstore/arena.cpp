#include "troupe/objectstore/arena.hpp"

#include "troupe/runtime/base/control_groups.hpp"
#include "troupe/runtime/base/machine.hpp"

#include <algorithm>

namespace troupe::objectstore {
namespace {

// A control group without a limit has a huge number in v1 and the word max in v2. Neither is a
// number below this one.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

}  // namespace

Bytes cgroup_memory_limit(const std::string& root) {
  std::uint64_t least = kNoLimit;
  for (const ControlGroup& group : control_groups("memory", root))
    least = std::min(
        least,
        group.number(group.is_v2 ? "memory.max" : "memory.limit_in_bytes").value_or(kNoLimit));
  return {least == kNoLimit ? 0 : least};
}

Bytes usable_memory() {
  const std::uint64_t physical = physical_memory().count;
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
