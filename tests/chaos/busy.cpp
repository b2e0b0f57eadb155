#include "tests/chaos/busy.hpp"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace chaos {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

BusyCpus::BusyCpus(int percent) : begun_(ticks()) {
  if (percent <= 0) return;
  for (long i = 0; i < std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)); ++i)
    threads_.emplace_back([this, percent] {
      while (!over_) {
        const auto begun = Clock::now();
        while (Clock::now() - begun < milliseconds(percent)) {
        }
        std::this_thread::sleep_for(milliseconds(std::max(0, 100 - percent)));
      }
    });
}

BusyCpus::~BusyCpus() {
  over_ = true;
  for (std::thread& thread : threads_) thread.join();
}

BusyCpus::Ticks BusyCpus::ticks() {
  std::ifstream stat("/proc/stat");
  std::string name;
  stat >> name;
  Ticks ticks;
  double value = 0;
  for (int i = 0; i < 8 && stat >> value; ++i) {
    ticks.all += value;
    if (i == 3 || i == 4) ticks.idle += value;  // idle, and waiting for a disk
  }
  return ticks;
}

double BusyCpus::measured() const {
  const Ticks now = ticks();
  const double all = now.all - begun_.all, idle = now.idle - begun_.idle;
  return all > 0 ? 100 * (all - idle) / all : 0;
}

}  // namespace chaos
