// Proves where handles of actors may lie, and how calls end when an actor ends.
#include "tests/programs/program.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace handles {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Actor;
using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;
using troupe::Task;

struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
  int get() const { return n; }
};

// --- a handle that only a constructor's arguments hold ---

struct User {
  explicit User(Actor<Counter> counter) : counter_(std::move(counter)) {
    counter_.tell<&Counter::add>(5);
  }
  Task<int> ask() {
    auto answer = counter_.call<&Counter::get>();
    co_return co_await answer;
  }
  Actor<Counter> counter_;
};
int slow(int x) {
  std::this_thread::sleep_for(300ms);
  return x;
}
struct Late {
  Late(Actor<Counter> counter, int x) : counter_(std::move(counter)) {
    counter_.tell<&Counter::add>(x);
  }
  Task<int> ask() {
    auto answer = counter_.call<&Counter::get>();
    co_return co_await answer;
  }
  Actor<Counter> counter_;
};
void in_arguments(Context& ctx) {
  auto counter = ctx.spawn<Counter>();
  auto user = ctx.spawn<User>(counter);
  counter = {};
  std::cout << ctx.get(user.call<&User::ask>()) << ' ';
  auto second = ctx.spawn<Counter>();
  auto late = ctx.spawn<Late>(second, ctx.submit<slow>(6));  // is made once the task has ended
  second = {};
  std::cout << ctx.get(late.call<&Late::ask>()) << '\n';
}
/// Proves that an actor lives on when only the arguments of a constructor hold its handle.
const Program arguments{"a_handle_in_a_constructors_arguments", {.expect = "5 6\n"}, in_arguments};

// --- in values, in tasks' results, nowhere for a while ---

Actor<Counter> makes(Context& ctx, int n) {
  auto counter = ctx.spawn<Counter>();
  ctx.get(counter.call<&Counter::add>(n));  // calls of other processes have no order with it
  return counter;
}
struct Box {
  std::vector<std::pair<std::string, Actor<Counter>>> all;
};
Box fill(Context& ctx, int n) {
  Box box;
  for (int i = 0; i < n; ++i) box.all.emplace_back(std::to_string(i), makes(ctx, i));
  return box;
}
int sum_of(Context& ctx, const Box& box) {
  int sum = 0;
  for (const auto& [name, counter] : box.all) sum += ctx.get(counter.call<&Counter::get>());
  return sum;
}
void in_values(Context& ctx) {
  auto one = ctx.get(ctx.submit<makes>(3));
  std::cout << ctx.get(one.call<&Counter::get>()) << ' ';
  auto box = ctx.submit<fill>(10);
  std::cout << ctx.get(ctx.submit<sum_of>(box)) << ' ';  // the driver never opens it
  auto kept = ctx.put(one);
  one = {};
  std::this_thread::sleep_for(50ms);
  Actor<Counter> back = ctx.get(kept);
  std::cout << ctx.get(back.call<&Counter::get>()) << ' ';
  auto deep = ctx.put(ctx.put(back));
  back = {};
  kept = {};
  std::cout << ctx.get(ctx.get(ctx.get(deep)).call<&Counter::get>()) << '\n';
}
/// Proves that handles in results, in values and in refs of refs keep their actors alive.
const Program values{"handles_in_values", {.expect = "3 45 3 3\n", .seconds = 30}, in_values};

// --- kills ---

