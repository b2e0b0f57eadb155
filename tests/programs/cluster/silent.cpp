// Proves what callers hear of a silent node that is not known to be dead, and of a dead node.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <csignal>
#include <fstream>
#include <thread>

namespace silent {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::ActorOptions;
using troupe::Context;
using troupe::Placement;
using troupe::Ref;

struct Counter {
  int n = 0;
  int pid() const { return ::getpid(); }
  int add(int k) { return n += k; }
  int add_slowly(int k) {
    std::this_thread::sleep_for(300ms);
    return n += k;
  }
};

int parent_of(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  int own = 0, parent = 0;
  std::string name, state;
  stat >> own >> name >> state >> parent;
  return parent;
}

/// The processes of the actor's node: worker, zygote and agent.
struct Node {
  explicit Node(int pid) : worker(pid), zygote(parent_of(worker)), agent(parent_of(zygote)) {}
  void hit(int signal) const {
    for (const int pid : {agent, zygote, worker})
      if (pid > 1) ::kill(pid, signal);
  }
  int worker, zygote, agent;
};

troupe::NodeId another_node(Context& ctx) {
  for (const auto& node : ctx.cluster().nodes)
    if (node.id != ctx.node()) return node.id;
  return {};
}

std::string end_of(Context& ctx, const Ref<int>& call, troupe::Duration timeout) {
  try {
    return std::to_string(ctx.get(call, timeout));
  } catch (const troupe::ActorUnavailable& e) {
    return std::string("ActorUnavailable ") + (e.maybe_executed() ? "maybe" : "not");
  } catch (const troupe::ActorDied&) {
    return "ActorDied";
  } catch (const troupe::TimedOut&) {
    return "TimedOut";
  }
}

void stops_and_goes_on(Context& ctx) {
  auto counter =
      ctx.with(ActorOptions{.placement = Placement::on(another_node(ctx))}).spawn<Counter>();
  const Node node(ctx.get(counter.call<&Counter::pid>()));
  auto slow = counter.call<&Counter::add_slowly>(1);
  std::cout << end_of(ctx, slow, 50ms) << '\n';  // busy is not silent
  node.hit(SIGSTOP);
  auto call = counter.call<&Counter::add>(1);
  std::cout << end_of(ctx, call, 0s) << '\n';  // a look does not wait
  std::cout << end_of(ctx, call, 3s) << '\n';
  std::cout << end_of(ctx, slow, 10ms) << '\n';
  node.hit(SIGCONT);
  std::cout << end_of(ctx, call, 3s) << '\n';  // the same call continues, and counts once
  std::cout << end_of(ctx, counter.call<&Counter::add>(1), 3s) << '\n';
}
/// Proves that calls to a silent node end as ActorUnavailable, and go on when the node does.
const Program stops{"a_node_that_stops_for_3_s",
                    {.expect = "TimedOut\nTimedOut\nActorUnavailable maybe\nActorUnavailable "
                               "maybe\n2\n3\n",
                     .seconds = 20,
                     .nodes = 3},
                    stops_and_goes_on};

void dies(Context& ctx) {
  auto counter =
      ctx.with(ActorOptions{.placement = Placement::on(another_node(ctx))}).spawn<Counter>();
  const Node node(ctx.get(counter.call<&Counter::pid>()));
  node.hit(SIGSTOP);
  auto call = counter.call<&Counter::add>(1);
  std::cout << end_of(ctx, call, 3s) << '\n';
  node.hit(SIGKILL);
  std::cout << end_of(ctx, call, 10s) << '\n';
  std::cout << end_of(ctx, counter.call<&Counter::add>(1), 10s) << '\n';
}
/// Proves that the death of a silent node turns its calls into ActorDied.
const Program death{
    "a_node_that_stops_and_dies",
    {.expect = "ActorUnavailable maybe\nActorDied\nActorDied\n", .seconds = 25, .nodes = 3},
    dies};

}  // namespace
}  // namespace silent
