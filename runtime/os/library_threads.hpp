/// Limits the threads of OpenMP and BLAS libraries to the CPUs that a worker has. These libraries
/// know the machine's CPUs, and nothing of a lease.
///
///     LibraryThreads threads;
///     threads.want(2.0);   // any thread: the lease reserves two CPUs
///     threads.apply();     // the thread that runs tasks, before each of them
#pragma once

#include <atomic>

namespace troupe::os {

class LibraryThreads {
 public:
  /// Notes the CPUs of the lease; a fraction counts as one. 0 changes nothing: no CPU is reserved.
  void want(double cpus) noexcept;
  /// Sets the number of threads of libgomp, libiomp5, libomp, OpenBLAS and MKL, as far as they are
  /// loaded, for the calling thread. Leaves a library alone whose variable the user has set, such as
  /// OMP_NUM_THREADS. Costs one load if want() has told nothing new.
  void apply() noexcept {
    const int wanted = wanted_.load(std::memory_order_relaxed);
    if (wanted != applied_) set(wanted);
  }

 private:
  void set(int threads) noexcept;

  std::atomic<int> wanted_{0};
  int applied_ = 0;  ///< of the thread that calls apply()
};

}  // namespace troupe::os
