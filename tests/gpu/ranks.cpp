// ranks: starts a program once for each rank, so that several ranks of NCCL share one device.
//
//   ranks [--deadline SECONDS] [--grace SECONDS] [--synchronize] [--multi-rank-gpu] [--dies RANK]
//         N PROGRAM [argument...]
//
// It forks and execs before anything of CUDA is loaded. Every rank gets torchrun's variables, and
// a path at which rank 0 leaves NCCL's id for the others (TROUPE_NCCL_ID). NCCL refuses two ranks
// on one device of a host, so each rank also gets a host id of its own (NCCL_HOSTID), sockets on
// loopback, few channels and one algorithm. A variable that is set already stays, except for the
// rank's own. --synchronize sets TROUPE_NCCL_SYNCHRONIZE: the device is synchronised around each
// collective, since processes take turns on it. --multi-rank-gpu instead asks NCCL (2.30.3 and
// later) for several ranks on one device. A single rank gets none of that.
//
// When a rank fails, the others have the grace (5 s) to end by themselves. At the deadline (120
// s) all ranks are killed, with the processes that they have started. --dies RANK: that rank must
// end by SIGKILL, else the run fails (125); only the other ranks' exit codes count. Exit code: of
// the first rank that failed, 128 + the signal that ended it, 124 at the deadline, 127 when the
// program cannot be started, 2 for wrong usage.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kLate = 124, kOutlived = 125, kNotStarted = 127, kUsage = 2, kMostRanks = 64;

struct Options {
  int ranks = 0;
  Seconds deadline{120}, grace{5};
  bool synchronize = false, multi_rank_gpu = false;
  int dies = -1;             // the rank that must be killed
  char** program = nullptr;  // with its arguments, ended by a null
};

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr,
               "ranks: %s\nusage: ranks [--deadline SECONDS] [--grace SECONDS] [--synchronize] "
               "[--multi-rank-gpu] [--dies RANK] N PROGRAM [argument...]\n",
               why.c_str());
  std::exit(kUsage);
}

double number(const char* what, const std::string& text, double least, double greatest) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least) ||
      value > greatest)
    usage(std::string(what) + " is '" + text + "'");
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  int i = 1;
  const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
  for (; i < argc && std::strncmp(argv[i], "--", 2) == 0; ++i) {
    const std::string flag = argv[i];
    if (flag == "--deadline") {
      options.deadline = Seconds(number("--deadline", value(), 0.001, 86400));
    } else if (flag == "--grace") {
      options.grace = Seconds(number("--grace", value(), 0, 86400));
    } else if (flag == "--synchronize") {
      options.synchronize = true;
    } else if (flag == "--multi-rank-gpu") {
      options.multi_rank_gpu = true;
    } else if (flag == "--dies") {
      options.dies = static_cast<int>(number("--dies", value(), 0, kMostRanks - 1));
    } else {
      usage("no option " + flag);
    }
  }
  if (i + 1 >= argc) usage("the number of ranks and a program are needed");
  options.ranks = static_cast<int>(number("the number of ranks", argv[i], 1, kMostRanks));
  if (std::to_string(options.ranks) != argv[i])
    usage("the number of ranks is '" + std::string(argv[i]) + "'");
  if (options.dies >= options.ranks) usage("there is no rank that --dies names");
  options.program = argv + i + 1;
  return options;
}

/// Returns a port on which nothing listens now.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  const bool bound =
      ::bind(socket, address, size) == 0 && ::getsockname(socket, address, &size) == 0;
  ::close(socket);
  return bound ? ntohs(at.sin_port) : 29500;
}

/// A temporary folder of this run, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-ranks-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) usage("no temporary folder can be made");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string id_file() const { return path_ / "nccl_id"; }

 private:
  std::filesystem::path path_;
};

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}
void set_default(const char* name, const char* value) {
  ::setenv(name, value, 0);
}

/// Sets the variables that are the same for all ranks.
void set_environment(const Options& options, const Folder& folder) {
  const std::string world = std::to_string(options.ranks);
  set("WORLD_SIZE", world);
  set("LOCAL_WORLD_SIZE", world);
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(free_port()));
  set("TORCHELASTIC_RUN_ID", std::to_string(::getpid()));
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  set("TROUPE_NCCL_ID", folder.id_file());
  if (options.synchronize) set("TROUPE_NCCL_SYNCHRONIZE", "1");
  set_default("NCCL_ALGO", "Ring");  // fixes the order of its sums
  if (options.ranks == 1) return;
  set_default("NCCL_MAX_CTAS", "2");
  if (options.multi_rank_gpu) {
    set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    return;
  }
  set_default("NCCL_P2P_DISABLE", "1");
  set_default("NCCL_SHM_DISABLE", "1");
  set_default("NCCL_IB_DISABLE", "1");
  set_default("NCCL_NET", "Socket");
  set_default("NCCL_SOCKET_IFNAME", "lo");
}

