// Tests lineage on real clusters of three nodes. An object that a task computed on a killed node
// is computed again, byte for byte the same. An object that no task can compute again ends in
// ObjectLost.
#include "examples/support/processes.hpp"
#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace lineage_test {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::ActorOptions;
using troupe::Context;
using troupe::NodeId;
using troupe::ObjectLost;
using troupe::Placement;
using troupe::Ref;
using troupe::TaskOptions;
using Bytes = std::vector<unsigned char>;

constexpr auto kBound = 30s;
constexpr std::size_t kLarge = 200'000;

Bytes made(std::size_t n, unsigned seed) {
  Bytes bytes(n);
  std::uint32_t x = seed * 2654435761u + 1;
  for (unsigned char& byte : bytes)
    byte = static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24);
  return bytes;
}
Bytes stirred(Bytes bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(std::size_t{5} * bytes[i] + i);
  return bytes;
}
std::uint64_t sum_of(const Bytes& bytes) {
  std::uint64_t sum = bytes.size();
  for (const unsigned char byte : bytes) sum = sum * 31 + byte;
  return sum;
}
std::uint64_t sum_of_two(const Bytes& a, const Bytes& b) {
  return sum_of(a) * 7 + sum_of(b);
}
struct Basket {
  std::vector<Ref<Bytes>> refs;
};
std::uint64_t sum_of_basket(Context& ctx, const Basket& basket) {
  std::uint64_t sum = 0;
  for (const auto& ref : basket.refs) sum = sum * 7 + sum_of(ctx.get(ref, kBound));
  return sum;
}
Basket put_there(Context& ctx) {
  return {{ctx.put(made(kLarge, 1))}};
}
struct Maker {
  Bytes make(unsigned seed) const { return made(kLarge, seed); }
  std::uint64_t sum(const Bytes& bytes) const { return sum_of(bytes); }
};
/// Refs of objects that a worker has had computed on some node, and passes on before it ends.
struct Left {
  Ref<Bytes> chain, once, of_actor;
  int pid = 0;
};
Left leave(Context& ctx, std::uint64_t high, std::uint64_t low, const Actor<Maker>& maker) {
  const auto place = Placement::on(NodeId{high, low}, true);
  const auto there = ctx.with(TaskOptions{.placement = place});
  const Bytes direct = made(kLarge, 40);
  const auto first = there.submit<stirred>(direct);
  // The object `once` must be lost with its node, so its task may run on no other node.
  const auto only = Placement::on(NodeId{high, low});
  Left left{there.submit<stirred>(first),
            ctx.with(TaskOptions{.placement = only, .max_retries = 0}).submit<made>(kLarge, 41u),
            maker.call<&Maker::make>(42u), ::getpid()};
  ctx.wait({left.chain, left.once, left.of_actor}, {.timeout = kBound});
  return left;
}
Ref<Bytes> leave_flat(Context& ctx, std::uint64_t high, std::uint64_t low) {
  const auto place = Placement::on(NodeId{high, low}, true);
  return ctx.with(TaskOptions{.placement = place}).submit<made>(kLarge, 43u);
}
void kill_children(int parent) {
  std::vector<int> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string name;
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && processes::parent_of(pid, name) == parent) children.push_back(pid);
  }
  for (const int pid : children) processes::kill_now(pid);
}

class ClusterLineage : public testing::Test {
 protected:
  ClusterLineage() : session({.cpus = 2, .nodes = 3}) {
    for (const auto& node : ctx.cluster().nodes) nodes.push_back(node.id);
  }
  /// Returns a context that places tasks on that node, or elsewhere once the node is dead.
  auto on(std::size_t node, int retries = 3) {
    return ctx.with(
        TaskOptions{.placement = Placement::on(nodes.at(node), true), .max_retries = retries});
  }
  template <class T>
  Ref<T> there(const Ref<T>& ref) {
    EXPECT_EQ(ctx.wait({ref}, {.timeout = kBound}).ready.size(), 1u);
    return ref;
  }
  void kill(std::size_t node) {
    EXPECT_TRUE(processes::kill_now(processes::agent_of(ctx, nodes.at(node))));
  }
  template <class F>
  std::string loss(const F& what) {
    try {
      what();
    } catch (const ObjectLost& e) {
      return troupe::explain(e);
    } catch (const troupe::Error& e) {
      return "not ObjectLost but " + troupe::explain(e);
    }
    return "nothing was thrown";
  }
  troupe::Session session;
  Context ctx = session.context();
  std::vector<NodeId> nodes;
};

