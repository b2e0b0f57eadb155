/// The thread that commits, so that the event loop never waits for a disk.
///
///     disk.start(service.begin_commit());            // one at a time
///     poll(disk.fd());                               // readable when it is durable
///     Result<void> result = disk.finish();
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/control/store.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe::control::internal {

class DiskThread {
 public:
  /// The store outlives the thread and belongs to it between start() and finish().
  explicit DiskThread(Store& store);
  /// Waits for a commit that is under way.
  ~DiskThread();
  int fd() const noexcept { return event_.get(); }

  /// Begins a commit. The group must not change until finish(). Precondition: no commit is under
  /// way.
  void start(const std::vector<Batch>& group);
  /// Returns whether a commit was started and has not been finished.
  bool is_busy() const;
  /// Returns the commit's result once it has ended; the next call returns nullopt.
  std::optional<Result<void>> finish();

 private:
  void work();

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
