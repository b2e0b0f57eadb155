// Proves how actors end: results that are held are still computed, destructors run, and all
// actors end with the program.
#include "tests/programs/program.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace actors_ends {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::Context;

std::string scratch(const char* what) {
  return "/tmp/" + std::to_string(::getpid()) + "." + what;
}
std::string content(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// --- busy when the last handle goes ---

struct Busy {
  int work(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return ms;
  }
  void begin(std::string file, int ms) {
    std::ofstream(file) << "begun";
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  }
  troupe::Task<int> wait_for(troupe::Ref<int> other) { co_return co_await other + 1; }
};

void finish_for_who_waits(Context& ctx) {
  auto one = ctx.spawn<Busy>();
  auto first = one.call<&Busy::work>(1);
  auto result = one.call<&Busy::work>(13'000);
  auto last = one.call<&Busy::work>(2);
  one = {};
  std::cout << ctx.get(first) + ctx.get(result) + ctx.get(last) << '\n';
}
/// Proves that an actor whose handle is gone runs for 13 s, since its results are held.
const Program long_job{"a_result_that_is_held_keeps_a_busy_actor",
                       {.expect = "13003\n", .seconds = 40},
                       finish_for_who_waits};

int slow(int x) {
  std::this_thread::sleep_for(4s);
  return x;
}
void finish_a_coroutine(Context& ctx) {
  auto one = ctx.spawn<Busy>();
  auto result = one.call<&Busy::wait_for>(ctx.submit<slow>(1));
  one = {};
  std::cout << ctx.get(result) << '\n';
}
/// Proves that a held result of a suspended method is computed after the last handle is gone.
const Program coroutine{
    "a_held_result_of_a_coroutine_method", {.expect = "2\n", .seconds = 20}, finish_a_coroutine};

/// Fills all CPUs with busy actors, drops them, and fills all CPUs again.
void free_the_cpus(Context& ctx) {
  const auto cluster = ctx.cluster();
  const double all = cluster.nodes.front().cpus;
  const std::size_t nodes = cluster.nodes.size();
  const std::string file = scratch("busy");
  std::vector<Actor<Busy>> actors;
  for (std::size_t i = 0; i < nodes; ++i) {
    actors.push_back(ctx.with(troupe::ActorOptions{.cpus = all}).spawn<Busy>());
    actors.back().tell<&Busy::begin>(file + std::to_string(i), 600'000);
  }
  for (std::size_t i = 0; i < nodes; ++i)
    for (int n = 0; n < 5000 && content(file + std::to_string(i)).empty(); ++n)
      std::this_thread::sleep_for(2ms);
  actors.clear();
  for (std::size_t i = 0; i < nodes; ++i) {
    actors.push_back(ctx.with(troupe::ActorOptions{.cpus = all}).spawn<Busy>());
    std::cout << ctx.get(actors.back().call<&Busy::work>(1), 30s);
    std::remove((file + std::to_string(i)).c_str());
  }
  std::cout << '\n';
}
/// Proves that busy actors without handles and held results give their CPUs back, on one node.
const Program unwanted_one{
    "a_busy_actor_that_nobody_wants", {.expect = "1\n", .seconds = 40, .nodes = 1}, free_the_cpus};
/// The same on three nodes.
const Program unwanted_three{
    "busy_actors_that_nobody_wants", {.expect = "111\n", .seconds = 40, .nodes = 3}, free_the_cpus};

// --- the end of the program ---

struct Log {
  explicit Log(const std::string& file) : out(file) {}
  ~Log() { out << "end\n"; }
  void line(int i) { out << "line " << i << '\n'; }
  int lines(int n) {
    for (int i = 0; i < n; ++i) line(i);
    return n;
  }
  void know(Actor<Log> actor) { other = actor; }
  int pid() const { return ::getpid(); }
  std::ofstream out;
  Actor<Log> other;
};
struct Teller {
  explicit Teller(Actor<Log> actor) : log(actor) {}
  ~Teller() {
    for (int i = 0; i < 100; ++i) log.tell<&Log::line>(i);
  }
  int get() { return 1; }
  Actor<Log> log;
};

std::string of_lines(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "line " + std::to_string(i) + '\n';
  return text + "end\n";
}

/// Handles that still exist when the program ends.
std::vector<Actor<Log>> g_logs;
std::vector<Actor<Teller>> g_tellers;

/// Runs the program, then prints the files that its actors wrote.
int files_of(int& argc, char** argv, void (*body)(Context&, const std::string& file)) {
  const std::string file = scratch("log");
  const int code = troupe::run(argc, argv, [&](Context& ctx) { body(ctx, file); });
  for (const char* which : {"", "2"}) {
    if (const std::string text = content(file + which); !text.empty())
      std::cout << (text == of_lines(100) ? "whole" : text) << '\n';
    std::remove((file + which).c_str());
  }
  return code;
}

/// Proves that destructors of actors run at the program's end and write their files.
const Program answered{
    "files_of_actors_at_the_end", {.expect = "whole\n"}, [](int& argc, char** argv) {
      return files_of(argc, argv, [](Context& ctx, const std::string& file) {
        g_logs.push_back(ctx.spawn<Log>(file));
        ctx.get(g_logs[0].call<&Log::lines>(100));
      });
    }};

/// Proves that tells which are under way at the program's end are executed.
const Program told{"tells_at_the_end", {.expect = "whole\n"}, [](int& argc, char** argv) {
                     return files_of(argc, argv, [](Context& ctx, const std::string& file) {
                       g_logs.push_back(ctx.spawn<Log>(file));
                       for (int i = 0; i < 100; ++i) g_logs[0].tell<&Log::line>(i);
                     });
                   }};

/// Proves that destructors and tells run when the body ends in an exception.
const Program thrown{"files_of_actors_after_an_error",
                     {.expect = "whole\n", .exit_code = 1, .says = "on purpose"},
                     [](int& argc, char** argv) {
                       return files_of(argc, argv, [](Context& ctx, const std::string& file) {
                         g_logs.push_back(ctx.spawn<Log>(file));
                         for (int i = 0; i < 100; ++i) g_logs[0].tell<&Log::line>(i);
                         throw std::runtime_error("on purpose");
                       });
                     }};

/// Proves that an actor's destructor can tell another actor at the program's end.
const Program destructors_tell{
    "destructors_tell_at_the_end", {.expect = "whole\n"}, [](int& argc, char** argv) {
      return files_of(argc, argv, [](Context& ctx, const std::string& file) {
        g_logs.push_back(ctx.spawn<Log>(file));
        g_tellers.push_back(ctx.spawn<Teller>(g_logs[0]));
        ctx.get(g_tellers[0].call<&Teller::get>());
      });
    }};

/// Proves that actors that hold handles to each other end with the program.
const Program circle{"actors_that_hold_each_other_at_the_end",
                     {.expect = "whole\nwhole\n"},
                     [](int& argc, char** argv) {
                       return files_of(argc, argv, [](Context& ctx, const std::string& file) {
                         auto one = ctx.spawn<Log>(file), two = ctx.spawn<Log>(file + "2");
                         one.tell<&Log::know>(two);
                         two.tell<&Log::know>(one);
                         for (int i = 0; i < 100; ++i) one.tell<&Log::line>(i);
                         for (int i = 0; i < 100; ++i) two.tell<&Log::line>(i);
                       });
                     }};

/// Proves that a killed driver's own cluster ends at once, without destructors of actors.
const Program killed{"files_of_actors_of_a_killed_driver",
                     {.expect = "0\n", .seconds = 20},
                     [](int& argc, char** argv) {
                       troupe::enter(argc, argv);  // workers do not come past it
                       const std::string file = scratch("log"), pids = scratch("pids");
                       const pid_t child = ::fork();
                       if (child == 0) {
                         troupe::Session session;
                         Context ctx = session.context();
                         for (int i = 0; i < 4; ++i) {
                           g_logs.push_back(ctx.spawn<Log>(file + std::to_string(i)));
                           ctx.get(g_logs.back().call<&Log::lines>(100));
                           std::ofstream(pids, std::ios::app)
                               << ctx.get(g_logs.back().call<&Log::pid>()) << ' ';
                         }
                         ::kill(::getpid(), SIGKILL);
                       }
                       int status = 0;
                       ::waitpid(child, &status, 0);
                       std::ifstream list(pids);
                       std::size_t written = 0;
                       int i = 0;
                       for (int pid = 0; list >> pid; ++i) {
                         for (int n = 0; n < 2500 && ::kill(pid, 0) == 0; ++n)
                           std::this_thread::sleep_for(2ms);
                         written += content(file + std::to_string(i)).size();
                         std::remove((file + std::to_string(i)).c_str());
                       }
                       std::remove(pids.c_str());
                       std::cout << (i == 4 ? std::to_string(written) : "no actors") << '\n';
                       return 0;
                     }};

struct Endless {
  ~Endless() {
    for (;;) ::pause();
  }
  int get() { return 1; }
};
void leave_the_endless(Context& ctx) {
  static std::vector<Actor<Endless>> held;
  for (int i = 0; i < 3; ++i) held.push_back(ctx.spawn<Endless>());
  for (auto& one : held) std::cout << ctx.get(one.call<&Endless::get>());
  std::cout << '\n';
}
/// Proves that a destructor which never returns does not keep the program.
const Program endless{"destructors_without_end", {.expect = "111\n"}, leave_the_endless};

}  // namespace
}  // namespace actors_ends
