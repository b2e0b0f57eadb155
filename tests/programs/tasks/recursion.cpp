// Proves which awaited tasks run in place, and that running in place changes no result.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace tasks_recursion {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

struct Sum {
  long sum = 0;
  std::vector<int> processes;  ///< the processes that ran a part of it
};

Sum add(Sum a, const Sum& b) {
  a.sum += b.sum;
  for (const int pid : b.processes)
    if (std::find(a.processes.begin(), a.processes.end(), pid) == a.processes.end())
      a.processes.push_back(pid);
  return a;
}

Sum tree(Context& ctx, long low, long high) {
  if (high - low == 1) return {low, {::getpid()}};
  const long middle = low + (high - low) / 2;
  const auto left = ctx.submit<tree>(low, middle);
  const auto right = ctx.submit<tree>(middle, high);
  return add(ctx.get(left), ctx.get(right));
}

/// Proves that a deep recursion runs in few processes.
const Program a_tree_in_few_processes{
    "a_tree_in_few_processes", {.expect = "199990000 few\n", .seconds = 20}, [](Context& ctx) {
      const Sum all = ctx.get(ctx.submit<tree>(0L, 20'000L));
      const auto cpus = std::thread::hardware_concurrency();
      std::cout << all.sum << ' ' << (all.processes.size() <= 3 * cpus + 24 ? "few" : "many")
                << '\n';
    }};

/// The task was submitted a moment ago and no other CPU is free, so no other worker can have
/// taken it.
int pid_of(Context&) {
  return ::getpid();
}
int here(Context& ctx) {
  const auto submitted = ctx.submit<pid_of>();
  return ctx.get(submitted) == ::getpid() ? 1 : 0;
}
int elsewhere(Context& ctx) {
  const auto submitted = ctx.with(troupe::TaskOptions{.isolated = true}).submit<pid_of>();
  return ctx.get(submitted) == ::getpid() ? 1 : 0;
}
int elsewhere_with_a_timeout(Context& ctx) {
  const auto submitted = ctx.submit<pid_of>();
  return ctx.get(submitted, 60s) == ::getpid() ? 1 : 0;
}
int elsewhere_with_less(Context& ctx) {
  const auto submitted = ctx.with({.cpus = 1}).submit<pid_of>();
  return ctx.get(submitted) == ::getpid() ? 1 : 0;
}

/// Proves that the awaiting worker runs the task, but not if it is isolated, awaited with a
/// timeout, or needs more than the waiter's lease.
const Program who_awaits_runs_it{
    "who_awaits_runs_it", {.expect = "1 0 0 0\n", .seconds = 20, .nodes = 1}, [](Context& ctx) {
      const double all = std::max(1.0, ctx.cluster().nodes.front().cpus);
      const auto whole = ctx.with({.cpus = all});
      std::cout << ctx.get(whole.submit<here>()) << ' ' << ctx.get(whole.submit<elsewhere>()) << ' '
                << ctx.get(whole.submit<elsewhere_with_a_timeout>()) << ' '
                << ctx.get(ctx.with({.cpus = 0.5}).submit<elsewhere_with_less>()) << '\n';
    }};

/// Kills its process, either once or always.
int crash(Context&, const std::string& once) {
  if (!once.empty()) {
    if (std::filesystem::exists(once)) return 7;
    std::ofstream(once) << "begun";
  }
  ::abort();
}
int awaits_a_crash(Context& ctx, const std::string& once) {
  const auto guilty = ctx.submit<crash>(once);
  try {
    return ctx.get(guilty);
  } catch (const troupe::Error& error) {
    return error.code() == troupe::Code::poison_task ? -1 : -2;
  }
}

/// Proves that a task which crashes in place is identified, and that its waiter is run again.
const Program the_guilty_child_is_found{
    "the_guilty_child_is_found", {.expect = "-1\n7\n", .seconds = 30}, [](Context& ctx) {
      std::cout << ctx.get(ctx.submit<awaits_a_crash>(std::string{})) << '\n';
      const std::string once =
          (std::filesystem::temp_directory_path() / ("troupe_crash_" + std::to_string(::getpid())))
              .string();
      std::cout << ctx.get(ctx.submit<awaits_a_crash>(once)) << '\n';
      std::filesystem::remove(once);
    }};

// Results of every kind must pass as they do from another process.
std::vector<double> large(Context&, int n) {
  return std::vector<double>(static_cast<std::size_t>(n), 0.5);
}
int throws(Context&) {
  throw std::runtime_error("no luck");
}
void nothing(Context&) {}
std::tuple<int, std::string> two(Context&) {
  return {1, "two"};
}
Ref<int> later(Context& ctx) {
  return ctx.put(11);
}
int seven(Context&) {
  return 7;
}
/// Its result is the result of a task that has not begun when this one ends.
Ref<int> passes_on(Context& ctx) {
  return ctx.submit<seven>();
}
double sum_of(Context&, const std::vector<double>& values, double more) {
  double sum = more;
  for (const double value : values) sum += value;
  return sum;
}
std::vector<Ref<int>> refs(Context& ctx) {
  return {ctx.put(1), ctx.put(2)};
}
std::string kinds(Context& ctx) {
  std::string text;
  const auto values = ctx.submit<large>(100'000);
  text += std::to_string(ctx.get(values).size());
  text += ' ' + std::to_string(static_cast<int>(ctx.get(ctx.submit<sum_of>(values, 1.0))));
  try {
    ctx.get(ctx.submit<throws>());
  } catch (const troupe::TaskFailed& error) {
    text += std::string(" '") + error.what() + "'";
    text += error.outcome() == troupe::Outcome::executed ? " executed" : " ?";
  }
  ctx.get(ctx.submit<nothing>());
  const auto [one, name] = ctx.submit_split<two>();
  text += ' ' + ctx.get(name) + ' ' + std::to_string(ctx.get(one));
  text += ' ' + std::to_string(ctx.get(ctx.submit<later>()));
  text += ' ' + std::to_string(ctx.get(ctx.submit<passes_on>()));
  int sum = 0;
  for (const auto& ref : ctx.get(ctx.submit<refs>())) sum += ctx.get(ref);
  text += ' ' + std::to_string(sum);
  const auto view = ctx.view(ctx.submit<large>(2'000));
  return text + ' ' + std::to_string(view.size());
}
/// Other tasks await a value that this one has computed in place.
std::vector<Ref<std::vector<double>>> for_others(Context& ctx) {
  auto values = ctx.submit<large>(50'000);
  ctx.get(values);
  return {values};
}

/// Proves that results of tasks in place are the same as from another process.
const Program results_of_every_kind{
    "results_of_every_kind",
    {.expect = "50000\n", .seconds = 20, .says = "executed two 1 11 7 3 2000"},
    [](Context& ctx) {
      std::cerr << ctx.get(ctx.submit<kinds>()) << '\n';
      const auto values = ctx.get(ctx.submit<for_others>());
      std::cout << ctx.get(values.front()).size() << '\n';
    }};

int down(Context& ctx, int depth) {
  if (depth == 0) return 0;
  return 1 + ctx.get(ctx.submit<down>(depth - 1));
}
/// Proves that a recursion of 3,000 levels does not overflow the stack.
const Program as_deep_as_a_stack{
    "as_deep_as_a_stack", {.expect = "3000\n", .seconds = 30}, [](Context& ctx) {
      std::cout << ctx.get(ctx.submit<down>(3'000)) << '\n';
    }};

/// Another worker begins the next level in the meantime. Each level needs a process, until no
/// more can start. The remaining levels run in place.
int slowly_down(Context& ctx, int depth) {
  if (depth == 0) return 0;
  const auto below = ctx.submit<slowly_down>(depth - 1);
  const auto until = std::chrono::steady_clock::now() + 1ms;
  while (std::chrono::steady_clock::now() < until) {
  }
  return 1 + ctx.get(below);
}
/// Proves that a recursion in which each level starts elsewhere finishes.
const Program work_before_each_wait{
    "work_before_each_wait", {.expect = "200\n", .seconds = 30}, [](Context& ctx) {
      std::cout << ctx.get(ctx.submit<slowly_down>(200)) << '\n';
    }};

}  // namespace
}  // namespace tasks_recursion
