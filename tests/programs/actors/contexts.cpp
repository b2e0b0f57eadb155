// Proves what methods may use: the context, coroutines, threads of their own, and large state.
#include "tests/programs/program.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>

namespace actors_contexts {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;

int square(int x) {
  return x * x;
}
struct Cell {
  int value = 0;
  void set(int x) { value = x; }
  int get() const { return value; }
};

// --- every verb of an ActorContext ---

struct Worker {
  troupe::Task<int> uses_all(ActorContext& ctx) {
    auto one = ctx.submit<square>(3);
    auto two = ctx.with({.cpus = 0.5}).submit([](int x) { return x + 1; }, 9);
    auto [left, right] = ctx.submit_split<halves>(8);
    auto cell = ctx.with(troupe::ActorOptions{.name = "cell"}).spawn<Cell>();
    cell.tell<&Cell::set>(100);
    int sum = co_await one;
    sum += co_await two;
    sum += co_await left;
    sum += co_await right;
    for (auto& ref : ctx.map<square>(std::vector<int>{1, 2})) sum += co_await ref;
    auto found = ctx.find<Cell>("cell");
    if (!found) co_return -1;
    auto value = found->call<&Cell::get>();
    sum += co_await value;
    auto kept = ctx.put(1000);
    ctx.detach(kept, "kept");
    auto named = ctx.find_object<int>("kept");
    sum += co_await *named;
    sum += ctx.forget_object("kept") ? 10'000 : 0;
    sum += ctx.restarted() ? -1 : 0;
    co_return sum + static_cast<int>(ctx.gpu_ids().size());
  }
  static std::pair<int, int> halves(int x) { return {x / 2, x - x / 2}; }
};
void verbs(Context& ctx) {
  auto worker = ctx.spawn<Worker>();
  // 9 + 10 + 4 + 4 + 1 + 4 + 100 + 1000 + 10000
  std::cout << ctx.get(worker.call<&Worker::uses_all>()) << '\n';
}
/// Proves that every verb of a context works inside an actor's method.
const Program all{"every_verb_of_an_actor_context", {.expect = "11132\n", .seconds = 20}, verbs};

// --- coroutine methods ---

struct Gate {
  int waiting = 0, passed = 0;
  troupe::Task<int> pass(Ref<int> key) {
    ++waiting;
    const int value = co_await key;
    ++passed;
    co_return value;
  }
  troupe::Task<std::unique_ptr<int>> owns(Ref<int> key) {
    auto own = std::make_unique<int>(co_await key);
    ++*own;
    co_return own;
  }
  troupe::Task<void> fails(Ref<int> key) {
    const int value = co_await key;
    if (value > 0) throw std::runtime_error("after the wait");
  }
  std::pair<int, int> counts() const { return {waiting, passed}; }
};
int later(int x) {
  std::this_thread::sleep_for(30ms);
  return x;
}
int never(int) {
  throw std::runtime_error("no key");
}
void coroutines(Context& ctx) {
  auto gate = ctx.spawn<Gate>();
  std::vector<Ref<int>> all;
  for (int i = 0; i < 20; ++i) all.push_back(gate.call<&Gate::pass>(ctx.submit<later>(i)));
  int sum = 0;
  for (const int x : ctx.get(all)) sum += x;
  const auto [waiting, passed] = ctx.get(gate.call<&Gate::counts>());
  std::cout << sum << ' ' << waiting << ' ' << passed << ' '
            << *ctx.get(gate.call<&Gate::owns>(ctx.put(4))) << ' ';
  for (auto& bad : {gate.call<&Gate::fails>(ctx.submit<later>(1)),
                    gate.call<&Gate::fails>(ctx.submit<never>(1))})
    try {
      ctx.get(bad);
    } catch (const troupe::TaskFailed& e) {
      std::cout << (std::string(e.what()).find("after the wait") != std::string::npos ||
                    std::string(e.what()).find("no key") != std::string::npos);
    }
  std::cout << ' ' << ctx.get(gate.call<&Gate::counts>()).second << '\n';
}
/// Proves that many methods of an actor can be suspended at once, and that each gets its own
/// result or error.
const Program coroutine{"coroutine_methods", {.expect = "190 20 20 5 11 20\n"}, coroutines};

// --- many callers ---

struct Log {
  std::vector<int> seen;
  void note(int caller, int x) { seen.push_back(caller * 1000 + x); }
  std::vector<int> all() const { return seen; }
};
int calls(Actor<Log> log, int caller, int n) {
  for (int i = 0; i < n; ++i) log.tell<&Log::note>(caller, i);
  return n;
}
void callers(Context& ctx) {
  auto log = ctx.spawn<Log>();
  std::vector<Ref<int>> done;
  for (int caller = 0; caller < 4; ++caller) done.push_back(ctx.submit<calls>(log, caller, 100));
  ctx.get(done);
  std::vector<int> seen;
  for (int i = 0; i < 1000 && seen.size() < 400; ++i) {
    seen = ctx.get(log.call<&Log::all>());
    std::this_thread::sleep_for(1ms);
  }
  // The calls of each caller arrived in its order, each once.
  bool ordered = seen.size() == 400;
  for (int caller = 0; caller < 4; ++caller) {
    int next = 0;
    for (const int x : seen)
      if (x / 1000 == caller) ordered = ordered && x % 1000 == next++;
    ordered = ordered && next == 100;
  }
  std::cout << ordered << '\n';
}
/// Proves that the calls of each of four callers run in the caller's order, each once.
const Program order{"calls_of_each_caller_in_order", {.expect = "1\n", .seconds = 20}, callers};

// --- an actor's own threads and large state ---

struct Store {
  std::vector<std::vector<double>> rows;
  std::size_t add(std::vector<double> row) {
    rows.push_back(std::move(row));
    return rows.size();
  }
  std::vector<double> row(std::size_t i) const { return rows.at(i); }
  double parallel_sum() const {
    std::vector<double> sums(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < sums.size(); ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = t; i < rows.size(); i += sums.size())
          for (const double x : rows[i]) sums[t] += x;
      });
    for (auto& thread : threads) thread.join();
    return sums[0] + sums[1] + sums[2] + sums[3];
  }
};
void stores(Context& ctx) {
  auto store = ctx.spawn<Store>();
  for (int i = 0; i < 20; ++i) store.call<&Store::add>(std::vector<double>(50'000, 1));
  std::cout << ctx.get(store.call<&Store::parallel_sum>()) << ' '
            << ctx.get(store.call<&Store::row>(7)).size() << ' ';
  try {
    ctx.get(store.call<&Store::row>(99));
  } catch (const troupe::TaskFailed& e) {
    std::cout << e.is<std::out_of_range>() << '\n';
  }
}
/// Proves that an actor may hold large state and use threads of its own.
const Program large{"an_actor_with_large_state", {.expect = "1e+06 50000 1\n"}, stores};

}  // namespace
}  // namespace actors_contexts
