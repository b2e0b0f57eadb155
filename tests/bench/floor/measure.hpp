/// Tools of every measurement: pinning, medians of several runs, a second process, and rows of
/// results.
///
///     const Pinned here(placement.first());
///     const Sample s = median_of(7, [&] { return one_run(); });
///     rows.push_back(row("ring_sync", placement, s, "us", floor));
#pragma once

#include <sys/types.h>
#include <functional>
#include <string>
#include <vector>

namespace troupe::bench {

/// The CPUs on which the two sides of a measurement run.
enum class Placement { one_cpu, two_cpus };
const char* name_of(Placement placement) noexcept;

/// Returns the CPUs that this process may use. The sides of a placement use the first two.
std::vector<int> allowed_cpus();
/// Returns whether this process may use enough CPUs for the placement.
bool possible(Placement placement);
/// Returns the CPU of a side: 0 is the measuring side, 1 the other one.
int cpu_of(Placement placement, int side);

/// Keeps the calling thread on one CPU. The destructor restores the CPUs it had before.
class Pinned {
 public:
  explicit Pinned(int cpu);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<int> before_;
};

/// A forked process that runs `body` on one CPU and ends. It ends with its parent, and the
/// destructor kills it. The forking process must have no other threads.
class Other {
 public:
  Other(int cpu, const std::function<void()>& body);
  ~Other();
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

 private:
  pid_t pid_ = -1;
};

struct Sample {
  double value = 0;   ///< median
  double spread = 0;  ///< (largest - smallest) / median
};
/// Calls `run` once to warm up and then `runs` times, and returns the median.
Sample median_of(int runs, const std::function<double()>& run);

/// One line of a report. `ratio` is value / floor, or zero without a floor.
struct Row {
  std::string name;
  std::string placement;
  double value = 0;
  std::string unit;
  double floor = 0;
  double ratio = 0;
  double spread = 0;
};
Row row(std::string name, Placement placement, const Sample& sample, std::string unit,
        double floor = 0);
/// Makes a row that is itself a floor.
Row floor_row(std::string name, Placement placement, const Sample& sample, std::string unit);

/// `{"name": …, "placement": …, "value": …, "unit": …, "floor": …, "ratio": …, "spread": …}`, an
/// array of them.
std::string to_json(const std::vector<Row>& rows);
/// The same rows as a table of text.
std::string to_table(const std::vector<Row>& rows);

}  // namespace troupe::bench
