#include "tests/programs/run/surroundings.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace programs {
namespace {

constexpr unsigned kNobody = 65534;
constexpr int kSignals[] = {SIGCHLD, SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1};
constexpr unsigned kGiB = 1U << 30;

[[noreturn]] void give_up(const char* what) {
  dprintf(STDERR_FILENO, "programs_run: %s: %s\n", what, std::strerror(errno));
  _exit(125);
}

void become(unsigned user) {
  if (::geteuid() != 0) return;
  if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0)
    give_up("cannot become another user");
}

void limit(__rlimit_resource which, rlim_t to) {
  rlimit limits{};
  if (::getrlimit(which, &limits) != 0) give_up("getrlimit");
  if (limits.rlim_max < to) to = limits.rlim_max;
  limits = {to, to};
  if (::setrlimit(which, &limits) != 0) give_up("setrlimit");
}

/// Returns whether `work` returns true in a child process.
template <class Work>
bool in_a_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

std::string no_other_user(Setting& setting) {
  if (::geteuid() != 0) return {};  // is one already
  const bool may = in_a_child([] {
    return ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
  });
  if (!may) return "this process may not become another user";
  const bool runs = in_a_child([&] {
    become(kNobody);
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDOUT_FILENO);
    ::execl(setting.executable.c_str(), setting.executable.c_str(), "--list", nullptr);
    return false;
  });
  return runs ? "" : "other users may not run " + setting.executable;
}

/// Finds a locale whose numbers have a comma, or makes one for this run.
std::string no_comma_locale(Setting& setting) {
  const std::string made = setting.folder + "/de_DE.UTF-8";
  const bool here = in_a_child([] {
    const char* names[] = {"de_DE.UTF-8", "de_DE.utf8"};
    for (const char* name : names)
      if (std::setlocale(LC_ALL, name) != nullptr) return true;
    return false;
  });
  if (!here) {
    const bool done = in_a_child([&] {
      const int nowhere = ::open("/dev/null", O_RDWR);
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      ::execlp("localedef", "localedef", "-i", "de_DE", "-f", "UTF-8", made.c_str(), nullptr);
      return false;
    });
    // Without such a locale, the streams of C++ have the comma all the same.
    if (!done) return {};
    ::setenv("LOCPATH", setting.folder.c_str(), 1);
  }
  setting.locale = "de_DE.UTF-8";
  return {};
}

void close_all(std::initializer_list<int> descriptors) {
  for (const int fd : descriptors) ::close(fd);
}

void change_environment(bool keep_path) {
  const char* path = std::getenv("PATH");
  const char* output = std::getenv("PROGRAMS_OUTPUT");
  const std::string kept_path = path != nullptr ? path : "";
  const std::string kept_output = output != nullptr ? output : "";
  ::clearenv();
  if (keep_path) ::setenv("PATH", kept_path.c_str(), 1);
  if (output != nullptr) ::setenv("PROGRAMS_OUTPUT", kept_output.c_str(), 1);
}

