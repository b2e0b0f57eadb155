/// Which role this process plays, and how others are started from it.
///
/// A child is the same executable with one inherited socket, or for the zygote of a job another;
/// the environment variable that names it is removed at first read, so that neither it nor the
/// descriptor reaches the user's own children. Agent and control take their role in the library's
/// constructor, before any code of the user; zygote and worker in enter().
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

enum class Role { driver, agent, control, zygote, worker };

struct Inherited {
  Role role = Role::driver;
  Fd socket;
  std::string text;     ///< role-specific options
  SignalState signals;  ///< see inherited_signals()
};

/// What this process was started as; the socket can be taken once.
Inherited& inherited();

/// What is started: an executable with the arguments of its main (the first is its name), and
/// folders in which its own shared objects lie.
struct Program {
  std::string path;  ///< empty: this executable, with this process's arguments
  std::vector<std::string> arguments;
  std::string libraries;                    ///< put before LD_LIBRARY_PATH; may be empty
  std::optional<SignalState> signals = {};  ///< it begins with; nullopt: inherited_signals()
};

/// Which signals were ignored and blocked when this program was started, before any code of its
/// own. In an agent, a zygote or a worker: when the driver was that they are there for.
const SignalState& inherited_signals();

/// The text of an agent or control that gets the rest by launch.hpp; "cluster,<pid>". Such a
/// process dies with the thread that started it.
std::string cluster_text();
/// The process that such a text names; 0 for another text.
pid_t launcher_in(const std::string& text) noexcept;

/// Starts the program in the role. Does not copy the parent's memory (vfork semantics), about 4 ms.
/// A zygote and a worker begin with the program's signals, agent and control with the caller's own
/// but for SIGCHLD, which is not ignored.
/// Errors: out_of_memory (processes, descriptors), unavailable (the program cannot be executed,
/// with its path).
Result<pid_t> spawn(Role role, Fd socket, const std::string& text, const Program& program = {});

/// Asks for SIGKILL when the parent's thread dies, and ends at once when it is dead already.
void die_with_parent(pid_t parent) noexcept;

/// "killed by signal 9 (Killed)" or "exited with code 3".
std::string describe_status(int status);
/// Whether it begins with such a description: the process ended, and nothing else is said to have.
bool is_end_of_process(const std::string& reason) noexcept;
/// "out of memory: <why>": the agent ended the process, since its node had too little.
std::string describe_out_of_memory(const std::string& why);
bool is_out_of_memory(const std::string& reason) noexcept;
/// "out of reach: <why>": its node may live, and its answers come no more.
std::string describe_out_of_reach(const std::string& why);
bool is_out_of_reach(const std::string& reason) noexcept;

/// Threads of this process right now.
int count_threads();

}  // namespace troupe::os
