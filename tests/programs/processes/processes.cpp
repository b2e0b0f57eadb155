// Proves that tasks and drivers may use processes, signals, files and standard streams as usual,
// and that sessions may follow each other.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace processes {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

int same(int x) {
  return x;
}

// --- other programs ---

/// Returns the output of a command. Its exit status is not used, since a process that ignores
/// SIGCHLD cannot know it.
std::string shell(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "no pipe";
  std::string text;
  char part[256];
  while (std::fgets(part, sizeof part, pipe) != nullptr) text += part;
  ::pclose(pipe);
  return text;
}
void commands(Context& ctx) {
  std::cout << ctx.get(ctx.submit<shell>("echo from a shell")) << std::flush;
  for (int i = 0; i < 5; ++i)
    std::cout << ctx.get(ctx.submit<shell>("yes 2>/dev/null | head -1"))
              << ctx.get(ctx.submit<shell>("(exit 3); echo $?"));
}
/// Proves that tasks may run shell commands and read their output.
const Program command{"tasks_run_commands",
                      {.expect = "from a shell\ny\n3\ny\n3\ny\n3\ny\n3\ny\n3\n",
                       .everywhere = true,
                       .except = "group_signals"},
                      commands};

int forks(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(i);
    int status = 0;
    if (::waitpid(child, &status, 0) == child) sum += WEXITSTATUS(status);
  }
  return sum;
}
void forking(Context& ctx) {
  std::cout << ctx.get(ctx.submit<forks>(5)) << ' ' << forks(5) << ' '
            << ctx.get(ctx.submit<same>(1)) << '\n';
}
/// Proves that tasks and drivers may fork and wait for their children.
const Program fork_wait{"fork_and_wait", {.expect = "10 10 1\n"}, forking};

int leaves_a_child(int) {
  return std::system("sleep 1000 &");
}
void left_behind(Context& ctx) {
  std::cout << ctx.get(ctx.submit<leaves_a_child>(0)) << '\n';
}
/// Proves that a process which a task leaves behind ends with the program.
const Program left{"a_task_leaves_a_process_behind", {.expect = "0\n"}, left_behind};

// --- the driver's own processes and signals ---

void child_in_flight(Context& ctx) {
  const Ref<int> late = ctx.submit([] {
    std::this_thread::sleep_for(100ms);
    return 3;
  });
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);  // a helper that never uses troupe
  int status = 0;
  ::waitpid(child, &status, 0);
  std::cout << ctx.get(late) << ' ' << ctx.get(ctx.submit<same>(4)) << '\n';
}
/// Proves that a fork does not disturb calls in flight.
const Program flight{"fork_with_a_call_in_flight", {.expect = "3 4\n"}, child_in_flight};

void child_exits(Context& ctx) {
  const Ref<int> kept = ctx.put(5);
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);  // destructors and exit handlers run
  int status = 0;
  ::waitpid(child, &status, 0);
  std::cout << ctx.get(kept) << ' ' << ctx.get(ctx.submit<same>(6)) << ' ' << WIFEXITED(status)
            << '\n';
}
/// Proves that a child's exit handlers do not end the parent's session.
const Program exits{"a_forked_child_exits", {.expect = "5 6 1\n"}, child_exits};

void child_uses(Context& ctx) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ctx.get(ctx.submit<same>(1), 2s);
      ::_exit(1);
    } catch (const troupe::Error&) {
      ::_exit(9);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::cout << WEXITSTATUS(status) << ' ' << ctx.get(ctx.submit<same>(2)) << '\n';
}
/// Proves that a forked child cannot use its parent's session.
const Program uses{"a_forked_child_uses_its_parents_session", {.expect = "9 2\n"}, child_uses};

