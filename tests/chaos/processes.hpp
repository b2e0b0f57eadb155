/// The processes below this one, as /proc shows them, and children with pipes. This process becomes
/// the parent of everything below it that is orphaned, so nothing gets out of sight.
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
/// What /proc says of one; pid 0: there is none, or it is a zombie.
Process look_at(int pid);
/// All of them that live. Reaps the dead first.
std::vector<Process> descendants();
/// CPU time by now, in milliseconds.
double cpu_ms(int pid);
/// Sends it to a descendant; false when there is none.
bool hit(int pid, int signal = SIGKILL);
bool is_alive(int pid);
/// Whether it came true within that time.
bool within(std::chrono::milliseconds bound, const std::function<bool()>& done);
double ms_since(Clock::time_point begun);

/// fork() by the main thread: the child dies with this process, whatever that dies of.
int fork_child();

/// A child of this process; the descriptors are this side's ends.
struct Child {
  int pid = 0, in = -1, out = -1;
};
/// The child's stdin and stdout are pipes, its stderr is appended to `log`. With `tell` there is
/// "--tell FD" behind the arguments, and `out` is that instead of stdout.
Child start(std::vector<std::string> arguments,
            const std::vector<std::pair<std::string, std::string>>& variables,
            const std::string& log, bool tell);
/// All that it writes until it closes, at most that long.
std::string read_all(int fd, std::chrono::milliseconds bound);
void close_ends(Child& child);
/// Its exit code, 128 + signal, or -1 when it has not ended within that time.
int wait_for(int pid, std::chrono::milliseconds bound);

}  // namespace chaos
