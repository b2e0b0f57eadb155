// Proves that what tasks and actors print is written once, however their processes end.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace processes_output {
namespace {

using programs::Program;
using troupe::Context;

int prints(int x) {
  std::printf("task %d\n", x);
  return x;
}
int prints_to_cout(int x) {
  std::cout << "cout " << x << '\n';
  return x;
}
/// The line is not ended.
int prints_a_part(int x) {
  std::printf("part %d", x);
  return x;
}

void print_in_tasks(Context& ctx) {
  (void)ctx.get(ctx.submit<prints>(1));
  (void)ctx.get(ctx.submit<prints_to_cout>(2));
  (void)ctx.get(ctx.submit<prints_a_part>(3));
}
/// Proves that lines of tasks, and the rest of a line, are written where standard output is a pipe.
const Program a_task_prints{
    "a_task_prints", {.expect = "task 1\ncout 2\npart 3", .plain_only = true}, print_in_tasks};

/// Proves the same where standard output is a file.
const Program a_task_prints_to_a_file{"a_task_prints_to_a_file",
                                      {.expect = "task 1\ncout 2\npart 3", .plain_only = true},
                                      [](int& argc, char** argv) {
                                        std::vector<char*> arguments(argv, argv + argc);
                                        std::string name = "a_task_prints";
                                        arguments.insert(arguments.begin() + 1, name.data());
                                        arguments.push_back(nullptr);
                                        const pid_t child = ::fork();
                                        if (child == 0) {
                                          const int file =
                                              ::open("out", O_CREAT | O_WRONLY | O_TRUNC, 0600);
                                          ::dup2(file, STDOUT_FILENO);
                                          ::execv("/proc/self/exe", arguments.data());
                                          ::_exit(126);
                                        }
                                        int status = 1;
                                        if (::waitpid(child, &status, 0) != child || status != 0)
                                          return 3;
                                        std::cout << std::ifstream("out").rdbuf();
                                        return 0;
                                      }};

int prints_then(std::string how) {
  std::printf("before %s\n", how.c_str());
  if (how == "abort") std::abort();
  if (how == "exit") std::exit(3);
  if (how == "_exit") ::_exit(3);
  if (how == "signal") ::raise(SIGSEGV);
  if (how == "kill") ::raise(SIGKILL);
  throw std::runtime_error(how);
}
/// Proves that a line which a task has ended is not lost when its worker ends in any other way.
const Program prints_before_its_end{
    "a_task_prints_before_its_end",
    {.expect = "before abort\nworker_died\nbefore exit\nworker_died\nbefore _exit\nworker_died\n"
               "before signal\nworker_died\nbefore kill\nworker_died\nbefore throw\ntask_failed\n",
     .seconds = 20,
     .plain_only = true},
    [](Context& ctx) {
      for (const char* how : {"abort", "exit", "_exit", "signal", "kill", "throw"}) {
        try {
          ctx.get(ctx.with({.max_retries = 0}).submit<prints_then>(std::string(how)));
        } catch (const troupe::Error& error) {
          std::cout << troupe::name_of(error.code()) << std::endl;
        }
      }
    }};

class Printing {
 public:
  Printing() { std::printf("made\n"); }
  ~Printing() { std::printf("destroyed"); }
  Printing(const Printing&) = delete;
  int call(int x) {
    std::printf("call %d\n", x);
    return x;
  }
};
/// Proves the same for an actor, whose destructor prints a part of a line.
const Program an_actor_prints{
    "an_actor_prints", {.expect = "made\ncall 1\ndestroyed", .plain_only = true}, [](Context& ctx) {
      auto actor = ctx.spawn<Printing>();
      (void)ctx.get(actor.call<&Printing::call>(1));
    }};

/// Proves that lines printed before troupe::run appear once, however many workers start, and
/// before the lines of tasks.
const Program printed_before_run{
    "printed_before_run",
    {.expect = "printf\ncout\nended\ntask 1\ntask 2\ntask 3\nbody\nafter\n", .plain_only = true},
    [](int& argc, char** argv) {
      std::printf("printf\n");
      std::cout << "cout\n" << std::flush;
      std::clog << "clog\n";
      std::cout << "ended" << std::endl;
      const int code = troupe::run(argc, argv, [](Context& ctx) {
        for (int x = 1; x <= 3; ++x) (void)ctx.get(ctx.with({.isolated = true}).submit<prints>(x));
        std::cout << "body\n";
      });
      std::cout << "after\n";
      return code;
    }};

int prints_many(int x) {
  std::cout << "own " << x << '\n';
  return x;
}
/// Proves the same for a program whose std::cout has a buffer of its own.
const Program printed_with_an_own_buffer{"printed_before_run_with_an_own_buffer",
                                         {.expect = "early\nown 1\nown 2\n", .plain_only = true},
                                         [](int& argc, char** argv) {
                                           std::streambuf* remembering = std::cout.rdbuf();
                                           std::ios_base::sync_with_stdio(false);
                                           std::cout << "early\n";
                                           std::clog << "clog\n";
                                           std::cout.flush();
                                           const int code =
                                               troupe::run(argc, argv, [](Context& ctx) {
                                                 (void)ctx.get(ctx.submit<prints_many>(1));
                                                 (void)ctx.get(ctx.submit<prints_many>(2));
                                               });
                                           std::cout.flush();
                                           std::cout.rdbuf(remembering);
                                           return code;
                                         }};

bool is_line_buffered() {
  return ::__flbf(stdout) != 0;
}
class Buffers {
 public:
  bool lines() { return is_line_buffered(); }
  bool choose() {
    std::printf("a\n");
    if (std::setvbuf(stdout, buffer_, _IOFBF, sizeof buffer_) != 0) return false;
    std::printf("b\n");
    return holds_b();
  }
  bool holds_b() { return ::__fpending(stdout) == 2; }

 private:
  static inline char buffer_[1 << 16];
};
/// Proves that a worker's standard output is line-buffered, that its code may choose another
/// buffer, and that the content of that one is written at the worker's end.
const Program chooses_its_buffer{
    "an_actor_chooses_its_buffer", {.expect = "a\n111\nb\n", .plain_only = true}, [](Context& ctx) {
      auto actor = ctx.spawn<Buffers>();
      const bool lines = ctx.get(actor.call<&Buffers::lines>());
      const bool chosen = ctx.get(actor.call<&Buffers::choose>());
      const bool kept = ctx.get(actor.call<&Buffers::holds_b>());
      std::cout << lines << chosen << kept << std::endl;
    }};

/// Proves that a buffer which the program chose before troupe::run is kept in workers.
const Program chose_its_buffer{"a_buffer_chosen_before_run",
                               {.expect = "0\ntask 1\n", .plain_only = true},
                               [](int& argc, char** argv) {
                                 static char buffer[1 << 16];
                                 std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
                                 return troupe::run(argc, argv, [](Context& ctx) {
                                   std::cout << ctx.get(ctx.submit<is_line_buffered>())
                                             << std::endl;
                                   (void)ctx.get(ctx.submit<prints>(1));
                                 });
                               }};

}  // namespace
}  // namespace processes_output