int daemonised(int& argc, char** argv) {
  if (::daemon(1, 1) != 0) return 9;
  return troupe::run(argc, argv,
                     [](Context& ctx) { std::cout << ctx.get(ctx.submit<same>(8)) << std::endl; });
}
// The process that is started ends at once, so the output comes from an orphan.
int waits_for_a_daemon(int& argc, char** argv) {
  const char* marked = std::getenv("PROGRAMS_DAEMON");
  if (marked != nullptr) return daemonised(argc, argv);
  ::setenv("PROGRAMS_DAEMON", "1", 1);
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return 9;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    std::exit(daemonised(argc, argv));
  }
  ::close(ends[1]);
  std::string text;
  char part[64];
  for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(n));
  ::waitpid(child, nullptr, 0);
  std::cout << text;
  return 0;
}
/// Proves that a program may become a daemon before troupe::run.
const Program daemon_first{
    "daemon_before_run", {.expect = "8\n", .plain_only = true}, waits_for_a_daemon};

std::atomic<int> g_signals{0};
int own_handlers(int& argc, char** argv) {
  struct sigaction action{};
  action.sa_handler = [](int) { ++g_signals; };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  ::sigaction(SIGALRM, &action, nullptr);
  return troupe::run(argc, argv, [](Context& ctx) {
    ::ualarm(2000, 2000);
    int sum = 0;
    for (int i = 0; i < 500; ++i) sum += ctx.get(ctx.submit<same>(1));
    while (g_signals == 0) std::this_thread::sleep_for(1ms);
    ::ualarm(0, 0);
    std::cout << sum << '\n';
  });
}
/// Proves that signals with the user's handlers do not break calls.
const Program handlers{
    "signals_interrupt_the_driver", {.expect = "500\n", .plain_only = true}, own_handlers};

int child_handler(int& argc, char** argv) {
  ::signal(SIGCHLD, SIG_IGN);  // the user's own: forked helpers need no wait
  return troupe::run(argc, argv, [](Context& ctx) {
    const Ref<int> dies =
        ctx.with(troupe::TaskOptions{.max_retries = 0}).submit([]() -> int { ::_exit(4); });
    const auto result = ctx.try_get(dies, 8s);
    std::cout << (result ? "value" : troupe::name_of(result.error().code())) << ' '
              << ctx.get(ctx.submit<same>(1)) << '\n';
  });
}
/// Proves that a driver which ignores SIGCHLD still learns of a worker's death.
const Program ignoring{"a_driver_that_ignores_sigchld",
                       {.expect = "worker_died 1\n", .plain_only = true},
                       child_handler};

// --- sessions ---

int three_sessions(int& argc, char** argv) {
  troupe::enter(argc, argv);
  for (int i = 0; i < 3; ++i) {
    troupe::Session session({.cpus = 1});
    Context ctx = session.context();
    std::cout << ctx.get(ctx.submit<same>(i));
    try {
      troupe::Session second;
    } catch (const troupe::InvalidArgument&) {
      std::cout << " one at a time ";
    }
  }
  std::cout << '\n';
  return 0;
}
/// Proves that sessions may follow each other, one at a time.
const Program sessions{"three_sessions_in_turn",
                       {.expect = "0 one at a time 1 one at a time 2 one at a time \n"},
                       three_sessions};

int no_enter(int&, char**) {
  try {
    troupe::Session session;
  } catch (const troupe::InvalidArgument& e) {
    std::cout << (std::string(e.what()).find("enter") != std::string::npos) << '\n';
  }
  return 0;
}
/// Proves that a session without troupe::enter is refused.
const Program unentered{"a_session_without_enter", {.expect = "1\n"}, no_enter};