TEST_F(ClusterLineage, AResultThatDiesWithItsNodeIsComputedAgain) {
  const auto large = there(on(1).submit<made>(kLarge, 3u));
  const auto other = there(on(1).submit<made>(kLarge, 4u));
  kill(1);
  EXPECT_TRUE(ctx.get(large, kBound) == made(kLarge, 3));
  // The lost object is the argument of a task.
  EXPECT_EQ(ctx.get(on(2).submit<sum_of>(other), kBound), sum_of(made(kLarge, 4)));
  EXPECT_TRUE(ctx.get(other, kBound) == made(kLarge, 4));
}

TEST_F(ClusterLineage, AChainIsComputedAgainFromItsBeginning) {
  constexpr int kSteps = 50;
  Bytes want = made(kLarge, 5);
  auto last = on(1).submit<made>(kLarge, 5u);
  std::vector<Ref<Bytes>> held;  // every tenth: the driver knows some objects and not others
  for (int i = 0; i < kSteps; ++i) {
    if (i % 10 == 0) held.push_back(last);
    last = on(1).submit<stirred>(last);
    want = stirred(std::move(want));
  }
  there(last);
  kill(1);
  EXPECT_TRUE(ctx.get(last, kBound) == want);
}

TEST_F(ClusterLineage, WhoHoldsARefElsewhereGetsTheValueToo) {
  Basket basket{{there(on(1).submit<made>(kLarge, 6u)), there(on(1).submit<made>(kLarge, 7u))}};
  const std::uint64_t want = sum_of(made(kLarge, 6)) * 7 + sum_of(made(kLarge, 7));
  // The task reads the values on node 2 once, so that its agent knows where they were.
  EXPECT_EQ(ctx.get(on(2).submit<sum_of_basket>(basket), kBound), want);
  Basket unread{{there(on(1).submit<made>(kLarge, 8u))}};
  const auto held = ctx.put(unread);
  const Basket mine = std::exchange(unread, {});
  kill(1);
  const auto one = on(2).submit<sum_of_basket>(mine), two = on(2).submit<sum_of_basket>(mine);
  EXPECT_EQ(ctx.get(one, kBound), sum_of(made(kLarge, 8)));
  EXPECT_EQ(ctx.get(two, kBound), sum_of(made(kLarge, 8)));
  EXPECT_EQ(ctx.get(on(2).submit<sum_of_basket>(basket), kBound), want);
}

TEST_F(ClusterLineage, ARefThatOnlyOthersHoldIsComputedAgain) {
  Basket inner{{there(on(1).submit<made>(kLarge, 9u))}};
  const auto outer = ctx.put(inner);
  inner.refs.clear();  // the driver has no ref to it any more
  kill(1);
  EXPECT_EQ(ctx.get(on(2).submit<sum_of_basket>(outer), kBound), sum_of(made(kLarge, 9)));
}

TEST_F(ClusterLineage, AnActorsArgumentIsComputedAgain) {
  const auto maker = ctx.with(ActorOptions{.placement = Placement::on(nodes[2])}).spawn<Maker>();
  const auto large = there(on(1).submit<made>(kLarge, 10u));
  kill(1);
  EXPECT_EQ(ctx.get(maker.call<&Maker::sum>(large), kBound), sum_of(made(kLarge, 10)));
}

