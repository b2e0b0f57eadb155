/// Proves what happens with more processes than fit, with low limits, and with children of
/// workers.
#include "tests/programs/program.hpp"

#include <grp.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>

namespace processes_limits {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::Context;
using troupe::Ref;

struct Worker {
  int pid() { return ::getpid(); }
};

bool is_running(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return static_cast<bool>(stat >> number >> name >> state) && state != "Z" && state != "X";
}

bool ends_within(int pid, std::chrono::seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (is_running(pid) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(10ms);
  return !is_running(pid);
}

/// Proves that calls to 600 actors that die at once all end.
const Program many_die_at_once{"many_die_at_once",
                               {.expect = "600\n", .seconds = 60, .nodes = 1, .plain_only = true},
                               [](Context& ctx) {
                                 std::vector<Actor<Worker>> actors;
                                 std::vector<Ref<int>> calls;
                                 for (int i = 0; i < 600; ++i)
                                   actors.push_back(ctx.spawn<Worker>());
                                 for (auto& actor : actors)
                                   calls.push_back(actor.call<&Worker::pid>());
                                 for (const Ref<int>& call : calls) ::kill(ctx.get(call), SIGKILL);
                                 calls.clear();
                                 for (auto& actor : actors)
                                   calls.push_back(actor.call<&Worker::pid>());
                                 int ended = 0;
                                 for (const Ref<int>& call : calls) try {
                                     (void)ctx.get(call, 30s);
                                     ++ended;  // answered before the signal arrived
                                   } catch (const troupe::TimedOut&) {
                                   } catch (const troupe::Error&) {
                                     ++ended;
                                   }
                                 std::cout << ended << '\n';
                               }};

/// Spawns more actors than fit. The actors without room are refused with the name of the limit,
/// and the others live.
void spawn_beyond(Context& ctx, int wanted, std::initializer_list<std::string_view> limits) {
  std::vector<Actor<Worker>> actors;
  std::vector<Ref<int>> calls;
  for (int i = 0; i < wanted; ++i) actors.push_back(ctx.spawn<Worker>());
  for (auto& actor : actors) calls.push_back(actor.call<&Worker::pid>());
  int answered = 0, refused = 0, named = 0;
  std::size_t alive = actors.size();
  for (std::size_t i = 0; i < calls.size(); ++i) try {
      (void)ctx.get(calls[i], 50s);
      ++answered;
      alive = std::min(alive, i);
    } catch (const troupe::Error& error) {
      ++refused;
      for (const std::string_view limit : limits)
        if (std::string_view(error.what()).find(limit) != std::string_view::npos) {
          ++named;
          break;
        }
    }
  std::cout << (answered > 0 && refused > 0 && refused == named ? "refused by name\n"
                                                                : "not refused\n");
  if (alive < actors.size() && ctx.get(actors[alive].call<&Worker::pid>(), 10s) > 0)
    std::cout << "first answers\n";
}

/// Proves that actors beyond a node's number of processes are refused by name.
const Program more_actors_than_fit{
    "more_actors_than_fit",
    {.expect = "refused by name\nfirst answers\n", .seconds = 60, .nodes = 1, .plain_only = true},
    [](Context& ctx) { spawn_beyond(ctx, 1100, {"processes", "ulimit"}); }};

bool limit(__rlimit_resource which, rlim_t to) {
  rlimit limits{};
  if (::getrlimit(which, &limits) != 0) return false;
  limits = {std::min(to, limits.rlim_max), std::min(to, limits.rlim_max)};
  return ::setrlimit(which, &limits) == 0;
}

/// Becomes another user, without other processes and without the privileges of root, for whom the
/// limit does not hold.
bool be_somebody_else() {
  if (::geteuid() != 0) return true;
  const auto user = static_cast<uid_t>(700'000 + ::getpid());
  return ::setgroups(0, nullptr) == 0 && ::setgid(user) == 0 && ::setuid(user) == 0;
}

/// Proves that actors beyond `ulimit -u` are refused by name. Each actor has two threads, and
/// agent and control have some.
const Program more_actors_than_processes{
    "more_actors_than_processes",
    {.expect = "refused by name\nfirst answers\n", .seconds = 60, .plain_only = true},
    [](int& argc, char** argv) {
      if (!be_somebody_else() || !limit(RLIMIT_NPROC, 120)) return 3;
      return troupe::run(argc, argv, [](Context& ctx) { spawn_beyond(ctx, 80, {"ulimit -u"}); });
    }};

/// Proves that a cluster whose processes get no threads names the limit.
const Program no_threads_for_the_nodes{
    "no_threads_for_the_nodes",
    {.exit_code = 1, .says = "ulimit -u, which is 14", .nodes = 3, .plain_only = true},
    [](int& argc, char** argv) {
      if (!be_somebody_else() || !limit(RLIMIT_NPROC, 14)) return 3;
      return troupe::run(argc, argv, [](Context&) { std::cout << "ran\n"; });
    }};

/// Proves that actors beyond `ulimit -n` are refused by name.
const Program more_actors_than_descriptors{
    "more_actors_than_descriptors",
    {.expect = "refused by name\nfirst answers\n", .seconds = 60, .nodes = 1, .plain_only = true},
    [](int& argc, char** argv) {
      if (!limit(RLIMIT_NOFILE, 256)) return 3;
      return troupe::run(argc, argv, [](Context& ctx) { spawn_beyond(ctx, 60, {"ulimit -n"}); });
    }};

/// Proves that an actor without room is refused soon, before the others have been given up.
const Program refused_soon{
    "an_actor_without_room_is_refused_soon",
    {.expect = "Infeasible\n", .seconds = 30, .nodes = 1, .plain_only = true},
    [](int& argc, char** argv) {
      if (!limit(RLIMIT_NOFILE, 256)) return 3;
      return troupe::run(argc, argv, [](Context& ctx) {
        std::vector<Actor<Worker>> actors;
        for (int i = 0; i < 24; ++i) actors.push_back(ctx.spawn<Worker>());
        for (auto& actor : actors) (void)ctx.get(actor.call<&Worker::pid>());
        for (int i = 24; i < 33; ++i) actors.push_back(ctx.spawn<Worker>());
        try {
          std::cout << ctx.get(actors.back().call<&Worker::pid>(), 4s) << '\n';
        } catch (const troupe::TimedOut&) {
          std::cout << "TimedOut\n";
        } catch (const troupe::Infeasible& error) {
          const std::string_view why = error.what();
          const bool says = why.find("room for no more actors") != why.npos &&
                            why.find("let go of actors") != why.npos;
          std::cout << (says ? "Infeasible" : why) << '\n';
        }
      });
    }};

/// Proves that actors beyond the processes of one node start on others, and that a node full of
/// actors still runs tasks.
const Program actors_spill{
    "actors_spill_to_nodes_with_room",
    {.expect = "40 answer\n42\n42\n42\n", .seconds = 30, .nodes = 3, .plain_only = true},
    [](int& argc, char** argv) {
      if (!limit(RLIMIT_NOFILE, 256)) return 3;
      return troupe::run(argc, argv, [](Context& ctx) {
        std::vector<Actor<Worker>> actors;
        std::vector<Ref<int>> calls;
        for (int i = 0; i < 40; ++i) actors.push_back(ctx.spawn<Worker>());
        for (auto& actor : actors) calls.push_back(actor.call<&Worker::pid>());
        for (const Ref<int>& call : calls) (void)ctx.get(call, 20s);
        std::cout << calls.size() << " answer\n";
        for (const auto& node : ctx.cluster().nodes) {
          const troupe::Options there{.placement = troupe::Placement::on(node.id)};
          std::cout << ctx.get(ctx.with(there).submit([] { return 42; }), 5s) << '\n';
        }
      });
    }};

/// Proves that no exit code of a task has a special meaning.
const Program a_code_of_its_own{
    "a_task_exits_with_75", {.expect = "exited with code 75\n"}, [](Context& ctx) {
      try {
        (void)ctx.get(
            ctx.with(troupe::TaskOptions{.max_retries = 0}).submit([]() -> int { ::_exit(75); }));
      } catch (const troupe::WorkerDied& error) {
        const std::string_view text = error.what();
        const auto at = text.find("exited with code 75");
        std::cout << (at != text.npos ? text.substr(at, 19) : text) << '\n';
      }
    }};

/// Proves that `ulimit -f`, which also bounds files in memory, is named in an error and that no
/// signal ends the program.
const Program files_are_small{"files_are_small",
                              {.exit_code = 1, .says = "ulimit -f", .plain_only = true},
                              [](int& argc, char** argv) {
                                if (!limit(RLIMIT_FSIZE, 1U << 16)) return 3;
                                return troupe::run(argc, argv,
                                                   [](Context&) { std::cout << "ran\n"; });
                              }};

int run_in_shell(const std::string& command) {
  return std::system(command.c_str());
}

/// Proves that SIGPIPE ends a writer in a task's pipeline. Its exit status is not compared, since
/// a process that ignores SIGCHLD cannot know it.
const Program a_pipe_in_a_task{
    "a_pipe_in_a_task", {.expect = "ended\n"}, [](Context& ctx) {
      (void)ctx.get(ctx.submit<run_in_shell>("yes 2>/dev/null | head -1 >/dev/null"), 8s);
      std::cout << "ended\n";
    }};

/// Proves that deaths of workers are noticed although the program ignores SIGCHLD.
const Program children_are_ignored{
    "children_are_ignored", {.expect = "died\n", .seconds = 20}, [](int& argc, char** argv) {
      std::signal(SIGCHLD, SIG_IGN);
      return troupe::run(argc, argv, [](Context& ctx) {
        auto actor = ctx.spawn<Worker>();
        const int pid = ctx.get(actor.call<&Worker::pid>());
        ::kill(pid, SIGKILL);
        ends_within(pid, 5s);
        try {
          for (int i = 0; i < 100; ++i) (void)ctx.get(actor.call<&Worker::pid>(), 5s);
          std::cout << "lives\n";
        } catch (const troupe::ActorDied&) {
          std::cout << "died\n";
        }
      });
    }};

struct Starter {
  /// Leaves a child in a session of its own.
  int start() {
    const std::string file = "/tmp/programs_" + std::to_string(::getpid());
    if (std::system(("setsid sleep 1000 >/dev/null 2>&1 & echo $! > " + file).c_str()) != 0)
      return 0;
    int pid = 0;
    std::ifstream(file) >> pid;
    ::unlink(file.c_str());
    return pid;
  }
  int pid() { return ::getpid(); }
};

/// Proves that the children of a killed worker end, even in a session of their own.
const Program what_a_worker_started_ends_with_it{
    "what_a_worker_started_ends_with_it",
    {.expect = "runs\nended\n", .seconds = 20},
    [](Context& ctx) {
      auto starter = ctx.spawn<Starter>();
      const int child = ctx.get(starter.call<&Starter::start>());
      std::cout << (child > 0 && is_running(child) ? "runs\n" : "does not run\n");
      ::kill(ctx.get(starter.call<&Starter::pid>()), SIGKILL);
      std::cout << (ends_within(child, 5s) ? "ended\n" : "is left\n");
    }};

}  // namespace
}  // namespace processes_limits