int own_arguments(int& argc, char** argv) {
  // The program keeps its own arguments. Arguments behind -- are never troupe's.
  char own[] = "--mine", cpus[] = "--troupe-cpus", two[] = "2", end[] = "--",
       theirs[] = "--troupe-nonsense";
  char* arguments[] = {argv[0], own, cpus, two, end, theirs, nullptr};
  static_cast<void>(argc);
  int count = 6;
  return troupe::run(count, arguments, [&](Context& ctx) {
    std::cout << ctx.get(ctx.submit<same>(1)) << ' ' << count << ' ' << arguments[1] << ' '
              << arguments[2] << ' ' << arguments[3] << '\n';
  });
}
/// Proves that only troupe's own arguments are removed from argv.
const Program arguments{"a_programs_own_arguments",
                        {.expect = "1 4 --mine -- --troupe-nonsense\n", .nodes = 1},
                        own_arguments};

// --- what a process has of its own ---

int g_started = 0;
struct AtStart {
  AtStart() { ++g_started; }
} g_at_start;
int started() {
  return ++g_started;
}
std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "none";
}
int globals(int& argc, char** argv) {
  ::setenv("PROGRAMS_OWN", "handed on", 1);
  return troupe::run(argc, argv, [](Context& ctx) {
    g_started = 100;  // in this process only
    std::cout << (ctx.get(ctx.submit<started>()) < 100) << ' '
              << ctx.get(ctx.submit<environment>("PROGRAMS_OWN")) << '\n';
  });
}
/// Proves that workers have globals of their own and the driver's environment.
const Program own{"globals_and_environment", {.expect = "1 handed on\n"}, globals};

int changes_folder(int) {
  return ::chdir("/");
}
int writes(const std::string& file) {
  std::ofstream(file) << "written by a task";
  return 0;
}
void files(Context& ctx) {
  const std::string file = "/tmp/" + std::to_string(::getpid()) + ".file";
  ctx.get(ctx.submit<changes_folder>(0));
  ctx.get(ctx.submit<writes>(file));
  std::string text;
  std::getline(std::ifstream(file).seekg(0), text);
  std::remove(file.c_str());
  std::cout << text << ' ' << ctx.get(ctx.submit<same>(2)) << '\n';
}
/// Proves that a task may write files, and change its folder without harm to others.
const Program file{"tasks_write_files", {.expect = "written by a task 2\n"}, files};

/// Returns how many of the descriptors 0, 1 and 2 can be read or written like files.
int standard_descriptors(int) {
  int usable = 0;
  for (const int fd : {0, 1, 2}) {
    struct stat about{};
    if (::fstat(fd, &about) == 0 && !S_ISSOCK(about.st_mode)) ++usable;
  }
  return usable;
}
void descriptors(Context& ctx) {
  std::cerr << "a line of the driver's\n";
  std::printf("%s", "");
  std::cout << ctx.get(ctx.submit<standard_descriptors>(0)) << standard_descriptors(0) << std::endl;
  for (int i = 0; i < 50; ++i) {
    std::cerr << "noise\n";
    ctx.get(ctx.submit([] {
      std::cerr << "noise of a task\n";
      std::cout << "";
      std::cout.flush();
      return 0;
    }));
  }
  std::cout << "quiet\n";
}
/// Proves that standard descriptors are usable in tasks and in the driver.
const Program standard{"standard_descriptors",
                       {.expect = "33\nquiet\n", .everywhere = true, .except = "full_stderr"},
                       descriptors};

void reads_input(Context& ctx) {
  // The runner gives an empty input. A task must not wait for typed input.
  const int c = ctx.get(ctx.submit([] { return std::getchar(); }));
  std::cout << (c == EOF) << (std::getchar() == EOF) << '\n';
}
/// Proves that an empty standard input ends at once in tasks and in the driver.
const Program input{"standard_input", {.expect = "11\n"}, reads_input};

void prints(Context& ctx) {
  ctx.get(ctx.submit([] {
    std::cout << "from a task" << std::endl;
    return 0;
  }));
  std::cout << "from the driver" << std::endl;
}
/// Proves that tasks write to the program's standard output, in order.
const Program printing{"tasks_print", {.expect = "from a task\nfrom the driver\n"}, prints};

}  // namespace
}  // namespace processes
