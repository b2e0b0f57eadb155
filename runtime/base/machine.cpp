#include "troupe/runtime/base/machine.hpp"

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <string>

namespace troupe {
namespace {

Duration read(clockid_t clock) noexcept {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + Duration(used.tv_nsec);
}

std::uint64_t page_size() noexcept {
  return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

int this_cpu() noexcept {
  return sched_getcpu();
}

unsigned affine_cpus() noexcept {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

void yield_on_wakeup() noexcept {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  const sched_param plain{};
  sched_setscheduler(0, SCHED_BATCH, &plain);
}

Duration cpu_time_of(pid_t process) noexcept {
  clockid_t clock{};
  return process > 0 && clock_getcpuclockid(process, &clock) == 0 ? read(clock) : Duration(0);
}

Duration cpu_time_of_other_threads() noexcept {
  return read(CLOCK_PROCESS_CPUTIME_ID) - read(CLOCK_THREAD_CPUTIME_ID);
}

Bytes physical_memory() noexcept {
  return {static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_size()};
}

Bytes unshared_memory_of(pid_t process) {
  std::ifstream text("/proc/" + std::to_string(process) + "/statm");
  std::uint64_t size = 0, resident = 0, shared = 0;
  text >> size >> resident >> shared;
  return {(resident - std::min(resident, shared)) * page_size()};
}

}  // namespace troupe
