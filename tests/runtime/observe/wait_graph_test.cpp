// Tests what WaitGraph says about waits that are planted: chains, demands that nobody can meet,
// cycles, full clusters, dead nodes, constructors, and random graphs.
#include "troupe/runtime/observe/wait_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/base/random.hpp"

namespace troupe::observe {
namespace wait_graph_test {
namespace {

using Kind = Thing::Kind;
using State = Fact::State;
constexpr std::uint64_t kSecond = 1'000'000'000;

/// A cluster that knows its own state and answers as its owners would.
class World {
 public:
  Fact& add(Kind kind, const std::string& id, State state,
            const std::vector<Thing>& waits_for = {}) {
    Fact& fact = facts_[{kind, id}];
    fact.thing = {kind, id, "node-0"};
    fact.state = state;
    fact.waits_for = waits_for;
    return fact;
  }
  WaitGraph::Ask asker() {
    return [this](const Thing& thing) -> Result<Fact> {
      ++asked;
      if (silent.count(thing.owner) != 0)
        return Error(Code::timed_out, thing.owner + " gave no answer in 1 s");
      const auto at = facts_.find({thing.kind, thing.id});
      if (at == facts_.end()) return Error(Code::invalid_argument, "no such thing");
      return at->second;
    };
  }
  Explanation explain(Kind kind, const std::string& id) {
    return WaitGraph(asker()).explain({kind, id, "node-0"});
  }
  Survey survey() {
    std::vector<Fact> waiting;
    for (const auto& [key, fact] : facts_)
      if ((key.first == Kind::thread || key.first == Kind::request || key.first == Kind::actor) &&
          fact.state != State::ready)
        waiting.push_back(fact);
    return WaitGraph(asker()).survey(waiting);
  }
  std::set<std::string> silent;
  int asked = 0;

