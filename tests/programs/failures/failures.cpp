// Proves how tasks and programs fail: exceptions, dying workers, requests that cannot be met, and
// exit codes.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace failures {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Outcome;
using troupe::Ref;

/// A file whose size is the number of runs, in whichever process they happen.
std::string own_file() {
  return "/tmp/" + std::to_string(::getpid()) + ".runs";
}
int another_run(const std::string& file) {
  std::ofstream(file, std::ios::app) << 'x';
  return static_cast<int>(std::ifstream(file, std::ios::ate).tellg());
}
template <class F>
void told(F&& call) {
  try {
    call();
    std::cout << "nothing";
  } catch (const troupe::Error& e) {
    std::cout << troupe::name_of(e.code()) << ' ' << troupe::name_of(e.outcome());
  }
}

// --- exceptions of a task ---

struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
int fails(int) {
  throw NetError("no route");
}
int same(int x) {
  return x;
}
int calls_one_that_fails(Context& ctx, int x) {
  return ctx.get(ctx.submit<fails>(x));
}
void exceptions(Context& ctx) {
  const Ref<int> bad = ctx.submit<fails>(1);
  try {
    ctx.get(bad);
  } catch (const troupe::TaskFailed& e) {
    std::cout << e.is<NetError>() << e.is<std::runtime_error>()
              << (e.message().find("no route") != std::string::npos) << (e.where().pid > 0)
              << (e.outcome() == Outcome::executed) << '\n';
  }
  told([&] { ctx.get(bad); });  // the same error, again
  std::cout << '\n';
  told([&] { ctx.get(ctx.submit<same>(bad)); });  // a task that depends on it never runs
  std::cout << '\n';
  try {
    ctx.get(ctx.submit<calls_one_that_fails>(1));
  } catch (const troupe::TaskFailed& e) {
    std::cout << (std::string(e.what()).find("no route") != std::string::npos ||
                  (e.cause() && e.cause()->message().find("no route") != std::string::npos))
              << (e.outcome() == Outcome::executed) << '\n';
  }
  std::cout << ctx.try_get(bad).ok() << ctx.wait({bad}).ready.size() << '\n';
}
/// Proves the error of a task that throws, of tasks that depend on it, and of tasks that await
/// it.
const Program exception{
    "a_task_throws",
    {.expect = "10111\ntask_failed executed\ntask_failed not_executed\n11\n01\n"},
    exceptions};

struct Silent : std::exception {
  const char* what() const noexcept override { return nullptr; }
};
int silent() {
  throw Silent();
}
int number() {
  throw 42;
}
int text() {
  throw "text";
}
int long_text() {
  throw std::runtime_error(std::string(1 << 20, 'x'));
}
void odd_exceptions(Context& ctx) {
  told([&] { ctx.get(ctx.submit<silent>()); });
  std::cout << '\n';
  told([&] { ctx.get(ctx.submit<number>()); });
  std::cout << '\n';
  told([&] { ctx.get(ctx.submit<text>()); });
  std::cout << '\n';
  told([&] { ctx.get(ctx.submit<long_text>()); });
  std::cout << '\n' << ctx.get(ctx.submit<same>(1)) << '\n';
}
/// Proves that exceptions without text, other types, and very long texts arrive as errors.
const Program odd{"odd_exceptions",
                  {.expect = "task_failed executed\ntask_failed executed\ntask_failed executed\n"
                             "task_failed executed\n1\n"},
                  odd_exceptions};

int not_the_first(std::string file, int wanted) {
  if (another_run(file) < wanted) throw NetError("try again");
  return 7;
}
void retries(Context& ctx) {
  const std::string file = own_file();
  troupe::TaskOptions options;
  options.retry_on = troupe::errors<NetError>();
  std::cout << ctx.get(ctx.with(options).submit<not_the_first>(file, 3)) << ' '
            << another_run(file) - 1 << '\n';
  std::remove(file.c_str());
  options.max_retries = 1;
  told([&] { ctx.get(ctx.with(options).submit<not_the_first>(file, 3)); });
  std::cout << ' ' << another_run(file) - 1 << '\n';
  std::remove(file.c_str());
}
/// Proves that retry_on runs a task again, up to max_retries.
const Program retry{"retry_on_an_exception", {.expect = "7 3\ntask_failed executed 2\n"}, retries};

