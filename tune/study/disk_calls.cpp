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
  calls_.push_back(std::move(call));
  begins_.notify_one();
  while (!ended_.wait_for(lock, kAskEvery, [this] { return calls_.empty(); }))
    if (gives_up()) return false;
  return true;
}

bool DiskCalls::hangs() const {
  const std::lock_guard lock(mutex_);
  return !calls_.empty();
}

void DiskCalls::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begins_.wait(lock, [this] { return over_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const std::function<void()>& call = calls_.front();
    lock.unlock();
    call();
    lock.lock();
    calls_.pop_front();
    ended_.notify_one();
  }
}

}  // namespace troupe::tune::internal
