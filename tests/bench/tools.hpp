/// What the suites of the benchmark share: waits with a bound, a stopwatch, medians, pinning of
/// processes.
///
///     const Stopwatch watch;
///     expect(ctx.get(ref, kBound) == 7, "a result");
///     rows.push_back(watch.seconds() / n * 1e6);
#pragma once

#include "measure.hpp"

#include <sys/types.h>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

/// Of every wait; a run that needs it has failed.
inline constexpr std::chrono::seconds kBound{60};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Throws std::runtime_error when a measurement does not do what it measures.
void expect(bool holds, const char* what);
/// Precondition: not empty.
double middle(std::vector<double> values);
/// Seconds of one call: the median of ten batches, so that one interruption does not count.
template <class Call>
double median_call(int calls, Call&& call) {
  std::vector<double> batches;
  const int each = calls / 10;
  for (int batch = 0; batch < 10; ++batch) {
    const Stopwatch watch;
    for (int i = 0; i < each; ++i) call(i);
    batches.push_back(watch.seconds() / each);
  }
  return middle(std::move(batches));
}

/// The calling thread runs on these CPUs from here on.
void go_to(const std::vector<int>& cpus);
/// All threads of a process, as far as there are any at the moment.
void pin(pid_t pid, int cpu);
pid_t parent_of(pid_t pid);
/// This process and all that descend from it and live.
std::vector<pid_t> family();
/// CPU seconds of the family so far; to some 10 ms each.
double cpu_seconds();
/// Memory of the family that is neither a file's nor shared: heaps and stacks. What a forked
/// process still has in common with its parent counts in both.
double own_bytes();

}  // namespace troupe::bench
