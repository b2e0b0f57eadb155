/// The descendants of this process, from /proc, and children with pipes. This process adopts
/// every orphan below it, so no descendant escapes.
///
///     adopt_orphans();
///     for (const Process& process : descendants()) …
///     Child child = start({"troupe", "up"}, {{"NAME", "value"}}, "log", true);
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace chaos {

using Clock = std::chrono::steady_clock;

struct Process {
  int pid = 0, parent = 0;
  char state = 0;
  std::string name;
};

void adopt_orphans();
/// Reads a process's entry in /proc. The pid is 0 when there is no such process or it is a
/// zombie.
Process look_at(int pid);
/// Returns all living descendants, after it has reaped the dead ones.
std::vector<Process> descendants();
/// Returns the CPU time used so far, in milliseconds.
double cpu_ms(int pid);
/// Sends a signal to a descendant. Returns false when there is none with that pid.
bool hit(int pid, int signal = SIGKILL);
bool is_alive(int pid);
/// Returns whether `done` became true within that time.
bool within(std::chrono::milliseconds bound, const std::function<bool()>& done);
double ms_since(Clock::time_point begun);

/// Calls fork(), on the main thread only. The child dies with this process, even when this
/// process is killed.
int fork_child();

/// A child of this process. The descriptors are this process's ends of its pipes.
struct Child {
  int pid = 0, in = -1, out = -1;
};
/// Starts a child whose stdin and stdout are pipes and whose stderr is appended to `log`. With
/// `tell`, the arguments are followed by "--tell FD", and `out` is that descriptor in place of
/// stdout.
Child start(std::vector<std::string> arguments,
            const std::vector<std::pair<std::string, std::string>>& variables,
            const std::string& log, bool tell);
/// Reads until the writer closes, or until `bound` has passed.
std::string read_all(int fd, std::chrono::milliseconds bound);
void close_ends(Child& child);
/// Returns the exit code, or 128 + signal, or -1 when the process has not ended within that time.
int wait_for(int pid, std::chrono::milliseconds bound);

}  // namespace chaos
