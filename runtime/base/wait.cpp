#include "troupe/runtime/base/wait.hpp"

#include <sched.h>
#include <algorithm>
#include <ctime>

namespace troupe {
namespace {

timespec timespec_of(Duration time) noexcept {
  time = std::clamp<Duration>(time, Duration(0), std::chrono::hours(24));
  return {static_cast<std::time_t>(time.count() / 1'000'000'000),
          static_cast<long>(time.count() % 1'000'000'000)};
}

}  // namespace

int wait_for(std::span<pollfd> entries, Duration most) noexcept {
  const timespec limit = timespec_of(most);
  return ppoll(entries.data(), entries.size(), &limit, nullptr);
}

bool is_ready(int fd, short events) noexcept {
  pollfd entry{fd, events, 0};
  return poll(&entry, 1, 0) == 1;
}

void sleep_for(Duration time) noexcept {
  const timespec limit = timespec_of(time);
  nanosleep(&limit, nullptr);
}

void yield() noexcept {
  sched_yield();
}

}  // namespace troupe
