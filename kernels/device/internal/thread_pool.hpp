/// ThreadPool: threads that compute the parts of one function together, with a fork and join of a
/// few microseconds. CPU devices use it.
///
///     ThreadPool pool(2);
///     pool.run(n, 4096, [&](std::int64_t first, std::int64_t end) { ... });
///
/// Helper threads start with the first call that has work for them, hence never in a process that
/// only forks others. An idle helper spins for kSpin and then sleeps in the kernel; it does not
/// spin if the process has fewer CPUs than threads. Helpers block all signals and compute in the
/// caller's FloatMode.
#pragma once

#include "troupe/runtime/base/process_mark.hpp"
#include "troupe/runtime/base/units.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace troupe::kernels::internal {

class ThreadPool {
 public:
  using Part = std::function<void(std::int64_t, std::int64_t)>;
  /// How long a helper, or a caller that waits for helpers, spins before it sleeps.
  static constexpr Duration kSpin = std::chrono::microseconds(50);

  /// Starts no thread yet. `threads` includes the caller.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// Divides [0, n) into consecutive parts of at least `grain` (one part if n is smaller), calls
  /// part(first, end) for each, and returns when all are done. Then it rethrows the first exception
  /// of a part, if any. A call from inside a part runs on that thread alone; so does a call in a
  /// fork of the process that started the helpers. Only one thread at a time may call it.
  void run(std::int64_t n, std::int64_t grain, const Part& part);
  int threads() const noexcept { return threads_; }

 private:
  struct Crew;  // the helpers, and the data that they share with the caller

  const int threads_;
  std::unique_ptr<Crew> crew_;
  std::atomic<bool> busy_{false};
  ProcessMark mark_;
};

}  // namespace troupe::kernels::internal
