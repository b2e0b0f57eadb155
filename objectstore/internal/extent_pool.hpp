/// Makes extents ahead of need, for Host. The kernel must clear each fresh page, which is far
/// slower than a write to a page that is present, so the agent does it before a process waits. It
/// writes zeros instead of mapping the memory, which is faster.
///
///     while (pool.work(1_MiB)) {}            // a helper thread, or idle time, in small steps
///     std::optional<Fd> ready = pool.take(); // the agent's loop, never waits for work()
///
/// One thread may call work() while another calls take() and shed().
#pragma once

#include "troupe/objectstore/internal/mutex.hpp"
#include "troupe/objectstore/internal/shared_memory.hpp"
#include "troupe/runtime/base/units.hpp"

#include <optional>
#include <vector>

namespace troupe::objectstore::internal {

class ExtentPool {
 public:
  /// Keeps up to `ahead` bytes of extents of `extent_bytes` each.
  ExtentPool(std::uint64_t extent_bytes, std::uint64_t ahead) noexcept
      : extent_bytes_(extent_bytes), most_(ahead / extent_bytes) {}

  /// Fills up to `bytes` of fresh pages. Begins another extent only when `may_begin`. Returns false
  /// when there is nothing to do, or no memory now.
  bool work(Bytes bytes, bool may_begin = true);
  /// Returns a prefaulted extent, if one is ready.
  std::optional<Fd> take();
  /// Drops all ready extents, to make room for something larger.
  void shed();
  /// Returns the bytes of extents that are ready or being filled.
  std::uint64_t held() const;

 private:
  bool begin();
  void give_up();
  const std::uint64_t extent_bytes_;
  const std::uint64_t most_;
  mutable Mutex mutex_;
  std::vector<Fd> ready_ TROUPE_GUARDED_BY(mutex_);
  bool making_ TROUPE_GUARDED_BY(mutex_) = false;
  Fd fresh_;  // the extent being filled; used by work() only, so without the mutex
  std::uint64_t filled_ = 0;
};

}  // namespace troupe::objectstore::internal
