// Child processes of a test, forked before the test has threads.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/units.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

namespace troupe::collective {

inline Time in(Duration time) {
  return steady_now() + time;
}

/// A child process. The destructor kills and reaps it unless wait() was called.
class Child {
 public:
  Child() = default;
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  /// Waits for the child; returns its exit code, or minus the signal that ended it.
  int wait() {
    if (pid_ <= 0) return -1000;
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

/// Runs f in a child. It exits with f's result, or with 99 and a printed line on an exception.
inline Child start_child(const std::function<int()>& f) {
  const pid_t pid = ::fork();
  if (pid != 0) return Child(pid);
  int code = 99;
  try {
    code = f();
  } catch (const Error& e) {
    ::dprintf(2, "child: %s\n", e.what());
  }
  ::_exit(code);
}

inline Duration processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// Leaves the process `count` free descriptors from now on.
inline void leave_descriptors(rlim_t count) {
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  const rlimit limit{static_cast<rlim_t>(next) + count, static_cast<rlim_t>(next) + count};
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace troupe::collective
