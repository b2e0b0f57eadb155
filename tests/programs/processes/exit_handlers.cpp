// Proves that exit handlers and destructors of static objects run when a worker ends in order.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace processes_exit_handlers {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;

/// Returns the text of a file in the program's folder.
std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::ofstream& log_of_tasks() {
  static std::ofstream file("tasks", std::ios::app);
  return file;
}
std::ofstream g_log_of_actors;

int writes(int x) {
  log_of_tasks() << "task " << x << '\n';
  return x;
}
int registers() {
  return std::atexit([] { std::ofstream("handlers", std::ios::app) << "handler\n"; });
}
struct Writer {
  ~Writer() { g_log_of_actors << "destroyed\n"; }
  int write(int x) {
    if (!g_log_of_actors.is_open()) g_log_of_actors.open("actors", std::ios::app);
    g_log_of_actors << "call " << x << '\n';
    return x;
  }
};

/// Proves it for a static stream of a function, a global one, and std::atexit in a task.
const Program handlers_run{"exit_handlers_run",
                           {.expect = "task 1\nhandler\ncall 2\ndestroyed\n", .plain_only = true},
                           [](int& argc, char** argv) {
                             const int code = troupe::run(argc, argv, [](Context& ctx) {
                               (void)ctx.get(ctx.submit<writes>(1));
                               (void)ctx.get(ctx.submit<registers>());
                               auto actor = ctx.spawn<Writer>();
                               (void)ctx.get(actor.call<&Writer::write>(2));
                             });
                             std::cout << text_of("tasks") << text_of("handlers")
                                       << text_of("actors");
                             return code;
                           }};

int hangs_at_the_end() {
  return std::atexit([] { std::this_thread::sleep_for(1h); });
}
/// Proves that a worker whose exit handler does not end is killed, and the session ends in time.
const Program a_handler_hangs{
    "an_exit_handler_hangs", {.expect = "0\n0\n", .seconds = 8}, [](int& argc, char** argv) {
      const auto begun = std::chrono::steady_clock::now();
      const int code = troupe::run(argc, argv, [](Context& ctx) {
        std::cout << ctx.get(ctx.submit<hangs_at_the_end>()) << '\n';
      });
      std::cout << (std::chrono::steady_clock::now() - begun > 7s) << '\n';
      return code;
    }};

int runs_on(int) {
  for (;;) std::this_thread::sleep_for(1s);
}
int leaves_a_thread() {
  std::thread([] {
    for (;;) std::this_thread::sleep_for(1s);
  }).detach();
  return 0;
}
/// Proves that a session does not wait for a task that runs on, nor for a thread that a task left.
const Program nobody_waits_for_a_task{
    "nobody_waits_for_a_task_at_the_end",
    {.expect = "0\n0\n", .seconds = 6},
    [](int& argc, char** argv) {
      std::chrono::steady_clock::time_point over;
      static std::chrono::steady_clock::time_point* ended = &over;
      const int code = troupe::run(argc, argv, [](Context& ctx) {
        const auto kept = ctx.submit<runs_on>(1);
        std::cout << ctx.get(ctx.submit<leaves_a_thread>()) << '\n';
        *ended = std::chrono::steady_clock::now();
      });
      std::cout << (std::chrono::steady_clock::now() - over > 2s) << '\n';
      return code;
    }};

}  // namespace
}  // namespace processes_exit_handlers
