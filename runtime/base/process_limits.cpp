#include "troupe/runtime/base/process_limits.hpp"

#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <sys/resource.h>
#include <cerrno>
#include <cstring>
#include <latch>
#include <vector>

namespace troupe {

std::string limits_of_processes() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return std::string("the limit of processes and threads of this user, ulimit -u") +
         (limited ? ", which is " + std::to_string(limit.rlim_cur) : "") +
         ", of its control group, pids.max, or of address space, ulimit -v: let go of actors, end "
         "other programs, or raise it";
}

std::string why_no_process(int error) {
  const std::string why = std::strerror(error);
  return error == EAGAIN || error == ENOMEM ? why + " (" + limits_of_processes() + ")" : why;
}

Result<void> can_start_threads(unsigned count) {
  std::latch all_tried(1);
  std::vector<SignalMaskedThread> threads;
  Result<void> outcome;
  try {
    for (unsigned i = 0; i < count; ++i)
      threads.emplace_back("troupe-try", [&all_tried] { all_tried.wait(); });
  } catch (const Error& error) {
    outcome = error;
  }
  all_tried.count_down();
  for (SignalMaskedThread& thread : threads) thread.join();
  return outcome;
}

}  // namespace troupe
