// Processes of a test: forked before the test has threads.
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <utility>

namespace troupe::collective {

/// Killed and waited for when nobody has waited for it.
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
  /// Its exit code, or minus the signal that ended it.
  int wait() {
    if (pid_ <= 0) return -1000;
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

/// Runs f in a child, which exits with its result, or with 99 and a line on an exception.
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

}  // namespace troupe::collective
