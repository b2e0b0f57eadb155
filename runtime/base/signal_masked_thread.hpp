/// A named thread of the library with all signals blocked, so that the kernel delivers them to the
/// program's threads.
///
///     SignalMaskedThread thread("troupe-reserve", [this] { run(); });
///     …
///     thread.join();
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <functional>
#include <thread>

namespace troupe {

/// Used as std::thread: it is moved, not copied, and joined before it is destroyed.
class TROUPE_API SignalMaskedThread {
 public:
  /// Makes an object without a thread.
  SignalMaskedThread() noexcept = default;
  /// Starts the thread. Debuggers and `top -H` show `name`, at most 15 characters. The thread gets
  /// only the signals of its own faults. Throws OutOfMemory, which names the limit, when the system
  /// starts no thread. The caller's signal mask is the same afterwards, in both cases.
  SignalMaskedThread(const char* name, std::function<void()> body);

  bool joinable() const noexcept { return thread_.joinable(); }
  /// Blocks until the body has returned. Precondition: joinable(), and not from the body.
  void join() { thread_.join(); }

 private:
  std::thread thread_;
};

}  // namespace troupe
