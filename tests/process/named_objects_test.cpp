/// Tests named objects while nodes die, and the reported locations of objects, in a cluster of
/// real processes. tests/jobs tests objects that outlive their driver.
#include "examples/support/processes.hpp"
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace named_objects_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::ObjectLocation;
using troupe::Ref;
using State = ObjectLocation::State;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

int name_it(Context& ctx, const std::string& name, int replicas) {
  ctx.detach(ctx.put(numbers(1, kMiB), {.replicas = replicas}), name);
  return 1;
}
/// Finds the object by its name, so that its node receives no other request.
std::size_t found_sum(Context& ctx, const std::string& name) {
  return sum(ctx.get(ctx.find_object<Numbers>(name).value(), kBound));
}
Ref<Numbers> put_safely(Context& ctx, int replicas) {
  return ctx.put(numbers(2, kMiB), {.replicas = replicas});
}
Numbers make(std::uint64_t bytes) {
  return numbers(3, bytes);
}
int fail(int) {
  throw std::runtime_error("on purpose");
}
int wait_for_ever(int) {
  for (;;) std::this_thread::sleep_for(1s);
}

/// A cluster whose nodes have 64 MiB each.
struct Cluster : ClusterOfNodes {
  void start(unsigned nodes) {
    ClusterOfNodes::start(nodes, {.cpus = 1, .memory = troupe::Bytes{64 << 20}});
  }
};
using ClusterNames = Cluster;
using ClusterLocations = Cluster;

TEST_F(ClusterNames, LeadToACopyWhenTheNodeDiesAndWithoutOneToAnErrorAndCanBeUsedAgain) {
  start(4);
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  EXPECT_EQ(ctx.get(on(0).submit<name_it>(std::string("safe"), 2), kBound), 1);
  EXPECT_EQ(ctx.get(on(0).submit<name_it>(std::string("alone"), 1), kBound), 1);
  EXPECT_EQ(ctx.get(on(1).submit<found_sum>(std::string("alone")), kBound), sum(numbers(1, kMiB)));
  auto nameless = on(0).submit<put_safely>(2);
  ctx.wait({nameless}, {.timeout = kBound});
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  EXPECT_TRUE(ctx.get(nameless, kBound) == numbers(2, kMiB));
  nameless = {};
  // A replica without a holder is freed after some rounds of questions to all nodes. This one is
  // held by its name.
  EXPECT_TRUE(eventually([&] { return bytes() < 3 * kMiB / 2; }, 25s)) << bytes();
  EXPECT_EQ(found_sum(ctx, "safe"), sum(numbers(1, kMiB)));
  EXPECT_EQ(ctx.get(on(1).submit<found_sum>(std::string("safe")), kBound), sum(numbers(1, kMiB)));

  const auto lost = ctx.find_object<Numbers>("alone");
  ASSERT_TRUE(lost) << "the name is still taken";
  EXPECT_THROW((void)ctx.get(*lost, kBound), troupe::ObjectLost);
  EXPECT_THROW(name_it(ctx, "alone", 1), troupe::InvalidArgument);
  EXPECT_TRUE(ctx.forget_object("alone"));
  EXPECT_EQ(name_it(ctx, "alone", 1), 1);
  EXPECT_EQ(found_sum(ctx, "alone"), sum(numbers(1, kMiB)));
  for (const char* name : {"alone", "safe"}) EXPECT_TRUE(ctx.forget_object(name));
  EXPECT_TRUE(eventually([&] { return bytes() == 0; }, 25s)) << bytes() << " bytes are left";
}

TEST(Names, OfAPrivateNodeLeadItsWorkersToTheValue) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  ctx.detach(ctx.put(numbers(1, kMiB)), "here");
  EXPECT_EQ(ctx.get(ctx.submit<found_sum>(std::string("here")), kBound), sum(numbers(1, kMiB)));
  EXPECT_TRUE(ctx.forget_object("here"));
  EXPECT_FALSE(ctx.find_object<Numbers>("here"));
  const auto used = [&] { return ctx.cluster().nodes.front().store_used.count; };
  EXPECT_TRUE(eventually([&] { return used() == 0; })) << used();
}

