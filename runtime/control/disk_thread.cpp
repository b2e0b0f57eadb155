#include "troupe/runtime/control/internal/disk_thread.hpp"

#include "troupe/runtime/base/assert.hpp"

#include <sys/eventfd.h>
#include <utility>

namespace troupe::control::internal {

DiskThread::DiskThread(Store& store)
    : store_(store),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_("troupe-disk", [this] { work(); }) {}

DiskThread::~DiskThread() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DiskThread::start(const std::vector<Batch>& group) {
  {
    const std::lock_guard lock(mutex_);
    TROUPE_ASSERT(group_ == nullptr, "two commits at once");
    group_ = &group;
    done_ = false;
  }
  wake_.notify_one();
}

bool DiskThread::is_busy() const {
  const std::lock_guard lock(mutex_);
  return group_ != nullptr;
}

std::optional<Result<void>> DiskThread::finish() {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  const std::lock_guard lock(mutex_);
  if (group_ == nullptr || !done_) return std::nullopt;
  group_ = nullptr;
  return result_;
}

void DiskThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return over_ || (group_ != nullptr && !done_); });
    if (group_ == nullptr || done_) return;
    const std::vector<Batch>& group = *group_;
    lock.unlock();
    Result<void> result = store_.commit(group, Need::essential);
    lock.lock();
    result_ = std::move(result);
    done_ = true;
    eventfd_write(event_.get(), 1);
  }
}

}  // namespace troupe::control::internal
