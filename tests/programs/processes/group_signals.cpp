// Proves that signals to the whole process group are the driver's business: nothing of the runtime
// ends by them, and neither do workers.
#include "tests/programs/program.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>

extern char** environ;

namespace group_signals {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;

struct Model {
  int steps = 0;
  int train(int n) { return steps += n; }
  int state() const { return steps; }
};

std::atomic<int> g_asked{0};
void ask(int number) {
  g_asked = number;
}

/// Trains, sends the signal to every process of the group, and saves.
void save_on(Context& ctx, int number) {
  auto model = ctx.spawn<Model>();
  ctx.get(model.call<&Model::train>(3));
  ::kill(0, number);
  std::cout << (g_asked == number ? "asked to end" : "not asked") << std::endl;
  std::cout << "saved " << ctx.get(model.call<&Model::state>()) << " steps, then "
            << ctx.get(ctx.submit([] { return 5; })) << '\n';
}

template <int... kNumbers>
int handled_before_run(int& argc, char** argv) {
  for (const int number : {kNumbers...}) std::signal(number, ask);
  return troupe::run(argc, argv, [](Context& ctx) {
    for (const int number : {kNumbers...}) save_on(ctx, number);
  });
}
#define SAVED "asked to end\nsaved 3 steps, then 5\n"
/// Proves that a program which handles SIGTERM can still get and save an actor's state.
const Program terminated{"a_driver_saves_after_sigterm",
                         {.expect = SAVED, .plain_only = true},
                         handled_before_run<SIGTERM>};
/// The same for the other signals of batch systems and terminals.
const Program others{"a_driver_saves_after_other_signals_to_its_group",
                     {.expect = SAVED SAVED SAVED SAVED SAVED, .seconds = 15, .plain_only = true},
                     handled_before_run<SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT>};

/// The handler stands in the driver alone, since workers do not run the body.
void handled_in_the_body(Context& ctx) {
  for (const int number : {SIGINT, SIGTERM}) {
    std::signal(number, ask);
    save_on(ctx, number);
    std::signal(number, SIG_DFL);
  }
}
const Program in_the_body{"actors_outlive_signals_that_the_body_handles",
                          {.expect = SAVED SAVED, .plain_only = true},
                          handled_in_the_body};

struct Board {
  int pid = 0;
  void started(int p) { pid = p; }
  int look() const { return pid; }
};
/// Starts a command that runs until a signal ends it, and returns the signal.
int command(Context& ctx, troupe::Actor<Board> board) {
  std::string name = "sleep", time = "30";
  char* arguments[] = {name.data(), time.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, "sleep", nullptr, nullptr, arguments, environ) != 0) return -1;
  ctx.get(board.call<&Board::started>(static_cast<int>(child)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
void interrupt_command(Context& ctx) {
  std::signal(SIGINT, ask);
  auto board = ctx.spawn<Board>();
  const Ref<int> ended = ctx.submit<command>(board);
  while (ctx.get(board.call<&Board::look>()) == 0) {
  }
  ::kill(0, SIGINT);
  std::cout << (ctx.get(ended) == SIGINT ? "the command ended by Ctrl-C" : "it did not") << '\n';
}
/// Proves that Ctrl-C ends a command that a task has started.
const Program commands{"ctrl_c_ends_a_command_of_a_task",
                       {.expect = "the command ended by Ctrl-C\n", .plain_only = true},
                       interrupt_command};

}  // namespace
}  // namespace group_signals