TEST_F(ClusterNames, AreGivenWhenTheWorkHasEndedAndNotToAnError) {
  start(2);
  Context ctx = cluster->context();
  ctx.detach(on(0).submit<make>(kMiB), "made", kBound);
  EXPECT_EQ(found_sum(ctx, "made"), sum(numbers(3, kMiB))) << "which its worker has computed";
  const auto failed = on(0).submit<fail>(1);
  EXPECT_THROW(ctx.detach(failed, "failed", kBound), troupe::TaskFailed);
  EXPECT_THROW(ctx.detach(on(0).submit<wait_for_ever>(1), "never", 50ms), troupe::TimedOut);
  EXPECT_THROW(ctx.detach(ctx.put(1), ""), troupe::InvalidArgument);
  EXPECT_FALSE(ctx.find_object<int>("failed"));
  const auto one = ctx.put(numbers(1, kMiB));
  ctx.detach(one, "one");
  ctx.detach(one, "one");
  ctx.detach(one, "two");
  EXPECT_TRUE(ctx.forget_object("one"));
  EXPECT_EQ(found_sum(ctx, "two"), sum(numbers(1, kMiB))) << "by its other name";
}

TEST_F(ClusterLocations, SayWhichNodesHaveTheBytesAndWhatIsNotThere) {
  start(3);
  Context ctx = cluster->context();
  const auto made = on(0).submit<make>(kMiB);
  const auto failed = on(0).submit<fail>(1);
  ctx.wait(std::vector<troupe::AnyRef>{made, failed}, {.count = 2, .timeout = kBound});
  const auto small = ctx.put(1);
  const auto large = ctx.put(numbers(1, kMiB));
  const auto safe = ctx.put(numbers(2, kMiB), {.replicas = 2});
  const auto pending = on(1).submit<wait_for_ever>(1);
  const std::vector<troupe::AnyRef> refs{made, failed, small, large, safe, pending};
  auto where = ctx.locations(refs);
  ASSERT_EQ(where.size(), refs.size());
  EXPECT_EQ(where[0].state, State::large);
  EXPECT_EQ(where[0].nodes, std::vector{others.at(0)}) << "the value of a value of another's";
  EXPECT_GT(where[0].size.count, kMiB);
  EXPECT_EQ(where[1].state, State::failed);
  EXPECT_EQ(where[2].state, State::small);
  EXPECT_EQ(where[2].nodes, std::vector{ctx.node()});
  EXPECT_EQ(where[3].state, State::large);
  EXPECT_EQ(where[3].nodes, std::vector{ctx.node()});
  EXPECT_EQ(where[4].nodes.size(), 2u) << "its replica, too";
  EXPECT_EQ(where[4].nodes.front(), ctx.node());
  EXPECT_EQ(where[5].state, State::pending);
  EXPECT_TRUE(where[5].nodes.empty());
  EXPECT_FALSE(where[3].spilled);

  EXPECT_TRUE(ctx.get(made, kBound) == numbers(3, kMiB));
  EXPECT_EQ(ctx.get(on(0).submit<sum>(large), kBound), sum(numbers(1, kMiB)));
  where = ctx.locations(refs);
  EXPECT_EQ(where[0].nodes, (std::vector{ctx.node(), others.at(0)})) << "it was fetched";
  EXPECT_EQ(where[3].nodes.front(), ctx.node());
  EXPECT_TRUE(ctx.locations(std::vector<Ref<int>>{}).empty());
}

TEST_F(ClusterLocations, SayWhatIsOnDiskOnly) {
  start(2);
  Context ctx = cluster->context();
  std::vector<Ref<Numbers>> refs;
  for (std::uint64_t i = 0; i < 6; ++i) refs.push_back(ctx.put(numbers(i, 16 * kMiB)));
  const auto where = ctx.locations(refs);
  const auto spilled = std::count_if(where.begin(), where.end(),
                                     [](const ObjectLocation& at) { return at.spilled; });
  EXPECT_GE(spilled, 2) << "96 MiB and an arena of 64";
  EXPECT_LT(spilled, 6);
  for (const ObjectLocation& at : where) EXPECT_EQ(at.nodes, std::vector{ctx.node()});
}

}  // namespace
}  // namespace named_objects_test
