// Proves programs on several nodes: placement, values and actors between nodes, resources, and a
// node that dies.
#include "tests/programs/program.hpp"

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <set>
#include <thread>

namespace cluster {
namespace {

using namespace std::chrono_literals;
using namespace troupe::literals;
using programs::Program;
using troupe::Context;
using troupe::NodeId;
using troupe::Placement;
using troupe::Ref;

NodeId here(Context& ctx) {
  return ctx.node();
}
struct Sitting {
  NodeId where(troupe::ActorContext& ctx) { return ctx.node(); }
  int twice(int x) { return 2 * x; }
};
int same(int x) {
  return x;
}
int waits(int x) {
  std::this_thread::sleep_for(20ms);
  return x;
}

// --- nodes ---

void nodes(Context& ctx) {
  const auto all = ctx.cluster().nodes;
  std::set<NodeId> ids;
  bool sane = true;
  for (const auto& node : all) {
    ids.insert(node.id);
    sane = sane && node.alive && node.cpus > 0 && node.gpus == 0 && !node.name.empty();
  }
  std::cout << all.size() << ids.size() << sane << ids.count(ctx.node()) << ctx.gpu_ids().size()
            << '\n';
}
/// Proves that the list of nodes is complete and sensible.
const Program three_nodes{"three_nodes", {.expect = "33110\n", .nodes = 3}, nodes};
/// The same on one node.
const Program one_node{"one_node", {.expect = "11110\n", .nodes = 1}, nodes};

void placed(Context& ctx) {
  int right = 0;
  for (const auto& node : ctx.cluster().nodes) {
    const troupe::Options there{.placement = Placement::on(node.id)};
    for (int i = 0; i < 3; ++i) right += ctx.get(ctx.with(there).submit<here>()) == node.id ? 1 : 0;
    auto actor = ctx.with(there).spawn<Sitting>();
    right += ctx.get(actor.call<&Sitting::where>()) == node.id ? 1 : 0;
  }
  std::cout << right << '\n';
  try {
    ctx.get(ctx.with({.placement = Placement::on(NodeId{})}).submit<here>(), 5s);
    std::cout << "ran\n";
  } catch (const troupe::Error& e) {
    std::cout << troupe::name_of(e.code()) << '\n';
  }
  const auto soft = Placement::on(NodeId{}, true);
  std::cout << (ctx.get(ctx.with({.placement = soft}).submit<here>()) == NodeId{}) << '\n';
}
/// Proves that tasks and actors run on the node that they name. An unknown node is infeasible,
/// unless the placement is soft.
const Program placement{"placed_on_a_node", {.expect = "12\ninfeasible\n0\n", .nodes = 3}, placed};

void spread(Context& ctx) {
  std::set<NodeId> nodes;
  std::vector<troupe::Actor<Sitting>> actors;
  for (int i = 0; i < 6; ++i)
    actors.push_back(ctx.with(troupe::ActorOptions{.cpus = 0.5, .placement = Placement::spread})
                         .spawn<Sitting>());
  for (auto& actor : actors) nodes.insert(ctx.get(actor.call<&Sitting::where>()));
  std::cout << nodes.size() << '\n';
}
/// Proves that spread actors which reserve CPUs lie on all nodes.
const Program spreads{"actors_spread", {.expect = "3\n", .nodes = 3}, spread};

/// These actors reserve nothing by which nodes would differ. Two must be on each.
void spread_free(Context& ctx) {
  std::map<NodeId, int> nodes;
  std::vector<troupe::Actor<Sitting>> actors;
  for (int i = 0; i < 6; ++i)
    actors.push_back(
        ctx.with(troupe::ActorOptions{.placement = Placement::spread}).spawn<Sitting>());
  for (auto& actor : actors) ++nodes[ctx.get(actor.call<&Sitting::where>())];
  for (const auto& [node, count] : nodes) std::cout << count;
  std::cout << '\n';
}
/// Proves that spread actors which reserve nothing lie on all nodes in equal numbers.
const Program spreads_free{
    "actors_that_reserve_nothing_spread", {.expect = "222\n", .nodes = 3}, spread_free};

std::vector<double> numbers(std::size_t n) {
  return std::vector<double>(n, 0.5);
}
double sum(const std::vector<double>& all) {
  double total = 0;
  for (const double x : all) total += x;
  return total;
}
void between(Context& ctx) {
  // Each node makes a value, and each node reads all values.
  const auto all = ctx.cluster().nodes;
  long total = 0;
  std::vector<Ref<double>> sums;
  std::vector<Ref<std::vector<double>>> made;
  for (const auto& node : all)
    made.push_back(
        ctx.with({.placement = Placement::on(node.id)}).submit<numbers>(std::size_t{500'000}));
  for (const auto& node : all)
    for (const auto& value : made)
      sums.push_back(ctx.with({.placement = Placement::on(node.id)}).submit<sum>(value));
  for (const double x : ctx.get(sums)) total += static_cast<long>(x);
  std::cout << total << '\n';
}
/// Proves that large values are read on nodes other than their own.
const Program transfer{
    "values_between_nodes", {.expect = "2250000\n", .seconds = 20, .nodes = 3}, between};

void actors_between(Context& ctx) {
  const auto all = ctx.cluster().nodes;
  std::vector<troupe::Actor<Sitting>> actors;
  for (const auto& node : all)
    actors.push_back(ctx.with({.placement = Placement::on(node.id)}).spawn<Sitting>());
  Ref<int> x = ctx.put(1);
  for (int i = 0; i < 9; ++i) x = actors[static_cast<std::size_t>(i) % 3].call<&Sitting::twice>(x);
  std::cout << ctx.get(x) << '\n';
}
/// Proves that results pass from actor to actor between nodes.
const Program chain{
    "a_chain_of_actors_on_three_nodes", {.expect = "512\n", .nodes = 3}, actors_between};

// --- what a session says of its nodes ---

int described(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::SessionOptions options;
  options.cpus = 4;
  options.gpus = 2;
  options.memory = 256_MiB;
  options.resources = {{"licence", 1}};
  options.labels = {{"kind", "fast"}};
  troupe::Session session(options);
  Context ctx = session.context();
  const auto node = ctx.cluster().nodes.at(0);
  std::cout << node.cpus << ' ' << node.gpus << ' '
            << ctx.get(ctx.with({.labels = {{"kind", "fast"}}}).submit<same>(1)) << ' '
            << ctx.get(ctx.with({.gpus = 2}).submit([](Context& c) { return c.gpu_ids().size(); }))
            << ' ';
  // With one licence the tasks run one at a time, and all of them run.
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 5; ++i)
    refs.push_back(ctx.with({.resources = {{"licence", 1}}}).submit<waits>(i));
  int total = 0;
  for (const int x : ctx.get(refs)) total += x;
  std::cout << total << '\n';
  return 0;
}
/// Proves that a session's resources, labels and GPUs are those of its options.
const Program descriptions{"resources_and_labels", {.expect = "4 2 1 2 10\n"}, described};

int two_cpus(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  // One such actor leaves too little for the second.
  const troupe::ActorOptions one{.cpus = 1.5};
  auto a = ctx.with(one).spawn<Sitting>();
  std::cout << ctx.get(a.call<&Sitting::twice>(1));
  auto b = ctx.with(one).spawn<Sitting>();
  auto late = b.call<&Sitting::twice>(2);
  std::cout << ctx.try_get(late, 200ms).ok();
  a = {};
  std::cout << ctx.get(late) << '\n';
  return 0;
}
/// Proves that an actor waits while another reserves the CPUs that it needs.
const Program reserved{"actors_reserve_cpus", {.expect = "204\n", .nodes = 1}, two_cpus};

int explicit_one(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto a = ctx.with(troupe::ActorOptions{.cpus = 1}).spawn<Sitting>();
  std::cout << ctx.get(a.call<&Sitting::twice>(1));
  auto b = ctx.with(troupe::ActorOptions{.cpus = 1}).spawn<Sitting>();
  auto late = b.call<&Sitting::twice>(2);
  std::cout << ctx.try_get(late, 200ms).ok();
  a = {};
  std::cout << ctx.get(late) << '\n';
  return 0;
}
/// The same for an actor that reserves the only CPU.
const Program one_cpu{"an_actor_reserves_one_cpu", {.expect = "204\n", .nodes = 1}, explicit_one};

/// Options without a type serve every verb. An actor with them reserves what they say, and
/// nothing by default.
int any_options(int& argc, char** argv) {
  troupe::enter(argc, argv);
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<troupe::Actor<Sitting>> sitting;
  for (int i = 0; i < 3; ++i) sitting.push_back(ctx.with({.memory = {}}).spawn<Sitting>());
  sitting.push_back(ctx.with({.cpus = 0}).spawn<Sitting>());
  sitting.push_back(ctx.spawn<Sitting>());
  for (const auto& one : sitting) std::cout << ctx.get(one.call<&Sitting::twice>(1));
  auto holds = ctx.with({.cpus = 1}).spawn<Sitting>();
  std::cout << ctx.get(holds.call<&Sitting::twice>(2));
  auto task = ctx.submit<same>(5);
  std::cout << ctx.try_get(task, 200ms).ok();
  holds = {};
  std::cout << ctx.get(task) << '\n';
  return 0;
}
/// Proves that actors reserve nothing by default, and that a task waits for an actor that
/// reserves the CPU.
const Program by_default{
    "actors_reserve_nothing_by_default", {.expect = "22222405\n", .nodes = 1}, any_options};

// --- a node dies ---

int ends_its_agent(int) {
  // The agent is the parent of the zygote that forked this worker.
  char text[64];
  std::snprintf(text, sizeof text, "/proc/%d/stat", static_cast<int>(::getppid()));
  FILE* file = std::fopen(text, "r");
  int agent = 0;
  if (file == nullptr || std::fscanf(file, "%*d (%*[^)]) %*c %d", &agent) != 1) return -1;
  std::fclose(file);
  ::kill(agent, SIGKILL);
  std::this_thread::sleep_for(20s);
  return 0;
}
void node_dies(Context& ctx) {
  const auto all = ctx.cluster().nodes;
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const auto& node) { return !(node.id == ctx.node()); });
  const auto there = Placement::on(other->id);
  auto safe = ctx.put(numbers(10'000), {.replicas = 3});
  troupe::TaskOptions options;
  options.placement = there;
  options.max_retries = 0;
  try {
    ctx.get(ctx.with(options).submit<ends_its_agent>(1));
  } catch (const troupe::WorkerDied& e) {
    std::cout << "WorkerDied " << e.maybe_executed() << ' ';
  }
  std::cout << ctx.get(ctx.submit<sum>(safe)) << '\n';
}
/// Proves the error of a task whose node dies, and that a replica is read afterwards.
const Program node_death{
    "a_node_dies", {.expect = "WorkerDied 1 5000\n", .seconds = 20, .nodes = 3}, node_dies};

}  // namespace
}  // namespace cluster
