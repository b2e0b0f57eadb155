/// DiskCalls: runs calls that may hang on a thread of its own, so that their caller can give up.
///
///     if (!calls.run([shared] { shared->status = write(…); }, [&] { return is_too_late(); }))
///       leave_behind(all_that_the_call_uses);      // and this object, which it uses too
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace troupe::tune::internal {

/// For one thread.
class DiskCalls {
 public:
  static constexpr Duration kAskEvery = std::chrono::milliseconds(20);

  DiskCalls() = default;
  DiskCalls(const DiskCalls&) = delete;
  DiskCalls& operator=(const DiskCalls&) = delete;
  /// Precondition: no call hangs.
  ~DiskCalls();

  /// Runs the call, which throws nothing, and returns true when it has ended. Asks `gives_up` every
  /// kAskEvery meanwhile; once that returns true, returns false, and the call goes on. A call that
  /// was given up ends first. Throws OutOfMemory when there is no thread.
  bool run(std::function<void()> call, const std::function<bool()>& gives_up);
  /// Whether run() has returned false and a call goes on.
  bool hangs() const;

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable begins_, ended_;
  std::deque<std::function<void()>> calls_;  ///< each until it has ended
  bool over_ = false;
  SignalMaskedThread thread_;  ///< since the first call
};

}  // namespace troupe::tune::internal
