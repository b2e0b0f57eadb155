/// The role of this process, and how processes of other roles are started from it.
///
/// A child runs the same executable (the zygote of a job: the job's executable) with one inherited
/// socket. An environment variable names role and socket. It is removed at its first read, so that
/// neither it nor the descriptor reaches children of the user's code. Agent, control
/// and stack take their role in the library's constructor, before any code of the user; zygote and
/// worker in enter().
///
///     spawn(Role::agent, std::move(theirs), "…options…");
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/signals.hpp"

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::os {

/// `stack` looks up lines of stacks for another process and runs no code of the user.
enum class Role { driver, agent, control, zygote, worker, stack };

/// Returns "driver", "agent" and so on.
const char* name_of(Role role) noexcept;

struct Inherited {
  Role role = Role::driver;
  Fd socket;
  std::string text;     ///< role-specific options
  SignalState signals;  ///< see inherited_signals()
};

/// Returns the role and the rest that this process was started with. The socket can be taken once.
Inherited& inherited();

/// A program to start: an executable with the arguments of its main (the first is its name), and
/// the folders of its own shared objects.
struct Program {
  std::string path;  ///< empty: this executable, with this process's arguments
  std::vector<std::string> arguments;
  std::string libraries;                    ///< put before LD_LIBRARY_PATH; may be empty
  std::optional<SignalState> signals = {};  ///< at its start; nullopt: inherited_signals()
  int out = -1, err = -1;                   ///< borrowed: its output; -1: that of this process
  int page = -1;  ///< borrowed: a descriptor that keeps its number; -1: none
};

/// Returns which signals were ignored and blocked when this program was started, before any of its
/// code ran. In an agent, a zygote or a worker it is the state at the start of their driver.
const SignalState& inherited_signals();

/// Returns the options text "cluster,<pid>" for an agent or control that receives its configuration
/// by launch.hpp. Such a process dies with the thread that started it.
std::string cluster_text();
/// Returns the pid in such a text; 0 for another text.
pid_t launcher_in(const std::string& text) noexcept;

/// Starts the program in the role. Does not copy the parent's memory (vfork semantics). A zygote
/// and a worker begin with the program's signals. Agent and control begin with the caller's
/// signals, except that SIGCHLD is not ignored. Errors: out_of_memory (processes, descriptors),
/// unavailable (the program cannot be executed, with its path).
Result<pid_t> spawn(Role role, Fd socket, const std::string& text, const Program& program = {});

/// Asks the kernel for SIGKILL when the parent's thread dies. Ends this process at once when the
/// parent is dead already.
void die_with_parent(pid_t parent) noexcept;

/// Returns "killed by signal 9 (Killed)" or "exited with code 3".
std::string describe_status(int status);
/// Returns whether the reason begins with a text of describe_status(): the process itself ended.
bool is_end_of_process(const std::string& reason) noexcept;
/// Returns whether the text of describe_status() names an exit with code 0.
bool is_good_end(const std::string& reason) noexcept;
/// Returns whether the reason begins with such a text of a process that called abort().
bool is_abort(const std::string& reason) noexcept;
/// Returns "out of memory: <why>": the agent ended the process, because its node had too little.
std::string describe_out_of_memory(const std::string& why);
bool is_out_of_memory(const std::string& reason) noexcept;
/// Returns "out of reach: <why>": the process's node may live, but its answers do not arrive.
std::string describe_out_of_reach(const std::string& why);
bool is_out_of_reach(const std::string& reason) noexcept;

/// Returns the present number of threads of this process.
int count_threads();

}  // namespace troupe::os
