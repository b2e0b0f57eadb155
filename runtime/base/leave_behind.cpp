#include "troupe/runtime/base/leave_behind.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

void leave_behind(std::shared_ptr<void> used) noexcept {
  // Threads that are left may run while the process's statics are destroyed.
  struct Kept {
    std::mutex mutex;
    std::vector<std::shared_ptr<void>> all;
  };
  static Kept* const kept = new Kept;  // NOLINT(bugprone-unhandled-exception-at-new)
  const std::lock_guard lock(kept->mutex);
  kept->all.push_back(std::move(used));
}

}  // namespace troupe
