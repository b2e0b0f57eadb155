/// Keeps a share of every CPU busy for the lifetime of the object, and measures how busy the
/// whole machine was.
///
///     BusyCpus busy(90);
///     std::printf("%.0f%%", busy.measured());
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace chaos {

class BusyCpus {
 public:
  explicit BusyCpus(int percent);
  ~BusyCpus();
  BusyCpus(const BusyCpus&) = delete;
  BusyCpus& operator=(const BusyCpus&) = delete;
  /// Returns the percentage of all CPUs that was used by any process since the constructor.
  double measured() const;

 private:
  struct Ticks {
    double all = 0, idle = 0;
  };
  static Ticks ticks();
  Ticks begun_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace chaos
