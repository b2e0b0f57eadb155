#include "troupe/objectstore/internal/extent_pool.hpp"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>

namespace troupe::objectstore::internal {
namespace {

/// Writes zeros into [from, to), which allocates the pages. Returns false when there is no memory.
bool fill(int fd, std::uint64_t from, std::uint64_t to) noexcept {
  static constexpr std::array<std::byte, 64 << 10> kZeroes{};
  while (from < to) {
    const std::size_t most = std::min<std::uint64_t>(kZeroes.size(), to - from);
    const ssize_t written = pwrite(fd, kZeroes.data(), most, static_cast<off_t>(from));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += static_cast<std::uint64_t>(written);
  }
  return true;
}

}  // namespace

bool ExtentPool::begin() {
  {
    Lock lock(mutex_);
    if (ready_.size() >= most_) return false;
    making_ = true;
  }
  Result<Fd> fd = make_memory("troupe-extent", extent_bytes_);
  if (!fd) {
    give_up();
    return false;
  }
  fresh_ = *std::move(fd);
  filled_ = 0;
  return true;
}

void ExtentPool::give_up() {
  fresh_ = Fd();
  Lock lock(mutex_);
  making_ = false;
}

bool ExtentPool::work(Bytes bytes, bool may_begin) {
  if (!fresh_ && (!may_begin || !begin())) return false;
  const std::uint64_t end = filled_ + std::min(bytes.count, extent_bytes_ - filled_);
  if (!fill(fresh_.get(), filled_, end)) {
    give_up();
    return false;
  }
  filled_ = end;
  if (filled_ < extent_bytes_) return true;
  Lock lock(mutex_);
  making_ = false;
  ready_.push_back(std::move(fresh_));
  return ready_.size() < most_;
}

std::optional<Fd> ExtentPool::take() {
  Lock lock(mutex_);
  if (ready_.empty()) return std::nullopt;
  Fd fd = std::move(ready_.back());
  ready_.pop_back();
  return fd;
}

void ExtentPool::shed() {
  Lock lock(mutex_);
  ready_.clear();
}

std::uint64_t ExtentPool::held() const {
  Lock lock(mutex_);
  return (ready_.size() + (making_ ? 1 : 0)) * extent_bytes_;
}

}  // namespace troupe::objectstore::internal
