// Proves tasks that wait for tasks, and every way to wait: timeouts, coroutines and threads.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

namespace tasks_nested {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
using troupe::Ref;

// --- tasks that wait for tasks ---

int fib(Context& ctx, int n) {
  if (n < 2) return n;
  auto a = ctx.submit<fib>(n - 1);
  auto b = ctx.submit<fib>(n - 2);
  return ctx.get(a) + ctx.get(b);
}
void fibonacci(Context& ctx) {
  std::cout << ctx.get(ctx.submit<fib>(5)) << std::endl;
  std::cout << ctx.get(ctx.submit<fib>(9)) << '\n';
}
/// Proves that tasks can wait for tasks in a binary recursion.
const Program fibonaccis{"fibonacci", {.expect = "5\n34\n", .seconds = 20}, fibonacci};

long tree(Context& ctx, long low, long high) {
  if (high - low == 1) return low;
  const long middle = low + (high - low) / 2;
  auto left = ctx.submit<tree>(low, middle);
  auto right = ctx.submit<tree>(middle, high);
  return ctx.get(left) + ctx.get(right);
}
void leaves_256(Context& ctx) {
  std::cout << ctx.get(ctx.submit<tree>(0, 256)) << '\n';
}
/// The same as a tree of ranges.
const Program small_tree{"a_tree_of_256_leaves", {.expect = "32640\n", .seconds = 20}, leaves_256};
void leaves_20_000(Context& ctx) {
  std::cout << ctx.get(ctx.submit<tree>(0, 20'000)) << '\n';
}
/// The same with far more waiting tasks than processes.
const Program large_tree{"a_tree_of_20000_leaves", {.expect = "199990000\n"}, leaves_20_000};

int deep(Context& ctx, int depth) {
  return depth == 0 ? 0 : 1 + ctx.get(ctx.submit<deep>(depth - 1));
}
void depth_100(Context& ctx) {
  std::cout << ctx.get(ctx.submit<deep>(100)) << '\n';
}
/// Proves that a chain of 100 waiting tasks finishes.
const Program chain{"a_task_waits_100_deep", {.expect = "100\n", .seconds = 20}, depth_100};

int slow(int x) {
  std::this_thread::sleep_for(1ms);
  return x;
}
int many(Context& ctx, int n) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < n; ++i) refs.push_back(ctx.submit<slow>(i));
  int sum = 0;
  for (auto& ref : ctx.as_completed(refs)) sum += ctx.get(ref);
  return sum;
}
void fan_out(Context& ctx) {
  auto a = ctx.submit<many>(100), b = ctx.submit<many>(100);
  std::cout << ctx.get(a) + ctx.get(b) << '\n';
}
/// Proves that two tasks can share all CPUs for their children and take results as they complete.
const Program fans{"two_tasks_fan_out", {.expect = "9900\n"}, fan_out};

// --- results that are handles ---

Ref<int> later(Context& ctx, int x) {
  return ctx.submit<slow>(x);
}
std::vector<Ref<int>> several(Context& ctx, int n) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < n; ++i) refs.push_back(ctx.put(i * i));
  return refs;
}
int sum_of(Context& ctx, const std::vector<Ref<int>>& refs) {
  int sum = 0;
  for (const int x : ctx.get(refs)) sum += x;
  return sum;
}
void handles(Context& ctx) {
  const Ref<int> flat = ctx.submit<later>(5);
  std::cout << ctx.get(flat) << ' ';
  const auto refs = ctx.get(ctx.submit<several>(10));
  std::cout << ctx.get(refs[3]) << ' ' << ctx.get(ctx.submit<sum_of>(refs)) << ' '
            << ctx.get(ctx.submit<sum_of>(ctx.submit<several>(10))) << '\n';
}
/// Proves that a task may return refs, which flatten or travel in values.
const Program handle{"results_that_are_refs", {.expect = "5 9 285 285\n"}, handles};

// --- waiting ---

