#include "troupe/runtime/os/role.hpp"

#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/own_program.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern char** environ;

namespace troupe::os {
namespace {

constexpr const char* kVariable = "TROUPE_ROLE";
constexpr const char* kSignals = "TROUPE_SIGNALS";  // of the driver; signals_text()
constexpr const char* kCluster = "cluster,";
constexpr const char* kKilled = "killed by signal ";
constexpr const char* kExited = "exited with code ";
constexpr const char* kOutOfMemory = "out of memory: ";
constexpr const char* kOutOfReach = "out of reach: ";

bool is_our_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET)
    return false;
  ucred peer{};
  size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/// "role:fd:text"
Inherited read_role() {
  Inherited inherited;
  inherited.signals = current_signals();
  const char* value = getenv(kVariable);
  if (value == nullptr) return inherited;
  const std::string text = value;
  unsetenv(kVariable);
  const char* signals = getenv(kSignals);
  const std::optional<SignalState> given = parse_signals(signals != nullptr ? signals : "");
  unsetenv(kSignals);
  const auto first = text.find(':');
  const auto second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return inherited;
  int fd = -1;
  const auto parsed = std::from_chars(text.data() + first + 1, text.data() + second, fd);
  if (parsed.ptr != text.data() + second || !is_our_socket(fd)) return inherited;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  for (const Role role : {Role::agent, Role::control, Role::zygote, Role::worker, Role::stack})
    if (text.compare(0, first, name_of(role)) == 0) inherited.role = role;
  if (inherited.role == Role::driver) return inherited;
  inherited.socket = Fd(fd);
  inherited.text = text.substr(second + 1);
  inherited.signals = given.value_or(inherited.signals);
  return inherited;
}

bool is_variable(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry.substr(0, name.size()) == name &&
         entry[name.size()] == '=';
}

/// The signal state that a child begins with. Zygote and worker run code of the program and get the
/// state of their driver. posix_spawn cannot set signals to be ignored, so the child ignores them
/// itself, in take_role(). Agent and control begin with the group's signals blocked until then.
class SpawnSignals {
 public:
  SpawnSignals(Role role, const SignalState& state) noexcept {
    posix_spawnattr_init(&attributes_);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGCHLD);
    short flags = POSIX_SPAWN_SETSIGDEF;
    if (role == Role::zygote || role == Role::worker) {
      sigfillset(&defaults);
      const sigset_t blocked = signal_set(state.blocked);
      posix_spawnattr_setsigmask(&attributes_, &blocked);
      flags |= POSIX_SPAWN_SETSIGMASK;
    } else {
      sigset_t blocked;
      sigemptyset(&blocked);
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      for (const int signal : kGroupSignals) sigaddset(&blocked, signal);
      posix_spawnattr_setsigmask(&attributes_, &blocked);
      flags |= POSIX_SPAWN_SETSIGMASK;
    }
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setflags(&attributes_, flags);
  }
  ~SpawnSignals() { posix_spawnattr_destroy(&attributes_); }
  SpawnSignals(const SpawnSignals&) = delete;
  const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

}  // namespace

const char* name_of(Role role) noexcept {
  switch (role) {
    case Role::driver: return "driver";
    case Role::agent: return "agent";
    case Role::control: return "control";
    case Role::zygote: return "zygote";
    case Role::worker: return "worker";
    case Role::stack: return "stack";
  }
  return "driver";
}

Inherited& inherited() {
  static Inherited* role = new Inherited(read_role());
  return *role;
}

const SignalState& inherited_signals() {
  return inherited().signals;
}

std::string cluster_text() {
  return kCluster + std::to_string(getpid());
}

pid_t launcher_in(const std::string& text) noexcept {
  if (text.rfind(kCluster, 0) != 0) return 0;
  return static_cast<pid_t>(std::strtol(text.c_str() + std::strlen(kCluster), nullptr, 10));
}

Result<pid_t> spawn(Role role, Fd socket, const std::string& text, const Program& program) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket.get(),
                                   socket.get());  // dup2 to the same number clears CLOEXEC
  if (program.out >= 0) posix_spawn_file_actions_adddup2(&actions, program.out, STDOUT_FILENO);
  if (program.err >= 0) posix_spawn_file_actions_adddup2(&actions, program.err, STDERR_FILENO);
  if (program.page >= 0) posix_spawn_file_actions_adddup2(&actions, program.page, program.page);
  const std::string variable = std::string(kVariable) + "=" + name_of(role) + ":" +
                               std::to_string(socket.get()) + ":" + text;
  const SignalState state = program.signals.value_or(inherited_signals());
  const std::string signals = std::string(kSignals) + "=" + signals_text(state);
  const std::string_view library_path = "LD_LIBRARY_PATH=";
  std::string libraries = std::string(library_path) + program.libraries;
  std::vector<char*> environment;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    if (is_variable(entry, kVariable) || is_variable(entry, kSignals)) continue;
    if (!program.libraries.empty() && entry.substr(0, library_path.size()) == library_path)
      libraries += ":" + std::string(entry.substr(library_path.size()));
    else
      environment.push_back(*at);
  }
  if (!program.libraries.empty()) environment.push_back(libraries.data());
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(const_cast<char*>(signals.c_str()));
  environment.push_back(nullptr);
  const bool own = program.path.empty();
  std::vector<std::string> arguments = own ? own_arguments() : program.arguments;
  if (arguments.empty()) arguments.push_back(program.path);
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const SpawnSignals given(role, state);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, own ? "/proc/self/exe" : program.path.c_str(), &actions,
                                 given.attributes(), argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) return pid;
  const std::string why =
      std::string("cannot start a process (") + name_of(role) + "): " + why_no_process(failed);
  if (failed == EAGAIN || failed == ENOMEM || failed == EMFILE || failed == ENFILE)
    return Error(Code::out_of_memory, why);
  return Error(Code::unavailable, why + (own ? "" : ", path " + program.path));
}

void die_with_parent(pid_t parent) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status))
    return kKilled + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  if (WIFEXITED(status)) return kExited + std::to_string(WEXITSTATUS(status));
  return "ended in an unknown way";
}

bool is_end_of_process(const std::string& reason) noexcept {
  return reason.rfind(kKilled, 0) == 0 || reason.rfind(kExited, 0) == 0;
}

bool is_good_end(const std::string& reason) noexcept {
  return reason.rfind(kExited, 0) == 0 && reason.substr(std::strlen(kExited)) == "0";
}

bool is_abort(const std::string& reason) noexcept {
  return reason.rfind(kKilled + std::to_string(SIGABRT) + " (", 0) == 0;
}

std::string describe_out_of_memory(const std::string& why) {
  return kOutOfMemory + why;
}

bool is_out_of_memory(const std::string& reason) noexcept {
  return reason.rfind(kOutOfMemory, 0) == 0;
}

std::string describe_out_of_reach(const std::string& why) {
  return kOutOfReach + why;
}

bool is_out_of_reach(const std::string& reason) noexcept {
  return reason.rfind(kOutOfReach, 0) == 0;
}

int count_threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return 1;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') ++count;
  closedir(folder);
  return count;
}

}  // namespace troupe::os
