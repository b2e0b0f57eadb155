// Proves that a program may fork: the session stays the parent's.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

namespace processes_forks {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

constexpr unsigned kSeconds = 8;  // until a child that hangs is ended

int after_a_while(int x) {
  std::this_thread::sleep_for(300ms);
  return x + 1;
}
std::vector<long> many(int n) {
  return std::vector<long>(static_cast<std::size_t>(n), 1);
}
struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
};

/// Forks. Returns 0 in the child, which an alarm ends if it hangs.
pid_t fork_bounded() {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) ::alarm(kSeconds);
  return child;
}
std::string end_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return "no child";
  return WIFEXITED(status) ? "code " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

/// Proves that a forked child may leave the body, with destructors and exit handlers, without
/// harm to the parent's session.
const Program a_child_leaves_the_body{
    "a_child_leaves_the_body", {.expect = "code 7\n42\n100000\n2\n"}, [](Context& ctx) -> int {
      const Ref<int> under_way = ctx.submit<after_a_while>(41);
      const auto large = ctx.put(many(100'000));
      const auto view = ctx.view(large);
      auto actor = ctx.spawn<Counter>();
      (void)ctx.get(actor.call<&Counter::add>(1));
      const pid_t child = fork_bounded();
      if (child == 0) return 7;
      std::cout << end_of(child) << '\n' << ctx.get(under_way) << '\n';
      std::cout << ctx.get(large).size() << '\n';
      std::cout << ctx.get(actor.call<&Counter::add>(1)) << '\n';
      return 0;
    }};

template <class Use>
bool is_told(const Use& use) {
  try {
    use();
  } catch (const troupe::InvalidArgument& error) {
    return std::string(error.what()).find("forked") != std::string::npos &&
           error.outcome() == troupe::Outcome::not_executed;
  } catch (...) {
  }
  return false;
}

/// Proves that every verb in a forked child is refused with an error that says why.
const Program a_child_is_told{
    "a_child_is_told", {.expect = "code 99\n42\n"}, [](Context& ctx) -> int {
      const Ref<int> under_way = ctx.submit<after_a_while>(41);
      const Ref<int> ready = ctx.put(1);
      const auto large = ctx.put(many(100'000));
      auto actor = ctx.spawn<Counter>();
      const pid_t child = fork_bounded();
      if (child != 0) {
        std::cout << end_of(child) << '\n' << ctx.get(under_way) << '\n';
        return 0;
      }
      int failed = 0;
      const auto expect = [&failed](bool told) { failed += told ? 0 : 1; };
      expect(is_told([&] { (void)ctx.get(under_way); }));
      expect(is_told([&] { (void)ctx.get(ready); }));
      expect(is_told([&] { (void)ctx.view(large); }));
      expect(is_told([&] { (void)ctx.try_get(ready, 1s).value(); }));
      expect(is_told([&] { (void)ctx.wait(std::vector{under_way}); }));
      expect(is_told([&] { (void)ctx.put(1); }));
      expect(is_told([&] { (void)ctx.put(many(100'000)); }));
      expect(is_told([&] { (void)ctx.create<long>(100'000); }));
      expect(is_told([&] { (void)ctx.submit<after_a_while>(1); }));
      expect(is_told([&] { (void)ctx.spawn<Counter>(); }));
      expect(is_told([&] { (void)actor.call<&Counter::add>(1); }));
      expect(is_told([&] { (void)ctx.find<Counter>("nobody"); }));
      expect(is_told([&] { ctx.kill(actor); }));
      expect(is_told([&] { troupe::Session another; }));
      std::exit(failed == 0 ? 99 : failed);  // exit handlers, too
    }};

int forks_inside(int how) {
  const pid_t child = ::fork();
  if (child == 0 && how == 1) throw 42;
  if (child == 0) return 1;
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return 100 + WEXITSTATUS(status);
}

/// Proves that a child that returns or throws out of a task ends there, and that its worker goes
/// on once.
const Program a_task_forks{"a_task_forks", {.expect = "100 101 100\n"}, [](Context& ctx) {
                             std::cout << ctx.get(ctx.submit<forks_inside>(0)) << ' '
                                       << ctx.get(ctx.submit<forks_inside>(1)) << ' '
                                       << ctx.get(ctx.submit<forks_inside>(0)) << '\n';
                           }};

/// Proves that a forked child can have a session of its own after the parent's has ended.
const Program a_session_after_another{
    "a_session_after_another", {.expect = "42 code 42\n"}, [](int& argc, char** argv) {
      troupe::enter(argc, argv);
      {
        troupe::Session first;
        Context ctx = first.context();
        std::cout << ctx.get(ctx.submit<after_a_while>(41)) << ' ';
      }
      const pid_t child = fork_bounded();
      if (child == 0) {
        troupe::Session own;
        Context ctx = own.context();
        ::_exit(ctx.get(ctx.submit<after_a_while>(41)));
      }
      std::cout << end_of(child) << '\n';
      return 0;
    }};

int agent_of_worker() {
  std::ifstream stat("/proc/" + std::to_string(::getppid()) + "/stat");  // of the zygote
  std::string pid, name, state;
  int agent = 0;
  stat >> pid >> name >> state >> agent;
  return agent;
}

/// Waits up to 5 s for the end of the process. Returns whether it has ended.
bool ends(int pid) {
  const int life = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (life < 0) return true;
  pollfd entry{life, POLLIN, 0};
  const bool ended = ::poll(&entry, 1, 5000) == 1;
  ::close(life);
  return ended;
}

/// Runs a driver with a forked helper that never uses troupe and lives on. The session must end
/// with the driver.
int driver_with_helper(bool killed) {
  int report[2], helper_lives[2];
  if (::pipe(report) != 0 || ::pipe(helper_lives) != 0) return 3;
  const pid_t driver = fork_bounded();
  if (driver == 0) {
    {
      troupe::Session session;
      Context ctx = session.context();
      const int agent = ctx.get(ctx.submit<agent_of_worker>());
      if (::fork() == 0) {  // the helper waits until the pipe closes
        ::close(helper_lives[1]);
        char c = 0;
        (void)!::read(helper_lives[0], &c, 1);
        ::_exit(0);
      }
      (void)!::write(report[1], &agent, sizeof agent);
      if (killed) ::kill(::getpid(), SIGKILL);
    }
    ::_exit(0);
  }
  ::close(helper_lives[0]);
  const auto begun = std::chrono::steady_clock::now();
  std::cout << end_of(driver) << ' ';
  if (!killed && std::chrono::steady_clock::now() - begun > 4s) std::cout << "late ";
  int agent = 0;
  (void)!::read(report[0], &agent, sizeof agent);
  std::cout << (agent > 1 && ends(agent) ? "gone" : "left") << '\n';
  ::close(helper_lives[1]);
  return 0;
}

/// Proves that the session of a killed driver ends although a forked helper lives.
const Program killed_beside_a_helper{
    "killed_beside_a_helper", {.expect = "signal 9 gone\n"}, [](int& argc, char** argv) {
      troupe::enter(argc, argv);
      return driver_with_helper(true);
    }};
/// The same for a driver that ends normally.
const Program ends_beside_a_helper{
    "ends_beside_a_helper", {.expect = "code 0 gone\n"}, [](int& argc, char** argv) {
      troupe::enter(argc, argv);
      return driver_with_helper(false);
    }};

int g_answer = -1;  // where the daemon writes its answer

/// Proves that a program may become a daemon before troupe::run. The zygote, which runs the same
/// program, becomes one too.
const Program a_daemon{"a_daemon", {.expect = "42\n"}, [](int& argc, char** argv) {
                         constexpr const char* kInside = "PROGRAMS_A_DAEMON";
                         if (std::getenv(kInside) == nullptr) {
                           ::setenv(kInside, "1", 1);
                           int answer[2];
                           if (::pipe(answer) != 0) return 3;
                           if (fork_bounded() != 0) {
                             ::close(answer[1]);
                             int value = 0;
                             pollfd entry{answer[0], POLLIN, 0};
                             if (::poll(&entry, 1, 1000 * static_cast<int>(kSeconds)) != 1 ||
                                 ::read(answer[0], &value, sizeof value) != sizeof value)
                               value = -1;
                             std::cout << value << '\n';
                             while (::wait(nullptr) > 0) continue;
                             return 0;
                           }
                           g_answer = answer[1];
                         }
                         if (::daemon(1, 1) != 0) return 4;
                         return troupe::run(argc, argv, [](Context& ctx) {
                           const int value = ctx.get(ctx.submit<after_a_while>(41));
                           (void)!::write(g_answer, &value, sizeof value);
                         });
                       }};

}  // namespace
}  // namespace processes_forks