class Ranks {
 public:
  explicit Ranks(const Options& options) : options_(options) {
    ::sigemptyset(&waited_);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&waited_, signal);
    ::sigprocmask(SIG_BLOCK, &waited_, &before_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() { kill_all(); }

  void start() {
    const pid_t launcher = ::getpid();
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) become(rank, launcher);
      if (pid < 0) {
        std::perror("ranks: fork");
        note(kNotStarted);
        return;
      }
      ::setpgid(pid, pid);  // the child calls it too: either call may come first
      running_.push_back({rank, pid});
      groups_.push_back(pid);
    }
  }

  /// Waits for all ranks; returns the exit code.
  int wait() {
    Clock::time_point end = after(options_.deadline);
    bool failing = code_ != 0;
    if (failing) end = after(options_.grace);
    while (!running_.empty()) {
      const int signal = next_signal(end);
      if (signal < 0) {
        if (!failing) report_late();
        note(kLate);
        break;
      }
      if (signal != SIGCHLD) {
        note(128 + signal);
        break;
      }
      reap();
      if (code_ != 0 && !failing) {
        failing = true;
        end = std::min(end, after(options_.grace));
      }
    }
    kill_all();
    return code_;
  }

 private:
  struct Rank {
    int rank = 0;
    pid_t pid = 0;
  };

  static Clock::time_point after(Seconds time) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  }

  [[noreturn]] void become(int rank, pid_t launcher) const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(kNotStarted);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    const std::string number = std::to_string(rank);
    set("RANK", number);
    set("LOCAL_RANK", number);
    if (options_.ranks > 1 && !options_.multi_rank_gpu) set("NCCL_HOSTID", "rank" + number);
    ::execvp(options_.program[0], options_.program);
    std::fprintf(stderr, "ranks: %s: %s\n", options_.program[0], std::strerror(errno));
    ::_exit(kNotStarted);
  }

  /// Returns a signal that arrives before `end`, or -1.
  int next_signal(Clock::time_point end) const {
    for (;;) {
      const auto left = std::max(Clock::duration::zero(), end - Clock::now());
      const auto whole = std::chrono::floor<std::chrono::seconds>(left);
      const timespec time{static_cast<time_t>(whole.count()),
                          static_cast<long>(std::chrono::nanoseconds(left - whole).count())};
      const int signal = ::sigtimedwait(&waited_, nullptr, &time);
      if (signal > 0 || errno != EINTR) return signal;
    }
  }

  /// Notes which ranks have ended. It does not reap them: their process ids name the process
  /// groups for kill_all(), so they must not be used again before.
  void reap() {
    std::erase_if(running_, [this](const Rank& one) {
      siginfo_t end{};
      const auto id = static_cast<id_t>(one.pid);
      if (::waitid(P_PID, id, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid != one.pid)
        return false;
      const int code = code_of(one, end);
      if (code != 0) std::fprintf(stderr, "ranks: rank %d ended with %d\n", one.rank, code);
      note(code);
      return true;
    });
  }

  /// Returns the rank's exit code. For the rank that must be killed it is 0 when SIGKILL ended
  /// it.
  int code_of(const Rank& one, const siginfo_t& end) const {
    const int code = end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
    if (one.rank != options_.dies) return code;
    return code == 128 + SIGKILL ? 0 : code != 0 ? code : kOutlived;
  }

  void report_late() const {
    for (const Rank& one : running_)
      std::fprintf(stderr, "ranks: rank %d (process %d) has not ended within %g s and is killed\n",
                   one.rank, static_cast<int>(one.pid), options_.deadline.count());
  }

  void note(int code) {
    if (code_ == 0) code_ = code;
  }

  void kill_all() {
    for (const pid_t group : groups_) ::kill(-group, SIGKILL);  // those of ended ranks too
    for (const pid_t leader : groups_) ::waitpid(leader, nullptr, 0);
    running_.clear();
    groups_.clear();
  }

  const Options& options_;
  sigset_t waited_{}, before_{};
  std::vector<Rank> running_;
  std::vector<pid_t> groups_;  // one per rank; none is reaped before all are killed
  int code_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Folder folder;
  set_environment(options, folder);
  Ranks ranks(options);
  ranks.start();
  return ranks.wait();
}
