/// Takes a share of every CPU as long as it lives, and tells how busy the machine was in all.
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
  /// Percent of all CPUs that anybody used since the begin.
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
