// Proves that tells which fail, and actors that die often, cost lines of the log and nothing else.
#include "tests/programs/program.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace actors_tells {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::ActorOptions;
using troupe::Context;

int twice(int x) {
  return 2 * x;
}

struct Fragile {
  int fine() { return 1; }
  void throws() { throw std::runtime_error("on purpose"); }
  void dies() { ::_exit(4); }
  void never_ends() {
    for (;;) std::this_thread::sleep_for(1h);
  }
};

void fail_and_go_on(Context& ctx) {
  auto one = ctx.with(ActorOptions{.max_restarts = -1}).spawn<Fragile>();
  std::cout << ctx.get(one.call<&Fragile::fine>()) << std::endl;
  one.tell<&Fragile::throws>();
  int ended = 0;
  for (int i = 0; i < 5; ++i) try {
      ctx.get(one.call<&Fragile::dies>());
    } catch (const troupe::ActorDied&) {
      ++ended;
    }
  std::cout << ended << ' ' << ctx.get(one.call<&Fragile::fine>()) << ' '
            << ctx.get(ctx.submit<twice>(21)) << ' ' << (ctx.cluster().nodes.empty() ? 0 : 1)
            << '\n';
}
/// Proves that driver, agent and control go on after lines of their logs. `full_stderr` proves that
/// they wait for no reader.
const Program goes_on{"a_failed_tell_and_an_actor_that_dies_often",
                      {.expect = "1\n5 1 42 1\n", .seconds = 30, .everywhere = true},
                      fail_and_go_on};

/// Adds up the tells that the lines of the log speak of.
class SaidTells {
 public:
  explicit SaidTells(const std::string& file) {
    std::ifstream log(file);
    for (std::string line; std::getline(log, line);) {
      if (line.find("a tell to ") == std::string::npos) continue;
      ++lines;
      const auto at = line.rfind("(the first of ");
      tells += at == std::string::npos ? 1 : std::strtol(line.c_str() + at + 14, nullptr, 10);
    }
  }
  int lines = 0;
  long tells = 0;
};

/// Runs the body with standard error in a file, then prints how many tells failed, and whether a
/// few lines say it.
int count_lines(int& argc, char** argv, void (*body)(Context&)) {
  const std::string file = "/tmp/" + std::to_string(::getpid()) + ".tells";
  const int before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
  const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(log, STDERR_FILENO);
  ::close(log);
  const int code = troupe::run(argc, argv, body);
  ::dup2(before, STDERR_FILENO);
  const SaidTells said(file);
  std::remove(file.c_str());
  std::cout << said.tells << (said.lines <= 10 ? " in a few lines\n" : " in many lines\n");
  return code;
}

void kill_one(Context& ctx) {
  auto one = ctx.spawn<Fragile>();
  auto held = one.call<&Fragile::never_ends>();
  for (int i = 0; i < 30'000; ++i) one.tell<&Fragile::throws>();
  ctx.kill(one);
  try {
    ctx.get(held);
  } catch (const troupe::ActorDied&) {
    std::cout << "ActorDied ";
  }
}
/// Proves that the kill of an actor with many queued tells is a line or two of the log, and that
/// they name all tells.
const Program killed{"a_kill_of_an_actor_with_many_tells",
                     {.expect = "ActorDied 30000 in a few lines\n", .seconds = 30},
                     [](int& argc, char** argv) { return count_lines(argc, argv, kill_one); }};

void throw_often(Context& ctx) {
  auto one = ctx.spawn<Fragile>();
  for (int i = 0; i < 5'000; ++i) one.tell<&Fragile::throws>();
  std::cout << ctx.get(one.call<&Fragile::fine>()) << ' ';
}
/// The same for tells whose method throws.
const Program thrown{"many_tells_that_throw",
                     {.expect = "1 5000 in a few lines\n", .seconds = 30},
                     [](int& argc, char** argv) { return count_lines(argc, argv, throw_often); }};

}  // namespace
}  // namespace actors_tells