// --- a process that ends under a task ---

int dies_once(std::string file, int how) {
  if (another_run(file) == 1) {
    if (how == 0) ::raise(SIGKILL);
    if (how == 1) ::_exit(0);
    if (how == 2) std::abort();
    if (how == 3) std::exit(1);
  }
  return how;
}
void deaths(Context& ctx) {
  for (int how = 0; how < 4; ++how) {
    const std::string file = own_file() + std::to_string(how);
    std::cout << ctx.get(ctx.submit<dies_once>(file, how)) << std::endl;
    std::remove(file.c_str());
  }
  for (int i = 0; i < 3; ++i) {
    const std::string file = own_file() + std::to_string(i);
    std::vector<Ref<int>> refs{ctx.submit<dies_once>(file, 0)};
    for (int k = 0; k < 50; ++k) refs.push_back(ctx.submit<same>(k));
    int sum = 0;
    for (const int x : ctx.get(refs)) sum += x;
    std::cout << sum << '\n';
    std::remove(file.c_str());
  }
}
/// Proves that a task whose worker ends runs again, however the worker ends.
const Program death{"a_worker_dies_under_a_task",
                    {.expect = "0\n1\n2\n3\n1225\n1225\n1225\n", .seconds = 20, .everywhere = true},
                    deaths};

int always_dies(std::string file) {
  another_run(file);
  ::raise(SIGKILL);
  return 0;
}
void poison(Context& ctx) {
  const std::string file = own_file();
  told([&] { ctx.get(ctx.with(troupe::TaskOptions{.max_retries = 0}).submit<always_dies>(file)); });
  std::cout << ' ' << another_run(file) - 1 << '\n';
  std::remove(file.c_str());
  told([&] { ctx.get(ctx.with(troupe::TaskOptions{.max_retries = 9}).submit<always_dies>(file)); });
  std::cout << ' ' << another_run(file) - 1 << '\n' << ctx.get(ctx.submit<same>(1)) << '\n';
  std::remove(file.c_str());
}
/// Proves that a task which keeps killing its workers is given up as a poison task.
const Program poisons{"a_task_that_kills_workers",
                      {.expect = "worker_died unknown 1\npoison_task unknown 3\n1\n"},
                      poison};

// --- requests that cannot be met ---

void infeasible(Context& ctx) {
  told([&] { ctx.get(ctx.with({.cpus = 1e6}).submit<same>(1), 5s); });
  std::cout << '\n';
  told([&] { ctx.get(ctx.with({.gpus = 8}).submit<same>(1), 5s); });
  std::cout << '\n';
  told([&] { ctx.get(ctx.with({.resources = {{"unheard_of", 1}}}).submit<same>(1), 5s); });
  std::cout << '\n';
  told([&] { ctx.get(ctx.with({.labels = {{"no", "such"}}}).submit<same>(1), 5s); });
  std::cout << '\n';
  for (const double wrong : {-1.0, 0.0 / 0.0, 1.0 / 0.0}) {
    told([&] { ctx.with({.cpus = wrong}).submit<same>(1); });
    std::cout << '\n';
  }
  std::cout << ctx.get(ctx.with({.cpus = 0}).submit<same>(3)) << '\n';
}
/// Proves that impossible demands end as infeasible or as invalid arguments.
const Program infeasibles{
    "requests_that_cannot_be_met",
    {.expect = "infeasible not_executed\ninfeasible not_executed\ninfeasible not_executed\n"
               "infeasible not_executed\ninvalid_argument not_executed\n"
               "invalid_argument not_executed\ninvalid_argument not_executed\n3\n"},
    infeasible};

void amounts(Context& ctx) {
  for (const std::uint64_t memory : {~0ULL, 1ULL << 63, ~0ULL >> 1, 1ULL << 50}) {
    told([&] { ctx.get(ctx.with({.memory = troupe::Bytes{memory}}).submit<same>(1), 5s); });
    std::cout << '\n';
  }
  std::cout << ctx.get(ctx.submit<same>(1)) << '\n';
}
/// Proves that extreme amounts of memory are infeasible and do not overflow.
const Program amount{"amounts_at_their_extremes",
                     {.expect = "infeasible not_executed\ninfeasible not_executed\n"
                                "infeasible not_executed\ninfeasible not_executed\n1\n"},
                     amounts};

