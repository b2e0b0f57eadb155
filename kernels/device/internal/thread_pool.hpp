/// Threads that compute one function together: fork and join in a few microseconds.
///
///     ThreadPool pool(2);
///     pool.run(n, 4096, [&](std::int64_t first, std::int64_t end) { ... });
///
/// Helpers start with the first call that has work for them, so never in a process that only forks
/// others. They look for work for kSpin, or not at all where the process has fewer CPUs than threads,
/// then sleep in the kernel. They take no signals, and
/// compute in the caller's FloatMode.
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
  /// How long a helper (or a caller that waits for one) looks before it sleeps.
  static constexpr Duration kSpin = std::chrono::microseconds(50);

  /// Starts nothing. `threads`: the caller counted in.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// Calls part(first, end) for consecutive parts of [0, n), each of at least `grain` (all of n
  /// when n is less), and returns when all are done. Throws what a part threw, once all are done.
  /// A call from inside a part runs on that thread alone; so does one in a fork of the process that
  /// started the helpers. One caller at a time.
  void run(std::int64_t n, std::int64_t grain, const Part& part);
  int threads() const noexcept { return threads_; }

 private:
  struct Crew;  // the helpers and what they share with the caller

  const int threads_;
  std::unique_ptr<Crew> crew_;
  std::atomic<bool> busy_{false};
  ProcessMark mark_;
};

}  // namespace troupe::kernels::internal