TEST_F(ClusterLineage, ArgumentsStayRebuildableWithoutAHandle) {
  // One argument is a value that travels with the call; the other is the result of a task.
  // Neither has a handle left.
  const Bytes direct = made(kLarge, 11);
  auto first = on(1).submit<stirred>(direct);
  const auto last = there(on(1).submit<stirred>(first));
  first = {};
  kill(1);
  EXPECT_TRUE(ctx.get(last, kBound) == stirred(stirred(direct)));
}

TEST_F(ClusterLineage, WhatNothingCanComputeAgainIsLost) {
  const auto maker = ctx.with(ActorOptions{.placement = Placement::on(nodes[1])}).spawn<Maker>();
  const auto of_actor = there(maker.call<&Maker::make>(1u));
  const auto no_retry = there(on(1, 0).submit<made>(kLarge, 12u));
  const Basket put = ctx.get(on(1).submit<put_there>(), kBound);
  there(put.refs[0]);
  const auto fine = there(on(1).submit<made>(kLarge, 13u));
  kill(1);
  EXPECT_NE(loss([&] { ctx.get(of_actor, kBound); }).find("actor"), std::string::npos)
      << loss([&] { ctx.get(of_actor, kBound); });
  EXPECT_NE(loss([&] { ctx.get(no_retry, kBound); }).find("max_retries"), std::string::npos)
      << loss([&] { ctx.get(no_retry, kBound); });
  EXPECT_NE(loss([&] { ctx.get(put.refs[0], kBound); }).find("put"), std::string::npos)
      << loss([&] { ctx.get(put.refs[0], kBound); });
  EXPECT_NE(
      loss([&] { ctx.get(on(2).submit<sum_of_two>(fine, no_retry), kBound); }).find("max_retries"),
      std::string::npos);
  EXPECT_TRUE(ctx.get(fine, kBound) == made(kLarge, 13));
}

TEST_F(ClusterLineage, WhatAWorkerThatHasEndedHadComputedIsComputedAgain) {
  const auto maker = ctx.with(ActorOptions{.placement = Placement::on(nodes[2])}).spawn<Maker>();
  const auto parent = ctx.with(TaskOptions{.placement = Placement::on(nodes[1]), .max_retries = 0});
  const auto flat = there(parent.submit<leave_flat>(nodes[2].high, nodes[2].low));
  const Left left = ctx.get(parent.submit<leave>(nodes[2].high, nodes[2].low, maker), kBound);
  for (const auto& ref : {left.chain, left.once, left.of_actor}) there(ref);
  std::string name;
  kill_children(processes::parent_of(left.pid, name));
  kill(2);
  const auto expect_there = [&](const Ref<Bytes>& ref, const Bytes& want) {
    EXPECT_EQ(loss([&] { EXPECT_TRUE(ctx.get(ref, kBound) == want); }), "nothing was thrown");
  };
  // The arguments of this task were a result that has no holder left, and a value that the worker
  // had put.
  expect_there(left.chain, stirred(stirred(made(kLarge, 40))));
  expect_there(flat, made(kLarge, 43));  // the task that submitted it may not run again
  for (const auto& lost : {left.once, left.of_actor}) {
    const std::string why = loss([&] { ctx.get(lost, kBound); });
    EXPECT_NE(why.find("has ended, and no call is kept"), std::string::npos) << why;
  }
}

TEST_F(ClusterLineage, AWorkerThatIsDeadAndNotReapedTakesNothingOver) {
  const auto there_once =
      ctx.with(TaskOptions{.placement = Placement::on(nodes[1]), .max_retries = 0});
  const auto on_one = ctx.with(TaskOptions{.placement = Placement::on(nodes[1])});
  const auto pid = [] { return static_cast<int>(::getpid()); };
  const auto flat = there(there_once.submit<leave_flat>(nodes[2].high, nodes[2].low));
  std::string name;
  const int zygote = processes::parent_of(ctx.get(on_one.submit(pid), kBound), name);
  ASSERT_GT(zygote, 1);
  kill_children(zygote);
  const int other = ctx.get(on_one.submit(pid), kBound);  // the agent knows of the deaths
  ASSERT_EQ(::kill(zygote, SIGSTOP), 0);                  // it will not know of the next
  processes::kill_now(other);
  kill(2);
  EXPECT_THROW(ctx.get(flat, 500ms), troupe::TimedOut) << "nobody is there who could compute it";
  ASSERT_EQ(::kill(zygote, SIGCONT), 0);
  EXPECT_TRUE(ctx.get(flat, kBound) == made(kLarge, 43));
}