/// Ends when the file exists, or after 8 s.
int until(const std::string& file) {
  for (int i = 0; i < 4000; ++i) {
    if (FILE* there = std::fopen(file.c_str(), "r"); there != nullptr) return std::fclose(there);
    std::this_thread::sleep_for(2ms);
  }
  return -1;
}
std::string own_file(const char* name) {
  return "/tmp/" + std::to_string(::getpid()) + "." + name;
}
void make(const std::string& file) {
  if (FILE* made = std::fopen(file.c_str(), "w"); made != nullptr) std::fclose(made);
}
void waits(Context& ctx) {
  const std::string file = own_file("go_on");
  const Ref<int> late = ctx.with({.cpus = 0}).submit<until>(file);
  std::vector<Ref<int>> refs{late, ctx.put(1), ctx.submit<slow>(2)};
  const auto found = ctx.wait(refs, {.count = 2});
  std::cout << found.ready.size() << found.pending.size() << (found.pending[0] == late);
  std::cout << ctx.wait(refs, {.count = 3, .timeout = 10ms}).ready.size();
  std::cout << ctx.wait(refs, {.count = 99, .timeout = 0s}).ready.size() << '\n';
  const auto none = ctx.try_get(late, 5ms);
  std::cout << (none.ok() ? "ok" : troupe::name_of(none.error().code())) << ' ';
  try {
    ctx.get(late, 5ms);
  } catch (const troupe::TimedOut& e) {
    std::cout << "TimedOut ";
  }
  make(file);
  std::cout << ctx.get(late) << ' ' << *ctx.try_get(late) << '\n';
  std::remove(file.c_str());
  std::vector<troupe::AnyRef> mixed{late, ctx.put(std::string("x")), ctx.submit<slow>(1)};
  const auto all = ctx.wait(mixed, {.count = 3});
  std::cout << all.ready.size() << ' ' << ctx.get(mixed[1].as<std::string>()) << '\n';
}
/// Proves wait, try_get and get with timeouts, with refs of several types.
const Program waiting{
    "wait_and_timeouts", {.expect = "21122\ntimed_out TimedOut 0 0\n3 x\n"}, waits};

void times(Context& ctx) {
  // Extreme durations: a negative one only looks, and the longest one has no limit.
  const Ref<int> ready = ctx.put(1);
  std::cout << ctx.get(ready, troupe::forever) << ctx.get(ready, 0s) << ctx.get(ready, -1s)
            << ctx.get(ready, troupe::Duration::min()) << ctx.get(ready, troupe::Duration::max())
            << ctx.get(std::vector<Ref<int>>{ready}, troupe::Duration::max() - 1ns)[0];
  const Ref<int> slow_one = ctx.submit<slow>(2);
  std::cout << ctx.get(slow_one, troupe::Duration::max() - 1ns);
  const Ref<int> late = ctx.with({.cpus = 0}).submit<until>(own_file("never"));
  for (const troupe::Duration past :
       {troupe::Duration(0), troupe::Duration(-5), troupe::Duration::min()})
    std::cout << ctx.try_get(late, past).ok() << ctx.wait({late}, {.timeout = past}).ready.size();
  std::cout << '\n';
  make(own_file("never"));
  ctx.get(late);
  std::remove(own_file("never").c_str());
}
/// Proves get and wait with the extreme values of a duration.
const Program extremes{"timeouts_at_their_extremes", {.expect = "1111112000000\n"}, times};

// --- coroutines ---

troupe::Task<int> plus(Ref<int> a, Ref<int> b) {
  const int x = co_await a;
  const int y = co_await b;
  co_return x + y;
}
troupe::Task<int> both(Ref<int> a) {
  auto inner = plus(a, a);
  const int once = co_await inner;
  auto again = plus(a, a);
  co_return once + co_await again;
}
void coroutines(Context& ctx) {
  std::cout << ctx.get(ctx.submit<plus>(ctx.submit<slow>(1), ctx.put(2))) << ' '
            << ctx.get(ctx.submit<both>(ctx.submit<slow>(10))) << '\n';
}
/// Proves that tasks may be coroutines.
const Program coroutine{"coroutine_tasks", {.expect = "3 40\n"}, coroutines};

// --- threads of the driver ---

void threads(Context& ctx) {
  std::vector<int> sums(8);
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < sums.size(); ++t)
    all.emplace_back([&sums, ctx, t] {
      for (int i = 0; i < 100; ++i) sums[t] += ctx.get(ctx.submit<slow>(1));
    });
  for (std::thread& one : all) one.join();
  std::cout << *std::min_element(sums.begin(), sums.end()) << '\n';
}
/// Proves that a driver's threads may share one context.
const Program threaded{
    "eight_threads_share_a_context", {.expect = "100\n", .seconds = 20}, threads};

int threads_within(Context& ctx, int n) {
  std::atomic<int> sum{0};
  std::vector<std::thread> all;
  for (int t = 0; t < n; ++t)
    all.emplace_back([&sum, ctx, t] { sum += ctx.get(ctx.submit<slow>(t)); });
  for (std::thread& one : all) one.join();
  return sum;
}
void threads_of_a_task(Context& ctx) {
  std::cout << ctx.get(ctx.submit<threads_within>(8)) << '\n';
}
/// Proves that a task's threads may share its context.
const Program within{"threads_inside_a_task", {.expect = "28\n"}, threads_of_a_task};

}  // namespace
}  // namespace tasks_nested