int writes_then_infeasible(Context& ctx, std::string file) {
  another_run(file);
  return ctx.get(ctx.with({.cpus = 1e6}).submit<same>(1));
}
void inner(Context& ctx) {
  const std::string file = own_file();
  told([&] { ctx.get(ctx.submit<writes_then_infeasible>(file)); });
  std::cout << ' ' << another_run(file) - 1 << '\n';
  std::remove(file.c_str());
}
/// Proves that an inner infeasible error does not claim that the outer task did not run.
const Program inners{"an_inner_error_leaves_a_task", {.expect = "task_failed executed 1\n"}, inner};

void too_large(Context& ctx) {
  // 1 TiB exceeds the store. The program gets an error, and the node goes on.
  try {
    ctx.create<double>(std::size_t{1} << 37);
    std::cout << "there was room\n";
  } catch (const troupe::OutOfMemory&) {
    std::cout << "OutOfMemory ";
  } catch (const troupe::OutOfDisk&) {
    std::cout << "OutOfMemory ";
  }
  std::cout << ctx.get(ctx.submit<same>(1)) << '\n';
}
/// Proves that a value larger than the store is an error.
const Program large{"a_value_larger_than_memory", {.expect = "OutOfMemory 1\n"}, too_large};

// --- how a program ends ---

int throws_error(int& argc, char** argv) {
  return troupe::run(argc, argv, [](Context& ctx) { ctx.get(ctx.submit<fails>(1)); });
}
/// Proves that an error that leaves the body is printed and gives code 1.
const Program leaves{
    "an_error_leaves_the_body", {.exit_code = 1, .says = "no route"}, throws_error};
int throws_standard(int& argc, char** argv) {
  return troupe::run(argc, argv, [](Context&) { throw std::logic_error("my own mistake"); });
}
/// The same for any exception.
const Program standard{
    "an_exception_leaves_the_body", {.exit_code = 1, .says = "my own mistake"}, throws_standard};
int throws_42(int& argc, char** argv) {
  return troupe::run(argc, argv, [](Context&) { throw 42; });
}
/// The same for a thrown number.
const Program number_leaves{"a_number_leaves_the_body", {.exit_code = 1, .says = ": "}, throws_42};
/// Proves that the body's result is the program's exit code.
const Program code{
    "the_body_returns_a_code", {.expect = "1\n", .exit_code = 7}, [](Context& ctx) -> int {
      std::cout << ctx.get(ctx.submit<same>(1)) << '\n';
      return 7;
    }};
int early(int& argc, char** argv) {
  return troupe::run(argc, argv, [](Context& ctx) {
    ctx.with({.cpus = 0}).submit([] { std::this_thread::sleep_for(60s); });
    std::cout << ctx.get(ctx.submit<same>(2)) << std::endl;
    std::exit(5);
  });
}
/// Proves that exit() in the body ends the program at once and leaves nothing behind.
const Program exits{"exit_inside_the_body", {.expect = "2\n", .exit_code = 5}, early};
int crash(int& argc, char** argv) {
  return troupe::run(argc, argv, [](Context& ctx) {
    std::cout << ctx.get(ctx.submit<same>(2)) << std::endl;
    ::raise(SIGKILL);
  });
}
/// Proves that a killed driver leaves nothing behind.
const Program crashes{"the_driver_is_killed", {.expect = "2\n", .exit_code = 128 + SIGKILL}, crash};
int bad_flag(int&, char** argv) {
  char flag[] = "--troupe-cpus=many";
  char* arguments[] = {argv[0], flag, nullptr};
  int count = 2;
  return troupe::run(count, arguments, [](Context&) {});
}
/// Proves that a senseless flag of troupe gives code 2 and names the flag.
const Program flag{
    "a_flag_that_makes_no_sense", {.exit_code = 2, .says = "--troupe-cpus", .nodes = 1}, bad_flag};
/// Proves that tasks whose results are dropped do not delay the program's end.
const Program abandoned{"work_that_nobody_awaits", {.expect = "bye\n"}, [](Context& ctx) {
                          for (int i = 0; i < 20; ++i)
                            ctx.submit([] { std::this_thread::sleep_for(60s); });
                          std::cout << "bye\n";
                        }};

}  // namespace
}  // namespace failures
