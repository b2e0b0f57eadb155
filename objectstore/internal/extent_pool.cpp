#include "troupe/objectstore/internal/extent_pool.hpp"

#include <algorithm>

namespace troupe::objectstore::internal {

bool ExtentPool::begin() {
  {
    Lock lock(mutex_);
    if (ready_.size() >= most_) return false;
    making_ = true;
  }
  Result<Fd> fd = make_memory("troupe-extent", extent_bytes_);
  Result<Mapping> memory =
      fd ? map_memory(fd->get(), extent_bytes_, Access::write) : Result<Mapping>(fd.error());
  if (!memory) {
    Lock lock(mutex_);
    making_ = false;
    return false;
  }
  fresh_ = *std::move(fd);
  memory_ = *std::move(memory);
  ask_for_large_pages(memory_);
  touched_ = 0;
  return true;
}

bool ExtentPool::work(Bytes bytes, bool may_begin) {
  if (!memory_ && (!may_begin || !begin())) return false;
  const std::uint64_t step = std::min(bytes.count, extent_bytes_ - touched_);
  populate(memory_.data() + touched_, step);
  touched_ += step;
  if (touched_ < extent_bytes_) return true;
  memory_ = Mapping();
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
