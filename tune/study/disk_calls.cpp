#include "troupe/tune/study/internal/disk_calls.hpp"

#include <utility>

namespace troupe::tune::internal {

DiskCalls::~DiskCalls() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  begins_.notify_one();
  thread_.join();
}

bool DiskCalls::run(std::function<void()> call, const std::function<bool()>& gives_up) {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) thread_ = SignalMaskedThread("tune-disk", [this] { work(); });
  call_ = std::move(call);
  begins_.notify_one();
  while (!ended_.wait_for(lock, kAskEvery, [this] { return !call_; }))
    if (gives_up()) return false;
  return true;
}

bool DiskCalls::hangs() const {
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(call_);
}

void DiskCalls::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begins_.wait(lock, [this] { return over_ || call_; });
    if (!call_) return;
    lock.unlock();
    call_();
    lock.lock();
    call_ = nullptr;
    ended_.notify_one();
  }
}

}  // namespace troupe::tune::internal
