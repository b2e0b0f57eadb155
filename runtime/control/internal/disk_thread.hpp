/// The thread that commits, so that the event loop never waits for a disk.
///
///     disk.start(service.begin_commit());            // one at a time
///     poll(disk.fd());                               // readable when it is durable
///     Result<void> result = disk.finish();
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/control/store.hpp"

#include <sys/eventfd.h>
#include <condition_variable>
#include <mutex>

namespace troupe::control::internal {

class DiskThread {
 public:
  /// The store outlives the thread and belongs to it between start() and finish().
  explicit DiskThread(Store& store)
      : store_(store),
        event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_("troupe-disk", [this] { work(); }) {}
  /// Waits for a commit that is under way.
  ~DiskThread() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  int fd() const noexcept { return event_.get(); }

  /// Begins a commit. The group must not change until finish(). Precondition: no commit is under
  /// way.
  void start(const std::vector<Batch>& group) {
    {
      const std::lock_guard lock(mutex_);
      TROUPE_ASSERT(group_ == nullptr, "two commits at once");
      group_ = &group;
      done_ = false;
    }
    wake_.notify_one();
  }
  /// Returns whether a commit was started and has not been finished.
  bool is_busy() const {
    const std::lock_guard lock(mutex_);
    return group_ != nullptr;
  }
  /// Returns the commit's result once it has ended; the next call returns nullopt.
  std::optional<Result<void>> finish() {
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr || !done_) return std::nullopt;
    group_ = nullptr;
    return result_;
  }

 private:
  void work() {
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

  Store& store_;
  Fd event_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  const std::vector<Batch>* group_ = nullptr;
  Result<void> result_;
  bool done_ = false, over_ = false;
  SignalMaskedThread thread_;
};

}  // namespace troupe::control::internal