struct Busy {
  int work(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return ms;
  }
};
bool kills(Context& ctx, Actor<Busy> victim) {
  ctx.kill(victim);
  return true;
}
void kill_of_many(Context& ctx) {
  auto one = ctx.spawn<Busy>();
  ctx.get(one.call<&Busy::work>(0));
  std::vector<Ref<int>> calls{one.call<&Busy::work>(60'000)};
  for (int i = 0; i < 10'000; ++i) calls.push_back(one.call<&Busy::work>(0));
  ctx.get(ctx.submit<kills>(one));
  ctx.kill(one);
  ctx.kill(one);
  std::size_t died = 0, maybe = 0;
  for (const auto& call : calls) {
    const auto end = ctx.try_get(call, 10s);
    died += !end && end.error().code() == troupe::Code::actor_died ? 1 : 0;
    maybe += !end && end.error().maybe_executed() ? 1 : 0;
  }
  std::cout << died << ' ' << (maybe >= 1) << '\n';
}
/// Proves that a kill from several sides ends all calls of an actor with an error.
const Program killed{
    "a_kill_of_an_actor_with_10000_calls", {.expect = "10001 1\n", .seconds = 30}, kill_of_many};

// --- destructors that throw, ends that do not come by themselves ---

struct ThrowsAtEnd {
  ~ThrowsAtEnd() noexcept(false) { throw std::runtime_error("at the end"); }
  int fine() { return 1; }
};
struct EndsSlowly {
  ~EndsSlowly() { std::this_thread::sleep_for(300ms); }
  int fine() { return 2; }
};
void ends(Context& ctx) {
  auto one = ctx.spawn<ThrowsAtEnd>();
  std::cout << ctx.get(one.call<&ThrowsAtEnd::fine>());
  one = {};
  auto named = ctx.with({.name = "slow end"}).spawn<EndsSlowly>();
  std::cout << ctx.get(named.call<&EndsSlowly::fine>());
  named = {};
  auto next = ctx.with({.name = "slow end"}).spawn<EndsSlowly>();  // waits until the name is free
  std::cout << ctx.get(next.call<&EndsSlowly::fine>()) << '\n';
}
/// Proves that a throwing destructor harms nobody, and that a name is free once a slow destructor
/// has ended.
const Program end{"destructors_that_throw_or_are_slow", {.expect = "122\n", .seconds = 20}, ends};

// --- an actor and itself ---

struct Loops {
  int n = 0;
  void step(ActorContext& ctx, int left) {
    ++n;
    if (left > 0) ctx.self<Loops>().tell<&Loops::step>(left - 1);
  }
  int get() const { return n; }
  Ref<int> own(ActorContext& ctx) { return ctx.self<Loops>().call<&Loops::get>(); }
  Task<int> in_turn(ActorContext& ctx, int left) {
    if (left == 0) co_return n;
    auto next = ctx.self<Loops>().call<&Loops::in_turn>(left - 1);
    co_return co_await next;
  }
};
void loops(Context& ctx) {
  auto one = ctx.spawn<Loops>();
  one.tell<&Loops::step>(5000);
  int last = 0;
  for (int i = 0; i < 4000 && last < 5001; ++i) {  // our calls get their turn meanwhile
    last = ctx.get(one.call<&Loops::get>());
    std::this_thread::sleep_for(1ms);
  }
  std::cout << last << ' ' << ctx.get(one.call<&Loops::own>()) << ' '
            << ctx.get(one.call<&Loops::in_turn>(300)) << '\n';
}
/// Proves that an actor which keeps calling itself still serves other callers.
const Program itself{
    "an_actor_that_goes_on_by_itself", {.expect = "5001 5001 5001\n", .seconds = 20}, loops};

// --- the system inside an actor ---

struct Shell {
  int runs(const std::string& command) { return std::system(command.c_str()); }
  int forks() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(7);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int threads() {
    std::vector<std::thread> all;
    std::atomic<int> n{0};
    for (int i = 0; i < 4; ++i) all.emplace_back([&n] { ++n; });
    for (auto& thread : all) thread.join();
    return n;
  }
};
void shells(Context& ctx) {
  auto one = ctx.spawn<Shell>();
  std::cout << ctx.get(one.call<&Shell::runs>("exit 3")) / 256 << ' '
            << ctx.get(one.call<&Shell::forks>()) << ' ' << ctx.get(one.call<&Shell::threads>())
            << '\n';
}
/// Proves that methods may run commands, fork and start threads.
const Program shell{"an_actor_that_forks_and_runs_commands", {.expect = "3 7 4\n"}, shells};

// --- arguments that wait ---

int fails() {
  throw std::runtime_error("no argument");
}
void waiting_arguments(Context& ctx) {
  auto one = ctx.spawn<Counter>();
  auto first = one.call<&Counter::add>(ctx.submit<slow>(1));  // holds back the calls behind it
  auto second = one.call<&Counter::add>(10);
  auto never = one.call<&Counter::add>(ctx.submit<fails>());
  auto third = one.call<&Counter::add>(100);
  std::cout << ctx.get(first) << ' ' << ctx.get(second) << ' ' << ctx.get(third) << ' ';
  try {
    ctx.get(never);
  } catch (const troupe::TaskFailed& e) {
    std::cout << (troupe::explain(e).find("no argument") != std::string::npos);
  }
  auto doomed = ctx.spawn<Counter>();
  auto waits = doomed.call<&Counter::add>(ctx.submit<slow>(1));
  ctx.kill(doomed);
  const auto killed = ctx.try_get(waits, 10s);
  std::cout << ' ' << (killed ? "ran" : name_of(killed.error().code())) << '\n';
}
/// Proves that a call which waits for an argument holds back later calls, and that it ends with a
/// failed argument or with its actor.
const Program late{
    "calls_whose_arguments_wait", {.expect = "1 11 111 1 actor_died\n"}, waiting_arguments};

}  // namespace
}  // namespace handles
