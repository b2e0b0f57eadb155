/// Tools shared by the suites: a bound for waits, a stopwatch, medians, and pinning of processes.
///
///     const Stopwatch watch;
///     expect(ctx.get(ref, kBound) == 7, "a result");
///     rows.push_back(watch.seconds() / n * 1e6);
#pragma once

#include "measure.hpp"

#include <sys/types.h>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace troupe::bench {

/// The bound of every wait. A run that reaches it has failed.
inline constexpr std::chrono::seconds kBound{60};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A folder on the disk of temporary files. Its end deletes it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Throws std::runtime_error unless `holds`. A measurement calls it to prove that it does what it
/// measures.
void expect(bool holds, const char* what);
/// Returns the median. Precondition: `values` is not empty.
double middle(std::vector<double> values);
/// Returns the seconds of one call as the median of ten batches, so a single interruption does
/// not count.
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

/// Moves the calling thread to these CPUs, from here on.
void go_to(const std::vector<int>& cpus);
/// Pins all threads that the process has at this moment.
void pin(pid_t pid, int cpu);
pid_t parent_of(pid_t pid);
/// Returns this process and all its living descendants.
std::vector<pid_t> family();
/// Returns the CPU seconds of the family so far, with a resolution of about 10 ms.
double cpu_seconds();
/// Returns the private memory of the family that belongs to no file: heaps and stacks. Pages that
/// a forked process still shares with its parent count in both.
double own_bytes();

}  // namespace troupe::bench
