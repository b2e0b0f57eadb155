// Tests a node whose workers get only a part of the CPU time. It gets no new work but what must
// run there, until it is fast again. A job that has some of its work there hardly takes longer.
#include "examples/support/processes.hpp"
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace slow_nodes_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::NodeId;
using troupe::Placement;
using troupe::Ref;
using troupe::TaskOptions;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::uint64_t>;

constexpr auto kBound = 40s;     // the limit of each wait; a test that reaches it fails
constexpr auto kDetected = 20s;  // twice 10 s, since the machine may be busy

/// Returns the node and the process in which the task ran.
Words where_after(Context& ctx, int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return {ctx.node().high, ctx.node().low, static_cast<std::uint64_t>(::getpid())};
}
int square_after(int x, int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return x * x;
}

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

struct Cluster {
  troupe::Session session;
  Context ctx;
  NodeId victim;
  std::set<int> workers;  ///< processes of the victim's workers

  Cluster(unsigned nodes, double cpus)
      : session({.cpus = cpus, .memory = {}, .nodes = nodes, .address = ""}),
        ctx(session.context()) {
    victim = other_nodes(ctx, nodes, kBound).at(0);
    // Runs until each of the victim's workers, of which one may start late, has had some tasks.
    (void)eventually([&] {
      std::vector<Ref<Words>> all;
      for (int i = 0; i < 2 * static_cast<int>(cpus); ++i) all.push_back(must_run(20));
      for (const auto& one : all) workers.insert(static_cast<int>(ctx.get(one, kBound)[2]));
      return workers.size() == static_cast<std::size_t>(cpus);
    });
  }
  Ref<Words> must_run(int ms) const {
    return ctx.with(TaskOptions{.placement = Placement::on(victim)}).submit<where_after>(ms);
  }
};

/// Lets those processes run for 10 ms, then stops them for a given time, again and again.
class Throttle {
 public:
  Throttle(std::set<int> pids, std::chrono::milliseconds stopped)
      : pids_(std::move(pids)), thread_([this, stopped] {
          while (!over_) {
            for (const int pid : pids_) ::kill(pid, SIGSTOP);
            std::this_thread::sleep_for(stopped);
            for (const int pid : pids_) ::kill(pid, SIGCONT);
            std::this_thread::sleep_for(10ms);
          }
        }) {}
  ~Throttle() {
    over_ = true;
    thread_.join();
  }

 private:
  std::set<int> pids_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Keeps 18 tasks of 10 ms under way, and counts how many of the last hundred ran on the victim.
class Stream {
 public:
  explicit Stream(const Cluster& cluster) : cluster_(cluster) {}
  void work() {
    while (under_way_.size() < 18) under_way_.push_back(cluster_.ctx.submit<where_after>(10));
    const Words where = cluster_.ctx.get(under_way_.front(), kBound);
    under_way_.pop_front();
    there_.push_back(NodeId{where[0], where[1]} == cluster_.victim);
    if (there_.size() > 100) there_.pop_front();
  }
  auto share() const { return std::count(there_.begin(), there_.end(), true); }

 private:
  const Cluster& cluster_;
  std::deque<Ref<Words>> under_way_;
  std::deque<bool> there_;
};

TEST(SlowNodes, OneGetsNothingNewButWhatMustRunThere) {
  const Cluster cluster(3, 2);
  ASSERT_EQ(cluster.workers.size(), 2u);
  Stream stream(cluster);
  for (int i = 0; i < 100; ++i) stream.work();
  EXPECT_GT(stream.share(), 10) << "all nodes work";
  auto begun = Clock::now();
  {
    const Throttle throttle(cluster.workers, 90ms);
    while (stream.share() > 0 && Clock::now() - begun < kBound) stream.work();
    EXPECT_EQ(stream.share(), 0) << "a slow node gets new work";
    std::printf("slow node: nothing new there after %.0f ms\n", ms_since(begun));
    EXPECT_LT(Clock::now() - begun, kDetected);
    EXPECT_EQ(cluster.ctx.get(cluster.must_run(1), kBound)[1], cluster.victim.low);
  }
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr) return;
  begun = Clock::now();
  std::size_t there = 0;
  while (there == 0 && Clock::now() - begun < kBound) {
    cluster.ctx.get(cluster.must_run(10), kBound);
    std::vector<Ref<Words>> burst;
    for (int i = 0; i < 100; ++i) burst.push_back(cluster.ctx.submit<where_after>(10));
    for (const auto& one : burst)
      there += cluster.ctx.get(one, kBound)[1] == cluster.victim.low ? 1u : 0u;
  }
  EXPECT_GT(there, 0u) << "it is fast again";
  std::printf("slow node: works again after %.0f ms\n", ms_since(begun));
}

TEST(SlowNodes, AJobTakesAtMostHalfAsLongAgainWhenOneNodeOfEightIsSlow) {
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "takes 30 s; set TROUPE_LONG_TESTS to run it";
  Cluster cluster(8, 1);
  const auto job = [&] {
    const auto begun = Clock::now();
    std::vector<Ref<int>> squares;
    for (int i = 0; i < 4'000; ++i) squares.push_back(cluster.ctx.submit<square_after>(i, 20));
    for (int i = 0; i < 4'000; ++i)
      EXPECT_EQ(cluster.ctx.get(squares[static_cast<std::size_t>(i)], kBound), i * i);
    return ms_since(begun);
  };
  const double healthy = job();
  std::set<int> of_node = cluster.workers;
  of_node.insert(processes::agent_of(cluster.ctx, cluster.victim));
  const Throttle throttle(of_node, 190ms);
  const double with_slow = job();
  std::printf("one node of eight has 5%% of the time: %.0f ms instead of %.0f ms, %.2f times\n",
              with_slow, healthy, with_slow / healthy);
  EXPECT_LE(with_slow, 1.5 * healthy);
}

}  // namespace
}  // namespace slow_nodes_test
