// Proves that a run that waits in a coroutine leaves its CPU to the work that it waits for.
#include "tests/programs/program.hpp"

#include <chrono>
#include <string>

namespace tasks_coroutines {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;

int twice(int x) {
  return 2 * x;
}
troupe::Task<int> twice_elsewhere(Context& ctx, int x) {
  const Ref<int> answer = ctx.submit<twice>(x);
  co_return co_await answer;
}

int cpus_of(Context& ctx) {
  double cpus = 0;
  for (const auto& node : ctx.cluster().nodes) cpus += node.cpus;
  return static_cast<int>(cpus);
}

void wait_for_others(Context& ctx) {
  // As many as there are CPUs, and more.
  for (const int tasks : {cpus_of(ctx), 37}) {
    std::vector<Ref<int>> refs;
    for (int i = 0; i < tasks; ++i) refs.push_back(ctx.submit<twice_elsewhere>(1));
    int sum = 0;
    for (const int x : ctx.get(refs)) sum += x;
    std::cout << (sum == 2 * tasks) << std::endl;
  }
}
/// Proves that tasks end that each await a task of their own, although they have all CPUs.
const Program tasks{
    "coroutines_await_tasks_of_their_own", {.expect = "1\n1\n", .seconds = 30}, wait_for_others};

struct Greedy {
  troupe::Task<int> ask(ActorContext& ctx, int x) {
    const Ref<int> answer = ctx.submit<twice>(x);
    co_return co_await answer;
  }
  troupe::Task<int> ask_itself(ActorContext& ctx, int x) {
    const Ref<int> answer = ctx.self<Greedy>().call<&Greedy::ask>(x);
    co_return co_await answer;
  }
};

void wait_in_actors(Context& ctx) {
  std::vector<troupe::Actor<Greedy>> actors;
  for (const auto& node : ctx.cluster().nodes)
    actors.push_back(ctx.with({.cpus = node.cpus}).spawn<Greedy>());
  for (auto& actor : actors) {
    if (ctx.get(actor.call<&Greedy::ask>(1)) != 2) std::cout << "ask\n";
    if (ctx.get(actor.call<&Greedy::ask_itself>(2)) != 4) std::cout << "ask_itself\n";
  }
  std::cout << "all\n";
}
/// Proves the same of methods of actors that have all CPUs, also where an actor calls itself.
const Program methods{
    "methods_await_tasks_of_their_own", {.expect = "all\n", .seconds = 20}, wait_in_actors};

class OnDevice {
 public:
  troupe::Task<int> wait() {
    co_await open_;
    co_return 1;
  }
  void open() { open_.set(); }
  int begun() const { return 1; }

 private:
  troupe::AsyncEvent open_;
};

int keep_device(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::Session session({.cpus = 2, .gpus = 1});
  Context ctx = session.context();
  auto actor = ctx.with({.gpus = 1}).spawn<OnDevice>();
  const Ref<int> waits = actor.call<&OnDevice::wait>();
  ctx.get(actor.call<&OnDevice::begun>());
  const Ref<int> other = ctx.with({.gpus = 1}).submit<twice>(1);
  std::cout << (ctx.try_get(other, 300ms).ok() ? "shared" : "kept") << std::endl;
  actor.tell<&OnDevice::open>();
  std::cout << ctx.get(waits) << '\n';
  actor = {};
  std::cout << ctx.get(other, 8s) << '\n';
  return 0;
}
/// Proves that an actor keeps its device while its call waits in a coroutine. No GPU takes part.
const Program device{
    "an_actor_that_waits_keeps_its_device", {.expect = "kept\n1\n2\n", .nodes = 1}, keep_device};

}  // namespace
}  // namespace tasks_coroutines
