/// Extents made ahead: filling fresh shared pages runs at a sixth of the speed of warm ones, so the
/// agent does it before anybody waits. They are written, not mapped, which takes half the time.
///
///     while (pool.work(1_MiB)) {}            // a helper thread, or idle time, in small steps
///     std::optional<Fd> ready = pool.take(); // the agent's loop, never waits for work()
///
/// take() and shed() may run beside one thread that calls work().
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

  /// Fills up to `bytes` of fresh pages (about 0.35 ms per MiB). Begins another extent only when
  /// `may_begin`. False when there is nothing to do or memory cannot be had now.
  bool work(Bytes bytes, bool may_begin = true);
  /// A prefaulted extent, if one is ready.
  std::optional<Fd> take();
  /// Drops all ready extents, to make room for something larger.
  void shed();
  /// Bytes of extents ready or in the making.
  std::uint64_t held() const;

 private:
  bool begin();
  void give_up();
  const std::uint64_t extent_bytes_;
  const std::uint64_t most_;
  mutable Mutex mutex_;
  std::vector<Fd> ready_ TROUPE_GUARDED_BY(mutex_);
  bool making_ TROUPE_GUARDED_BY(mutex_) = false;
  Fd fresh_;  // work()'s own
  std::uint64_t filled_ = 0;
};

}  // namespace troupe::objectstore::internal
