/// A child process that does nothing until it is killed, and a lease table of one CPU for it.
#pragma once

#include "tests/eventually.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace troupe::agent {

class PlayedChild {
 public:
  PlayedChild() = default;
  PlayedChild(const PlayedChild&) = delete;
  PlayedChild& operator=(const PlayedChild&) = delete;
  ~PlayedChild() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  /// Starts the child, once. Returns its pid.
  pid_t start() {
    pid_ = fork();
    while (pid_ == 0) pause();
    return pid_;
  }
  pid_t pid() const noexcept { return pid_; }
  /// Waits until the child has ended. Returns whether a signal ended it.
  bool is_killed() {
    int status = 0;
    if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return false;
    pid_ = -1;
    return WIFSIGNALED(status);
  }

 private:
  pid_t pid_ = -1;
};

inline scheduling::LeaseOptions one_cpu() {
  scheduling::LeaseOptions options;
  options.total.cpus = scheduling::amount_of(1);
  options.max_workers = 1;
  return options;
}
inline scheduling::ResourceDemand one_cpu_wanted() {
  scheduling::ResourceDemand demand;
  demand.need.cpus = scheduling::amount_of(1);
  return demand;
}

}  // namespace troupe::agent