TEST_F(ClusterLineage, ANodeIsKilledWhileItsValuesAreFetched) {
  constexpr std::size_t kHuge = 24 << 20;
  std::vector<Ref<Bytes>> values;
  for (unsigned i = 0; i < 3; ++i) values.push_back(there(on(1).submit<made>(kHuge, 20 + i)));
  const int agent = processes::agent_of(ctx, nodes[1]);
  std::thread killer([agent, this] {
    // The first value has arrived, and the second one is under way.
    (void)eventually([&] { return ctx.cluster().nodes.front().store_used.count >= kHuge; });
    processes::kill_now(agent);
  });
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_TRUE(ctx.get(values[i], kBound) == made(kHuge, 20 + i)) << i;
  killer.join();
}

TEST_F(ClusterLineage, MemoryOfWhatWasComputedStepByStepIsFreed) {
  auto value = on(0).submit<made>(4 << 20, 30u);
  for (int i = 0; i < 40; ++i) value = on(0).submit<stirred>(value);
  there(value);
  const auto used = [&] { return ctx.cluster().nodes.front().store_used.count; };
  EXPECT_TRUE(eventually([&] { return used() <= 9u << 20; }, 5s))
      << "lineage keeps calls, not the values on the way";
}

// --- many at once

/// Returns a value that depends on two others.
Bytes mixed(unsigned seed, std::size_t n, const Bytes& a, const Bytes& b) {
  Bytes bytes = made(n, seed);
  for (std::size_t i = 0; i < n; ++i) {
    if (!a.empty()) bytes[i] = static_cast<unsigned char>(bytes[i] + a[i % a.size()]);
    if (!b.empty()) bytes[i] = static_cast<unsigned char>(bytes[i] ^ b[(3 * i) % b.size()]);
  }
  return bytes;
}

/// Runs a random graph of tasks and kills one node at a random moment. Most refs are dropped.
/// Every value that is read must be as it would be without the kill.
void graph_with_a_kill(unsigned seed, std::size_t objects) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  troupe::Session session({.cpus = 2, .nodes = 3});
  Context ctx = session.context();
  const auto nodes = ctx.cluster().nodes;
  const int victim = processes::agent_of(ctx, nodes[1 + seed % 2].id);
  std::mt19937 random(seed);
  std::vector<Bytes> want;
  std::vector<Ref<Bytes>> refs;
  std::thread killer([victim, after = random() % 400] {
    std::this_thread::sleep_for(std::chrono::milliseconds(after));
    processes::kill_now(victim);
  });
  const Ref<Bytes> nothing = ctx.put(Bytes());
  for (std::size_t i = 0; i < objects; ++i) {
    const std::size_t n = random() % 3 == 0 ? random() % 2000 : 5000 + random() % 60'000;
    const std::size_t a = i - std::min<std::size_t>(i, random() % 20);
    const std::size_t b = random() % (i + 1);
    const auto place = Placement::on(nodes[random() % 3].id, true);
    refs.push_back(ctx.with(TaskOptions{.placement = place, .max_retries = 10})
                       .submit<mixed>(static_cast<unsigned>(i), n, a < i ? refs[a] : nothing,
                                      b < i ? refs[b] : nothing));
    want.push_back(
        mixed(static_cast<unsigned>(i), n, a < i ? want[a] : Bytes(), b < i ? want[b] : Bytes()));
  }
  for (std::size_t i = 0; i < objects; ++i)
    if (random() % 3 != 0) refs[i] = {};
  killer.join();
  for (std::size_t i = objects; i-- > 0;)
    if (refs[i]) {
      EXPECT_TRUE(ctx.get(refs[i], kBound) == want[i]) << i;
    }
}