const std::vector<Surrounding> kSurroundings = {
    {.name = "closed_descriptors",
     .enter = [](const Setting&) { close_all({0, 1, 2}); },
     .no_output = true},
    {.name = "closed_stdin", .enter = [](const Setting&) { close_all({0}); }},
    {.name = "closed_stdout", .enter = [](const Setting&) { close_all({1}); }, .no_output = true},
    {.name = "closed_stderr", .enter = [](const Setting&) { close_all({2}); }},
    {.name = "full_stderr", .enter = [](const Setting&) {}, .full_stderr = true},
    {.name = "ignored_signals",
     .enter =
         [](const Setting&) {
           for (const int s : kSignals) ::signal(s, SIG_IGN);
         }},
    {.name = "blocked_signals",
     .enter =
         [](const Setting&) {
           sigset_t all;
           sigfillset(&all);
           ::sigprocmask(SIG_BLOCK, &all, nullptr);
         }},
    {.name = "non_root",
     .enter = [](const Setting&) { become(kNobody); },
     .missing = no_other_user},
    {.name = "no_home",
     .enter =
         [](const Setting&) {
           for (const char* name : {"HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR",
                                    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL"})
             ::unsetenv(name);
         }},
    {.name = "no_environment", .enter = [](const Setting&) { change_environment(false); }},
    {.name = "false_environment",
     .enter =
         [](const Setting& setting) {
           change_environment(true);
           const std::string nowhere = setting.folder + "/is/not/there";
           for (const char* name : {"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"})
             ::setenv(name, nowhere.c_str(), 1);
           ::setenv("LC_ALL", "xx_XX.UTF-8", 1);
         }},
    {.name = "few_descriptors", .enter = [](const Setting&) { limit(RLIMIT_NOFILE, 256); }},
    {.name = "hardly_any_descriptors",
     .enter = [](const Setting&) { limit(RLIMIT_NOFILE, 32); },
     .may_refuse = true},
    {.name = "few_processes",
     .enter =
         [](const Setting& setting) {
           become(setting.own_user);
           limit(RLIMIT_NPROC, 96);
         },
     .missing = no_other_user},
    {.name = "hardly_any_processes",
     .enter =
         [](const Setting& setting) {
           become(setting.own_user);
           limit(RLIMIT_NPROC, 12);
         },
     .missing = no_other_user,
     .may_refuse = true},
    {.name = "some_memory",
     .enter = [](const Setting&) { limit(RLIMIT_AS, 8ULL * kGiB); },
     .may_refuse = true},
    {.name = "little_memory",
     .enter = [](const Setting&) { limit(RLIMIT_AS, 4ULL * kGiB); },
     .may_refuse = true},
    {.name = "hardly_any_memory",
     .enter = [](const Setting&) { limit(RLIMIT_AS, kGiB / 8); },
     .may_refuse = true},
    {.name = "no_locked_memory", .enter = [](const Setting&) { limit(RLIMIT_MEMLOCK, 0); }},
    {.name = "small_stack", .enter = [](const Setting&) { limit(RLIMIT_STACK, 1U << 20); }},
    {.name = "small_files",
     .enter = [](const Setting&) { limit(RLIMIT_FSIZE, 1U << 16); },
     .may_refuse = true},
    {.name = "no_queued_signals", .enter = [](const Setting&) { limit(RLIMIT_SIGPENDING, 0); }},
    {.name = "comma_locale",
     .enter =
         [](const Setting& setting) {
           ::setenv("PROGRAMS_LOCALE", setting.locale.c_str(), 1);
           if (!setting.locale.empty()) ::setenv("LC_ALL", setting.locale.c_str(), 1);
         },
     .missing = no_comma_locale},
    {.name = "read_only_folder",
     .enter =
         [](const Setting& setting) {
           const std::string folder = setting.folder + "/read_only";
           if (::mkdir(folder.c_str(), 0555) != 0 || ::chdir(folder.c_str()) != 0)
             give_up("cannot make a folder");
           become(setting.own_user);
         },
     .missing = no_other_user},
    {.name = "deleted_folder",
     .enter =
         [](const Setting& setting) {
           const std::string folder = setting.folder + "/deleted";
           if (::mkdir(folder.c_str(), 0700) != 0 || ::chdir(folder.c_str()) != 0 ||
               ::rmdir(folder.c_str()) != 0)
             give_up("cannot make and remove a folder");
         }},
    {.name = "strict_umask", .enter = [](const Setting&) { ::umask(0777); }},
    {.name = "own_session", .enter = [](const Setting&) { (void)::setsid(); }},
    {.name = "one_cpu",
     .enter =
         [](const Setting&) {
           cpu_set_t set;
           CPU_ZERO(&set);
           if (::sched_getaffinity(0, sizeof set, &set) != 0) give_up("sched_getaffinity");
           int cpu = 0;
           while (CPU_ISSET(cpu, &set) == 0) ++cpu;
           CPU_ZERO(&set);
           CPU_SET(cpu, &set);
           if (::sched_setaffinity(0, sizeof set, &set) != 0) give_up("sched_setaffinity");
         }},
    {.name = "group_signals",
     .enter = [](const Setting&) { ::setenv("PROGRAMS_SIGNALS", "1", 1); },
     .signalled = true},
    {.name = "stopped", .enter = [](const Setting&) {}, .stopped = true},
};

}  // namespace

const std::vector<Surrounding>& surroundings() {
  return kSurroundings;
}

const Surrounding* surrounding(std::string_view name) {
  for (const Surrounding& one : kSurroundings)
    if (name == one.name) return &one;
  return nullptr;
}

}  // namespace programs