 private:
  std::map<std::pair<Kind, std::string>, Fact> facts_;
};

Thing object(const std::string& id) {
  return {Kind::object, id, "node-0"};
}
Thing task(const std::string& id) {
  return {Kind::task, id, "node-0"};
}
Thing call(const std::string& id) {
  return {Kind::call, id, "node-0"};
}
Thing request(const std::string& id) {
  return {Kind::request, id, "node-0"};
}
Thing worker(const std::string& id) {
  return {Kind::worker, id, "node-0"};
}

bool has(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// Tasks f1 to fN, each of which waits for the next one's result. The last one has this state.
Fact& plant_chain(World& world, int length, State end) {
  world.add(Kind::thread, "node-0/8185", State::blocked, {object("o1")}).since_ns = 60 * kSecond;
  for (int i = 1; i <= length; ++i) {
    const std::string n = std::to_string(i), after = std::to_string(i + 1);
    world.add(Kind::object, "o" + n, State::waits, {task("t" + n)});
    Fact& fact = world.add(Kind::task, "t" + n, State::waits, {object("o" + after)});
    fact.name = "f" + n;
  }
  Fact& last = world.add(Kind::task, "t" + std::to_string(length), end);
  last.name = "f" + std::to_string(length);
  return last;
}

TEST(WaitGraph, AChainOfTwelveTasksLeadsToTheOneThatRuns) {
  World world;
  Fact& last = plant_chain(world, 12, State::runs);
  last.place = "node-2/77";
  last.since_ns = 12 * kSecond;
  const Explanation explanation = world.explain(Kind::thread, "node-0/8185");
  EXPECT_EQ(explanation.cause, Cause::runs);
  ASSERT_EQ(explanation.lines.size(), 14u) << joined(explanation.lines);
  EXPECT_EQ(explanation.lines[0],
            "Process node-0/8185 waits in get 1m 0s for object o1, the result of task 'f1' (t1).");
  EXPECT_EQ(explanation.lines[1],
            "Task 'f1' (t1) waits for its argument, object o2, the result of task 'f2' (t2).");
  EXPECT_EQ(explanation.lines[12], "Task 'f12' (t12) runs at node-2/77 for 12s.");
  EXPECT_EQ(explanation.lines[13], "Next: troupe stack says where it is.");
  EXPECT_EQ(world.explain(Kind::object, "o12").lines[0],
            "Object o12 is the result of task 'f12' (t12).");
}

TEST(WaitGraph, TheArgumentThatLacksMostDecides) {
  World world;
  world.add(Kind::task, "t0", State::waits, {object("o1"), object("o2"), object("o3")}).name =
      "sum";
  world.add(Kind::object, "o1", State::ready);
  world.add(Kind::object, "o2", State::waits, {task("t2")});
  world.add(Kind::task, "t2", State::runs).name = "load";
  Fact& lost = world.add(Kind::object, "o3", State::lost);
  lost.place = "node-3";
  lost.why = "node-3 died: killed by signal 9";
  const Explanation explanation = world.explain(Kind::task, "t0");
  EXPECT_EQ(explanation.cause, Cause::lost);
  EXPECT_EQ(explanation.lines.at(1),
            "Object o3 is lost at node-3: node-3 died: killed by signal 9.")
      << joined(explanation.lines);
}

TEST(WaitGraph, AGpuThatNobodyHas) {
  World world;
  plant_chain(world, 2, State::waits).waits_for = {request("r1")};
  Fact& fact = world.add(Kind::request, "r1", State::impossible);
  fact.needs = "8 GPUs";
  fact.why = "no node has more than 0";
  fact.count = 300;
  const Explanation explanation = world.explain(Kind::thread, "node-0/8185");
  EXPECT_EQ(explanation.cause, Cause::impossible);
  EXPECT_TRUE(has(explanation.lines,
                  "The request (r1) for 8 GPUs can never be granted, whoever "
                  "ends: no node has more than 0."))
      << joined(explanation.lines);
  EXPECT_TRUE(has(explanation.lines, "start a node that has it"));
  const Survey survey = world.survey();
  ASSERT_EQ(survey.impossible.size(), 1u);
  EXPECT_EQ(survey.impossible[0].text, "nobody can give 8 GPUs: no node has more than 0");
  EXPECT_EQ(survey.impossible[0].count, 301u) << "the tasks of the request, and the thread";
}

/// Two actors whose present calls wait for a call that waits behind the other's present call.
void plant_actor_cycle(World& world) {
  const auto plant = [&](const std::string& self, const std::string& actor,
                         const std::string& other) {
    Fact& present = world.add(Kind::call, self, State::blocked, {object("o" + self)});
    present.name = actor + "::run";
    present.actor = actor;
    present.place = "node-0/" + self;
    world.add(Kind::object, "o" + self, State::waits, {call("q" + self)});
    Fact& queued = world.add(Kind::call, "q" + self, State::waits, {call(other)});
    queued.name = "ask";
    queued.actor = actor == "Ping" ? "Pong" : "Ping";
  };
  plant("1", "Ping", "2");
  plant("2", "Pong", "1");
  world.add(Kind::thread, "node-0/9", State::blocked, {object("o0")}).since_ns = 20 * kSecond;
  world.add(Kind::object, "o0", State::waits, {call("1")});
}

TEST(WaitGraph, TwoActorsThatWaitForEachOtherAreNamed) {
  World world;
  plant_actor_cycle(world);
  const Survey survey = world.survey();
  ASSERT_EQ(survey.cycles.size(), 1u);
  EXPECT_EQ(survey.cycles[0].text, "Ping, Pong wait for each other");
  EXPECT_EQ(survey.cycles[0].things.size(), 6u);
  EXPECT_TRUE(
      has(survey.cycles[0].lines,
          "Call 'Ping::run' (1) of actor Ping runs at node-0/1, and waits in get for object "
          "o1, the result of call 'ask' (q1) of actor Pong."))
      << joined(survey.cycles[0].lines);
  EXPECT_TRUE(survey.groups.empty()) << "the thread behind the cycle is part of that news";
  const Explanation explanation = world.explain(Kind::thread, "node-0/9");
  EXPECT_EQ(explanation.cause, Cause::cycle);
  EXPECT_TRUE(has(explanation.lines, "This is a cycle")) << joined(explanation.lines);
  EXPECT_EQ(explanation.lines.size(), 6u) << joined(explanation.lines);
}

TEST(WaitGraph, AnActorThatWaitsForItself) {
  World world;
  Fact& present = world.add(Kind::call, "1", State::blocked, {object("o1")});
  present.actor = "Solo";
  world.add(Kind::object, "o1", State::waits, {call("q1")});
  world.add(Kind::call, "q1", State::waits, {call("1")}).actor = "Solo";
  world.add(Kind::thread, "node-0/9", State::blocked, {object("o1")});
  const Survey survey = world.survey();
  ASSERT_EQ(survey.cycles.size(), 1u);
  EXPECT_EQ(survey.cycles[0].text, "Solo waits for itself");
}

/// A request for a CPU that these workers hold; each runs one task.
void plant_request(World& world, const std::vector<std::string>& holders, State of_their_tasks) {
  Fact& wanted = world.add(Kind::request, "r1", State::lacks);
  wanted.any = true;
  wanted.needs = "1 CPU";
  wanted.why = "at node-0: all 2 CPUs are in use";
  wanted.count = 300000;
  wanted.since_ns = 40 * kSecond;
  for (const std::string& holder : holders) {
    wanted.waits_for.push_back(worker(holder));
    Fact& process = world.add(Kind::worker, holder, State::waits, {task("of " + holder)});
    process.needs = "1 CPU";
    Fact& busy = world.add(Kind::task, "of " + holder, of_their_tasks);
    busy.name = "grind";
    busy.place = holder;
  }
}

TEST(WaitGraph, AFullClusterSaysWhoHoldsIt) {
  World world;
  plant_request(world, {"node-0/1", "node-0/2"}, State::runs);
  const Explanation explanation = world.explain(Kind::request, "r1");
  EXPECT_EQ(explanation.cause, Cause::lacks);
  EXPECT_EQ(explanation.lines.at(0),
            "The request (r1) for 1 CPU waits for resources that others use "
            "for 40s: at node-0: all 2 CPUs are in use.");
  EXPECT_EQ(
      explanation.lines.at(1),
      "They are held by process node-0/1, which holds 1 CPU, runs task 'grind' (of node-0/1); "
      "process node-0/2, which holds 1 CPU, runs task 'grind' (of node-0/2).");
  const Survey survey = world.survey();
  ASSERT_EQ(survey.groups.size(), 1u);
  EXPECT_EQ(survey.groups[0].count, 300000u);
  EXPECT_EQ(survey.lines().at(0),
            "300000 wait, up to 40s: no room now for 1 CPU: at node-0: all 2 "
            "CPUs are in use.");
}

TEST(WaitGraph, ARequestThatWasPassedOnWaitsForWhatTheOtherNodeLacks) {
  World world;
  plant_request(world, {"node-1/1"}, State::runs);
  Fact& passed_on = world.add(Kind::request, "r0", State::lacks, {{Kind::request, "r1", "node-1"}});
  passed_on.any = true;
  const Explanation explanation = world.explain(Kind::request, "r0");
  EXPECT_EQ(explanation.cause, Cause::lacks);
  EXPECT_EQ(explanation.lines.at(0),
            "The request (r0) was passed on to node-1 as the request (r1) for 1 CPU.");
  EXPECT_TRUE(has(explanation.lines, "all 2 CPUs are in use")) << joined(explanation.lines);
  EXPECT_TRUE(has(explanation.lines, "They are held by process node-1/1"));
}

TEST(WaitGraph, ALeaseThatABlockedProcessHolds) {
  World world;
  plant_request(world, {"node-0/1"}, State::blocked);
  Fact& holder = world.add(Kind::task, "of node-0/1", State::blocked, {object("o1")});
  holder.name = "grind";
  holder.place = "node-0/1";
  world.add(Kind::object, "o1", State::waits, {task("t9")});
  world.add(Kind::task, "t9", State::runs).name = "slow";
  const Explanation explanation = world.explain(Kind::request, "r1");
  EXPECT_TRUE(has(explanation.lines,
                  "Task 'grind' (of node-0/1) runs at node-0/1, and waits in get "
                  "for object o1, the result of task 'slow' (t9)."))
      << joined(explanation.lines);
  EXPECT_TRUE(has(explanation.lines, "Task 'slow' (t9) runs."));

  // The same with a task that waits for this very request is a cycle.
  world.add(Kind::task, "t9", State::waits, {request("r1")}).name = "slow";
  EXPECT_EQ(world.explain(Kind::request, "r1").cause, Cause::cycle);
  ASSERT_EQ(world.survey().cycles.size(), 1u);
  EXPECT_EQ(world.survey().cycles[0].text, "grind, slow wait for each other");

  // Another holder that runs ends it: one is enough.
  plant_request(world, {"node-0/1", "node-0/2"}, State::runs);
  world.add(Kind::task, "of node-0/1", State::blocked, {object("o1")});
  EXPECT_EQ(world.explain(Kind::request, "r1").cause, Cause::lacks);
  EXPECT_TRUE(world.survey().cycles.empty());
}

TEST(WaitGraph, AConstructorThatTakesMinutesIsNoLackOfAPlace) {
  World world;
  Fact& slow = world.add(Kind::actor, "a1", State::runs);
  slow.name = "Model";
  slow.place = "node-1/80";
  slow.since_ns = 240 * kSecond;
  Fact& homeless = world.add(Kind::actor, "a2", State::waits, {request("r2")});
  homeless.name = "Cache";
  homeless.since_ns = 30 * kSecond;
  Fact& wanted = world.add(Kind::request, "r2", State::lacks);
  wanted.needs = "1 GPU";
  wanted.why = "at node-0: its GPU is in use";
  EXPECT_EQ(world.explain(Kind::actor, "a1").lines.at(0),
            "Actor 'Model' (a1) runs its constructor at node-1/80 for 4m 0s.");
  const Explanation explanation = world.explain(Kind::actor, "a2");
  EXPECT_EQ(explanation.cause, Cause::lacks);
  EXPECT_EQ(explanation.lines.at(0),
            "Actor 'Cache' (a2) has no place yet 30s, and waits for the request (r2) for 1 GPU.");
  const Survey survey = world.survey();
  EXPECT_TRUE(has(survey.lines(), "1 waits, up to 4m 0s: the constructor of 'Model' runs."))
      << joined(survey.lines());
  EXPECT_TRUE(has(survey.lines(), "no room now for 1 GPU"));
}

TEST(WaitGraph, ShortWaitsAreNoNews) {
  World world;
  plant_request(world, {"node-0/1"}, State::runs);
  world.add(Kind::request, "r1", State::lacks).since_ns = 9 * kSecond;
  EXPECT_EQ(world.survey().lines(),
            std::vector<std::string>{"Nothing waits for 10 seconds or more."});
}

TEST(WaitGraph, TheLargestGroupComesFirst) {
  World world;
  for (int i = 0; i < 6; ++i) {
    Fact& fact = world.add(Kind::request, "r" + std::to_string(i), State::lacks);
    fact.since_ns = 20 * kSecond;
    fact.why = i < 2 ? "two" : "four";
  }
  const Survey survey = world.survey();
  ASSERT_EQ(survey.groups.size(), 2u);
  EXPECT_EQ(survey.groups[0].text, "no room now: four");
  EXPECT_EQ(survey.groups[0].count, 4u);
}

TEST(WaitGraph, ASilentOwnerIsAskedOnce) {
  World world;
  std::vector<Thing> arguments;
  for (int i = 0; i < 20; ++i)
    arguments.push_back({Kind::object, "o" + std::to_string(i), "node-1/31"});
  world.add(Kind::task, "t1", State::waits, arguments).name = "sum";
  world.silent.insert("node-1/31");
  const Explanation explanation = world.explain(Kind::task, "t1");
  EXPECT_EQ(world.asked, 2);
  EXPECT_EQ(explanation.cause, Cause::unanswered);
  EXPECT_TRUE(has(explanation.lines, "gave no answer in 1 s") ||
              has(explanation.lines, "node-1/31 does not answer"))
      << joined(explanation.lines);
  world.add(Kind::thread, "node-0/1", State::blocked, {task("t1")}).since_ns = 20 * kSecond;
  EXPECT_FALSE(world.survey().complete);
}

TEST(WaitGraph, TheStepsAreBounded) {
  World world;
  plant_chain(world, 800, State::runs);
  const Explanation explanation = world.explain(Kind::thread, "node-0/8185");
  EXPECT_EQ(world.asked, 1000);
  EXPECT_EQ(explanation.cause, Cause::unanswered);
  EXPECT_TRUE(has(explanation.lines, "the graph is too large"));
}

TEST(WaitGraph, HostileFactsAreBounded) {
  World world;
  std::vector<Thing> many;
  for (int i = 0; i < 100000; ++i) many.push_back(object(std::to_string(i)));
  Fact& fact = world.add(Kind::task, "t1", State::waits, many);
  fact.name = "\x1b[2J" + std::string(1 << 20, 'x');
  const Explanation explanation = world.explain(Kind::task, "t1");
  EXPECT_LE(world.asked, 65);
  EXPECT_LT(joined(explanation.lines).size(), 1000u);
  EXPECT_EQ(joined(explanation.lines).find('\x1b'), std::string::npos);
  // An owner that tells of something else than it was asked about.
  World liar;
  liar.add(Kind::object, "o1", State::waits, {object("o1")}).thing = task("t7");
  EXPECT_EQ(liar.explain(Kind::object, "o1").cause, Cause::cycle);
}

std::string id_of(std::size_t i) {
  return "w" + std::to_string(1000 + i);
}

TEST(WaitGraph, RandomWaitsHaveExactlyThePlantedCycles) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    constexpr std::size_t kWaits = 200;
    std::vector<std::set<std::size_t>> edges(kWaits);
    // Waits lead to higher numbers, so they form no cycle.
    for (std::size_t i = 0; i + 1 < kWaits; ++i)
      for (std::uint64_t n = random.below(3); n > 0; --n)
        edges[i].insert(i + 1 + random.below(kWaits - i - 1));
    // A cycle takes things of its own, which only it connects.
    std::set<std::set<std::string>> planted;
    std::size_t next = 0;
    for (std::uint64_t n = random.below(5); n > 0; --n) {
      const std::size_t size = 1 + random.below(7);
      std::set<std::string> members;
      for (std::size_t i = 0; i < size; ++i) {
        edges[next + i] = {next + (i + 1) % size};
        members.insert(id_of(next + i));
      }
      planted.insert(members);
      next += size;
    }
    World world;
    for (std::size_t i = 0; i < kWaits; ++i) {
      std::vector<Thing> waits_for;
      for (const std::size_t to : edges[i]) waits_for.push_back({Kind::actor, id_of(to), "node-0"});
      world.add(Kind::actor, id_of(i), waits_for.empty() ? State::runs : State::waits, waits_for);
    }
    std::set<std::set<std::string>> found;
    const Survey survey = world.survey();
    for (const auto& cycle : survey.cycles) {
      std::set<std::string> members;
      for (const Thing& thing : cycle.things) members.insert(thing.id);
      found.insert(members);
    }
    EXPECT_EQ(found, planted) << "seed " << seed;
    EXPECT_EQ(survey.cycles.size(), planted.size());
    EXPECT_TRUE(survey.complete);
  }
}

/// Computes the cause of each wait by the definition: the worst of all, or the mildest of any, over
/// and over until nothing changes.
std::vector<Cause> causes_by_definition(const std::vector<Fact>& facts) {
  std::vector<Cause> causes(facts.size(), Cause::cycle);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < facts.size(); ++i) {
      Cause cause = facts[i].state == State::runs    ? Cause::runs
                    : facts[i].state == State::lost  ? Cause::lost
                    : facts[i].state == State::ready ? Cause::ready
                                                     : Cause::cycle;
      if (facts[i].state == State::waits) {
        cause = facts[i].any ? Cause::cycle : Cause::ready;
        for (const Thing& thing : facts[i].waits_for) {
          const Cause of = causes[std::stoul(thing.id.substr(1)) - 1000];
          cause = facts[i].any ? std::min(cause, of) : std::max(cause, of);
        }
      }
      changed = changed || cause != causes[i];
      causes[i] = cause;
    }
  }
  return causes;
}

TEST(WaitGraph, RandomWaitsForAllAndForAnyComeDownToTheRightCause) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    World world;
    std::vector<Fact> facts;
    for (std::size_t i = 0; i < 40; ++i) {
      std::vector<Thing> waits_for;
      for (std::uint64_t n = 1 + random.below(3); n > 0; --n)
        waits_for.push_back({Kind::actor, id_of(random.below(40)), "node-0"});
      const State ends[] = {State::runs, State::lost, State::ready};
      const State state = random.chance(0.75) ? State::waits : ends[random.below(3)];
      Fact& fact = world.add(Kind::actor, id_of(i), state, waits_for);
      fact.any = random.chance(0.4);
      facts.push_back(fact);
    }
    const std::vector<Cause> causes = causes_by_definition(facts);
    for (std::size_t i = 0; i < facts.size(); ++i)
      EXPECT_EQ(world.explain(Kind::actor, id_of(i)).cause, causes[i])
          << "seed " << seed << ": " << id_of(i);
  }
}

}  // namespace
}  // namespace wait_graph_test
}  // namespace troupe::observe