TEST(ClusterLineageGraph, IsAsIfNoNodeHadDied) {
  graph_with_a_kill(1, 150);
}

TEST(ClusterLineageGraph, ManyTimes) {
  const char* wanted = std::getenv("TROUPE_LONG_TESTS");
  if (wanted == nullptr) GTEST_SKIP() << "set TROUPE_LONG_TESTS=1";
  for (unsigned seed = 2; seed < 40 && !HasFailure(); ++seed) graph_with_a_kill(seed, 400);
}

/// Counts how the objects of many chains ended.
struct Ends {
  std::size_t kills = 0, right = 0, lost = 0;
};

/// Runs six chains of fifty tasks over four nodes, and kills three nodes at random moments. A
/// chain that begins with a task gives the right values. A chain that begins with a value that
/// was put on a killed node gives the right values or ObjectLost.
void chains_with_kills(unsigned seed, Ends& ends) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr std::size_t kChains = 6, kDepth = 50;
  troupe::Session session({.cpus = 2, .nodes = 4});
  Context ctx = session.context();
  const auto nodes = ctx.cluster().nodes;
  std::vector<int> victims;
  for (std::size_t i = 1; i < nodes.size(); ++i)
    victims.push_back(processes::agent_of(ctx, nodes[i].id));
  std::mt19937 random(seed);
  std::shuffle(victims.begin(), victims.end(), random);
  std::vector<std::chrono::milliseconds> pauses;
  for (std::size_t i = 0; i < victims.size(); ++i) pauses.emplace_back(random() % 300);
  const auto somewhere = [&] {
    const auto place = Placement::on(nodes[random() % nodes.size()].id, true);
    return ctx.with(TaskOptions{.placement = place, .max_retries = 10});
  };
  std::vector<std::vector<Ref<Bytes>>> chains;
  for (unsigned chain = 0; chain < kChains; ++chain) {
    const bool is_put = chain % 3 == 0;
    chains.push_back({is_put ? ctx.get(somewhere().submit<put_there>(), kBound).refs.at(0)
                             : somewhere().submit<made>(kLarge, chain)});
  }
  std::thread killer([&] {
    for (std::size_t i = 0; i < victims.size(); ++i) {
      std::this_thread::sleep_for(pauses[i]);
      ends.kills += processes::kill_now(victims[i]) ? 1 : 0;
    }
  });
  for (std::size_t i = 1; i < kDepth; ++i)
    for (auto& chain : chains) chain.push_back(somewhere().submit<stirred>(chain.back()));
  killer.join();
  for (unsigned chain = 0; chain < kChains; ++chain) {
    const bool is_put = chain % 3 == 0;
    Bytes want = made(kLarge, is_put ? 1 : chain);
    for (std::size_t i = 0; i < kDepth; ++i, want = stirred(std::move(want))) {
      try {
        EXPECT_TRUE(ctx.get(chains[chain][i], kBound) == want) << chain << ", " << i;
        ++ends.right;
      } catch (const ObjectLost& error) {
        EXPECT_TRUE(is_put) << chain << ", " << i << ": " << troupe::explain(error);
        ++ends.lost;
      }
    }
  }
}

TEST(ClusterLineageGraph, TenThousandObjectsOfLongChainsUnderAHundredKills) {
  const char* wanted = std::getenv("TROUPE_LONG_TESTS");
  if (wanted == nullptr) GTEST_SKIP() << "set TROUPE_LONG_TESTS=1";
  Ends ends;
  for (unsigned seed = 1; ends.kills < 100 && !HasFailure(); ++seed) chains_with_kills(seed, ends);
  std::printf("%zu kills: of %zu objects %zu right, %zu lost with what was put\n", ends.kills,
              ends.right + ends.lost, ends.right, ends.lost);
  EXPECT_GE(ends.right + ends.lost, 10'000u);
}

}  // namespace
}  // namespace lineage_test
