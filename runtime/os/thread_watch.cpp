#include "troupe/runtime/os/thread_watch.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <charconv>
#include <cstdio>
#include <utility>

namespace troupe::os {
namespace {

/// Returns whether the text of /proc/PID/task/TID/syscall names a call that waits for something.
/// The text is "running" for a thread that has or wants a CPU.
bool names_a_wait(const char* begin, const char* end) noexcept {
  if (begin == end) return true;  // unknown
  if (*begin == 'r') return false;
  long call = 0;
  std::from_chars(begin, end, call);
  return call != -1 && call != SYS_sched_yield;  // -1: a page fault
}

}  // namespace

ThreadWatch::ThreadWatch() noexcept
    : handle_(pthread_self()),
      thread_(::gettid()),
      has_clock_(pthread_getcpuclockid(pthread_self(), &clock_) == 0) {}

bool ThreadWatch::is_this_thread() const noexcept {
  return pthread_equal(pthread_self(), handle_) != 0;
}

ThreadWatch::Look ThreadWatch::look() const noexcept {
  Look look{.at = steady_now(), .computed = {}, .waiting = true};
  timespec computed{};
  if (has_clock_ && clock_gettime(clock_, &computed) == 0)
    look.computed =
        std::chrono::seconds(computed.tv_sec) + std::chrono::nanoseconds(computed.tv_nsec);
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/syscall", static_cast<int>(thread_));
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return look;
  std::array<char, 32> text{};
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  if (size > 0) look.waiting = names_a_wait(text.data(), text.data() + size);
  return look;
}

bool ThreadWatch::waited_since(Look& last) const noexcept {
  const Look now = look();
  const Look before = std::exchange(last, now);
  return before.waiting && now.waiting && (now.computed - before.computed) * 4 < now.at - before.at;
}

}  // namespace troupe::os
