// Proves what threads that a task has started may do: they wait for values while the task computes,
// and after it has returned.
#include "tests/programs/program.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

namespace tasks_threads {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::Context;
using troupe::Ref;

int twice(int x) {
  return 2 * x;
}

/// Opens when it has been passed as often as it was made for. Many may wait for that.
class Gate {
 public:
  explicit Gate(int left) : left_(left) {}
  void pass() {
    if (--left_ > 0) return;
    for (troupe::AsyncEvent& one : waiting_) one.set();
  }
  troupe::Task<int> opened() {
    if (left_ > 0) co_await waiting_.emplace_back();
    co_return 1;
  }

 private:
  int left_;
  std::deque<troupe::AsyncEvent> waiting_;
};

/// A main with a session of that many CPUs on one node.
template <int cpus, void body(Context&)>
int on_cpus(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::Session session({.cpus = cpus, .nodes = 1});
  Context ctx = session.context();
  body(ctx);
  return 0;
}

int leaves_a_thread(Context& ctx, const Actor<Gate>& gate) {
  std::thread([ctx, gate] {
    int sum = 0;
    for (int i = 0; i < 10; ++i) sum += ctx.get(ctx.submit<twice>(1));
    if (sum == 20) gate.tell<&Gate::pass>();
  }).detach();
  return 1;
}
void leaves_threads(Context& ctx) {
  const auto gate = ctx.spawn<Gate>(16);
  for (int i = 0; i < 16; ++i) ctx.get(ctx.submit<leaves_a_thread>(gate));
  std::cout << ctx.get(gate.call<&Gate::opened>()) << '\n';
}
/// Proves that a thread goes on with calls after its task has returned.
const Program left{
    "threads_that_outlive_a_task", {.expect = "1\n", .nodes = 1}, on_cpus<2, leaves_threads>};
/// Proves so where the worker of the threads is the only one: it leases itself for them.
const Program left_alone{"threads_that_outlive_a_task_on_one_cpu",
                         {.expect = "1\n", .nodes = 1},
                         on_cpus<1, leaves_threads>};

struct Span {
  std::chrono::nanoseconds begin{}, end{};
};
std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}
/// Computes while a thread of it waits, which goes on after it.
Span computes(Context& ctx, const Actor<Gate>& gate) {
  std::thread([ctx, gate] { (void)ctx.get(gate.call<&Gate::opened>()); }).detach();
  Span span{now(), {}};
  while (now() - span.begin < 100ms) {
  }
  span.end = now();
  return span;
}
void compute(Context& ctx) {
  const auto gate = ctx.spawn<Gate>(1);
  std::vector<Ref<Span>> refs;
  refs.reserve(6);
  for (int i = 0; i < 6; ++i) refs.push_back(ctx.submit<computes>(gate));
  const std::vector<Span> spans = ctx.get(refs);
  gate.tell<&Gate::pass>();
  std::ptrdiff_t most = 0;
  for (const Span& one : spans)
    most = std::max(most, std::count_if(spans.begin(), spans.end(), [&one](const Span& other) {
                      return other.begin <= one.begin && one.begin < other.end;
                    }));
  std::cout << (most <= 2) << '\n';
}
/// Proves that a task keeps its CPU while a thread of it waits: two tasks compute on two CPUs.
const Program computing{
    "tasks_compute_while_a_thread_waits", {.expect = "1\n", .nodes = 1}, on_cpus<2, compute>};

int joins_threads(Context& ctx, int n) {
  std::atomic<int> sum{0};
  std::vector<std::thread> all;
  for (int t = 0; t < n; ++t)
    all.emplace_back([&sum, ctx, t] { sum += ctx.get(ctx.submit<twice>(t)); });
  for (std::thread& one : all) one.join();
  return sum;
}
void joining(Context& ctx) {
  std::cout << ctx.get(ctx.submit<joins_threads>(4)) << '\n';
}
/// Proves that a task gives its only CPU back while it waits for a thread that waits for a value.
const Program joined{
    "a_task_joins_threads_on_one_cpu", {.expect = "12\n", .nodes = 1}, on_cpus<1, joining>};

/// An actor that has a CPU, of which only its thread makes use.
class Learner {
 public:
  explicit Learner(const Actor<Gate>& gate) {
    std::thread([ctx = Context::current(), gate] {
      if (ctx.get(ctx.submit<twice>(1)) == 2) gate.tell<&Gate::pass>();
    }).detach();
  }
};
void learning(Context& ctx) {
  const auto gate = ctx.spawn<Gate>(1);
  const auto learner = ctx.with({.cpus = 1}).spawn<Learner>(gate);
  std::cout << ctx.get(gate.call<&Gate::opened>()) << '\n';
}
/// Proves that an actor without a call gives the only CPU back while a thread of it waits.
const Program learns{
    "a_thread_of_an_actor_waits_on_one_cpu", {.expect = "1\n", .nodes = 1}, on_cpus<1, learning>};

}  // namespace
}  // namespace tasks_threads
