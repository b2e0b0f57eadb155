/// A thread of the library's own: it has a name and takes no signals, which are for the program's
/// threads.
///
///     SignalMaskedThread thread("troupe-reserve", [this] { run(); });
///     …
///     thread.join();
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <functional>
#include <thread>

namespace troupe {

/// As std::thread: moved, not copied, and joined before it is destroyed.
class TROUPE_API SignalMaskedThread {
 public:
  /// No thread.
  SignalMaskedThread() noexcept = default;
  /// Starts it. `name` is what debuggers and `top -H` show, at most 15 characters. It takes the
  /// signals of its own faults alone. Throws std::system_error when the system starts no thread.
  /// The caller's mask is afterwards what it was, in both cases.
  SignalMaskedThread(const char* name, std::function<void()> body);

  bool joinable() const noexcept { return thread_.joinable(); }
  /// Blocks until the body has returned. Precondition: joinable(), and not from the body.
  void join() { thread_.join(); }

 private:
  std::thread thread_;
};

}  // namespace troupe
