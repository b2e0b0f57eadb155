// Tests TransferPlan alone, by single cases and by a seeded simulation. Every pull ends once.
// Memory is bounded, and never released while a connection may write to it, whatever breaks.
#include "tests/runtime/agent/transfer_plan_desk.hpp"

#include "troupe/runtime/base/random.hpp"

#include <algorithm>
#include <functional>

namespace troupe::agent::transfer_plan_test {
namespace {

using namespace test;

TEST(TransferPlan, ASmallObjectComesByMessageALargeOneByConnection) {
  Desk d;
  d.pull(kOne, 1, kSmallObject);
  d.pull(kOne, 2, kSmallObject + 1);
  ASSERT_EQ(d.asks.size(), 2u);
  EXPECT_EQ(d.asks[0].connection, ConnectionId{});
  ASSERT_EQ(d.offers.size(), 1u);
  EXPECT_EQ(d.asks[1].connection, d.offers[0].connection);
  EXPECT_EQ(d.plan.expects(kOne, d.asks[0].transfer, kSmallObject), d.asks[0].pull);
  EXPECT_EQ(d.plan.expects(kTwo, d.asks[0].transfer, kSmallObject), PullId{});
  EXPECT_EQ(d.plan.expects(kOne, d.asks[0].transfer, 5), PullId{});
  d.plan.arrived(kOne, d.asks[0].transfer, true, d.now);
  d.settle();
  d.plan.arrived(kOne, d.asks[0].transfer, true, d.now);  // the second report has no effect
  d.settle();
  d.receive(d.asks[1]);
  d.receive(d.asks[1]);
  EXPECT_EQ(d.completes.size(), 2u);
  EXPECT_EQ(d.plan.pulls(), 0u);
  EXPECT_TRUE(d.memory.empty());
}

TEST(TransferPlan, OneFetchForManyAsks) {
  Desk d;
  for (int i = 0; i < 3; ++i) d.pull(kOne, 1, kMiB);
  d.pull(kTwo, 1, kMiB);
  EXPECT_EQ(d.asks.size(), 1u);
  d.receive(d.asks[0]);
  EXPECT_EQ(d.completes.size(), 1u);
}

TEST(TransferPlan, BytesAreBoundedPerNodeAndInAll) {
  PlanOptions options;
  options.node_bytes = 4 * kMiB;
  options.all_bytes = 6 * kMiB;
  Desk d(options);
  for (std::uint64_t i = 0; i < 8; ++i) d.pull(kOne, i, kMiB);
  EXPECT_EQ(d.asks.size(), 4u);
  for (std::uint64_t i = 8; i < 16; ++i) d.pull(kTwo, i, kMiB);
  EXPECT_EQ(d.asks.size(), 6u);
  EXPECT_EQ(d.plan.reserved_bytes(), 6 * kMiB);
  for (std::size_t i = 0; i < 16; ++i) d.receive(d.asks[i]);
  EXPECT_EQ(d.completes.size(), 16u);
  d.pull(kOne, 20, kMiB);  // a pull larger than all bounds waits until it is alone, and then runs
  d.pull(kOne, 21, 100 * kMiB);
  d.pull(kTwo, 22, kMiB);
  EXPECT_EQ(d.asks.size(), 18u);
  d.receive(d.asks[16]);
  EXPECT_EQ(d.asks.size(), 18u);
  d.receive(d.asks[17]);
  ASSERT_EQ(d.asks.size(), 19u);
  EXPECT_EQ(d.asks[18].object, object(21));
}

TEST(TransferPlan, GetsGoBeforePrefetches) {
  PlanOptions options;
  options.node_bytes = kMiB;
  Desk d(options);
  d.pull(kOne, 1, kMiB, Priority::prefetch);
  d.pull(kOne, 2, kMiB, Priority::prefetch);
  d.pull(kOne, 3, kMiB, Priority::prefetch);
  d.pull(kOne, 4, kMiB);
  d.pull(kOne, 3, kMiB);  // a process waits for it now
  for (std::size_t i = 0; i < 4; ++i) d.receive(d.asks[i]);
  std::vector<std::uint64_t> order;
  for (const auto& ask : d.asks) order.push_back(ask.object.low);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 3, 4, 2}));
}

TEST(TransferPlan, ALostConnectionIsTriedOnceMoreWithTheSameMemory) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.end(kOne, d.offers[0].connection);
  ASSERT_EQ(d.offers.size(), 2u);
  ASSERT_EQ(d.asks.size(), 2u);
  EXPECT_EQ(d.asks[0].pull, d.asks[1].pull);
  EXPECT_NE(d.asks[0].transfer, d.asks[1].transfer);
  d.receive(d.asks[0]);  // by the old connection: ignored
  EXPECT_TRUE(d.completes.empty());
  d.end(kOne, d.offers[1].connection);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::unavailable);
  EXPECT_TRUE(d.memory.empty());
}

TEST(TransferPlan, AConnectionThatDeliversMayBreakOften) {
  Desk d;
  for (std::uint64_t i = 0; i < 10; ++i) d.pull(kOne, i, kMiB);
  for (std::uint64_t i = 0; i < 10; ++i) {
    std::vector<Plan::Ask> mine;
    for (const auto& ask : d.asks)
      if (ask.connection == d.offers.back().connection) mine.push_back(ask);
    ASSERT_EQ(mine.size(), 10 - i);
    d.receive(mine[0]);
    d.end(kOne, d.offers.back().connection);
  }
  EXPECT_EQ(d.completes.size(), 10u);
  EXPECT_TRUE(d.failures.empty());
}

TEST(TransferPlan, SilenceClosesAndMemoryStaysUntilTheThreadHasEnded) {
  PlanOptions options;
  options.attempts = 1;
  Desk d(options);
  d.pull(kOne, 1, kMiB);
  d.wait(9s);
  d.plan.heard(kOne, d.offers[0].connection, d.now);
  d.wait(9s);
  EXPECT_TRUE(d.closes.empty());
  d.wait(1s);
  ASSERT_EQ(d.closes.size(), 1u);
  EXPECT_EQ(d.memory.size(), 1u);
  d.pull(kOne, 2, kMiB);  // waits for the next connection
  EXPECT_EQ(d.offers.size(), 1u);
  d.end(kOne, d.offers[0].connection);
  EXPECT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.memory.size(), 1u);
  EXPECT_EQ(d.offers.size(), 2u);
}

TEST(TransferPlan, AnObjectThatArrivesAsItsConnectionIsClosedCounts) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.wait(10s);
  EXPECT_EQ(d.closes.size(), 1u);
  d.receive(d.asks[0]);
  EXPECT_EQ(d.completes.size(), 1u);
  d.end(kOne, d.offers[0].connection);
  EXPECT_TRUE(d.failures.empty());
}

TEST(TransferPlan, ASilentLinkIsTriedOnceMore) {
  Desk d;
  d.pull(kOne, 1, 10);
  d.wait(10s);
  ASSERT_EQ(d.asks.size(), 2u);
  d.plan.arrived(kOne, d.asks[0].transfer, true, d.now);  // late: the transfer has been given up
  d.settle();
  EXPECT_TRUE(d.completes.empty());
  d.wait(10s);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::unavailable);
  EXPECT_EQ(d.plan.next_deadline(), Time::max());
}

TEST(TransferPlan, RefusalsAreTyped) {
  Desk d;
  d.pull(kOne, 1, 10);
  d.pull(kOne, 2, kMiB);
  d.pull(kOne, 3, kMiB);
  for (std::size_t i = 0; i < 2; ++i)
    d.plan.refused(kOne, d.asks[i].transfer, Error(Code::object_lost, "gone"), d.now);
  d.settle();
  ASSERT_EQ(d.failures.size(), 2u);
  EXPECT_EQ(d.failures[0].error.code(), Code::object_lost);
  EXPECT_EQ(d.memory.size(), 1u);
  d.plan.refused(kOne, d.asks[2].transfer, Error(Code::unavailable, "no connection"), d.now);
  d.settle();
  ASSERT_EQ(d.closes.size(), 1u);
  d.end(kOne, d.closes[0].connection);
  ASSERT_EQ(d.asks.size(), 4u);
  d.receive(d.asks[3]);
  EXPECT_EQ(d.completes.size(), 1u);
}

TEST(TransferPlan, AnotherSizeThanSaidIsNotTriedAgain) {
  Desk d;
  d.pull(kOne, 1, 10);
  d.pull(kOne, 2, kMiB);
  d.pull(kOne, 3, kMiB);
  d.plan.arrived(kOne, d.asks[0].transfer, false, d.now);
  d.plan.on_bulk(kOne, d.asks[1].transfer, kMiB + 1, d.now);
  d.settle();
  ASSERT_EQ(d.closes.size(), 1u);
  d.end(kOne, d.closes[0].connection);
  ASSERT_EQ(d.failures.size(), 2u);
  for (const auto& failed : d.failures) EXPECT_EQ(failed.error.code(), Code::internal);
  ASSERT_EQ(d.asks.size(), 4u);  // the third pull, which was not at fault
  EXPECT_EQ(d.asks[3].object, object(3));
}

TEST(TransferPlan, ADeadNodeLosesItsObjects) {
  PlanOptions options;
  options.node_bytes = kMiB;
  Desk d(options);
  d.pull(kOne, 1, kMiB);
  d.pull(kOne, 2, kMiB);
  d.pull(kOne, 3, 10);
  d.pull(kTwo, 4, 10);
  d.plan.node_died(kOne, true, d.now);
  d.settle();
  EXPECT_EQ(d.failures.size(), 2u);
  d.end(kOne, d.offers[0].connection);
  d.pull(kOne, 5, 10);
  ASSERT_EQ(d.failures.size(), 4u);
  for (const auto& failed : d.failures) EXPECT_EQ(failed.error.code(), Code::object_lost);
  EXPECT_EQ(d.plan.pulls(), 1u);
}

TEST(TransferPlan, ANodeThatWasOutOfReachIsAskedAgainLater) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.pull(kOne, 2, 10);
  d.plan.node_died(kOne, false, d.now);
  d.settle();
  d.end(kOne, d.offers[0].connection);
  ASSERT_EQ(d.failures.size(), 2u) << "what was under way is lost";
  d.asks.clear();
  d.pull(kOne, 3, 10);
  d.pull(kOne, 4, kMiB);
  EXPECT_EQ(d.failures.size(), 2u);
  ASSERT_EQ(d.asks.size(), 2u) << "it lives";
  d.plan.arrived(kOne, d.asks[0].transfer, true, d.now);
  d.settle();
  d.receive(d.asks[1]);
  EXPECT_EQ(d.completes.size(), 2u);
}

TEST(TransferPlan, WithoutMemoryItWaitsAWhile) {
  Desk d;
  d.full = true;
  d.pull(kOne, 1, 10);
  d.pull(kOne, 2, kMiB);
  while (d.now < kStart + 3s) d.wait(d.plan.next_deadline() - d.now);
  EXPECT_TRUE(d.failures.empty());
  d.full = false;
  d.wait(d.plan.next_deadline() - d.now);
  EXPECT_EQ(d.asks.size(), 2u);
  d.full = true;
  d.pull(kTwo, 3, kMiB);
  const Time since = d.now;
  while (d.failures.empty() && d.now < since + 6s) d.wait(d.plan.next_deadline() - d.now);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].error.code(), Code::out_of_memory);
  d.pull(kTwo, 4, ~std::uint64_t{0});
  EXPECT_EQ(d.failures.back().error.code(), Code::out_of_memory);
}

TEST(TransferPlan, WhoNeedsLessMemoryGetsItsTurn) {
  PlanOptions options;
  options.node_bytes = 4 * kMiB;
  Desk d(options);
  d.most = 2 * kMiB;
  d.pull(kOne, 1, 4 * kMiB);
  d.pull(kOne, 2, kMiB);
  d.wait(50ms);
  d.wait(50ms);
  ASSERT_EQ(d.asks.size(), 1u);
  EXPECT_EQ(d.asks[0].object, object(2));
  d.most = 4 * kMiB;
  d.receive(d.asks[0]);
  d.wait(50ms);
  EXPECT_EQ(d.asks.size(), 2u);
}

TEST(TransferPlan, WhatIsCancelledIsNotReported) {
  PlanOptions options;
  options.node_bytes = kMiB;
  Desk d(options);
  for (std::uint64_t i = 1; i <= 4; ++i) d.pull(kOne, i, kMiB);
  for (std::uint64_t i = 1; i <= 3; ++i) d.plan.cancel(object(i), d.now);
  d.settle();
  d.receive(d.asks[0]);
  ASSERT_EQ(d.completes.size(), 1u);
  EXPECT_FALSE(d.completes[0].wanted);
  ASSERT_EQ(d.asks.size(), 2u);
  EXPECT_EQ(d.asks[1].object, object(4));
  d.plan.cancel(object(4), d.now);
  d.pull(kOne, 4, kMiB);  // a process wants it again
  d.receive(d.asks[1]);
  EXPECT_TRUE(d.completes[1].wanted);
  EXPECT_TRUE(d.failures.empty());
}

TEST(TransferPlan, AnUnusedConnectionIsClosed) {
  Desk d;
  d.pull(kOne, 1, kMiB);
  d.wait(5s);
  d.receive(d.asks[0]);
  d.wait(29s);
  EXPECT_TRUE(d.closes.empty());
  d.wait(1s);
  ASSERT_EQ(d.closes.size(), 1u);
  d.end(kOne, d.closes[0].connection);
  EXPECT_EQ(d.plan.next_deadline(), Time::max());
}

// --- simulation: three nodes, delayed and repeated messages, connections that break at any object,
// silent nodes, deaths, memory that runs out.

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), plan_(options(seed)) {
    for (std::uint64_t n = 1; n <= 4; ++n) nodes_[NodeId{0, n}] = {};
  }

  void run() {
    for (int i = 0; i < 400; ++i) {
      step();
      ASSERT_EQ(plan_.check(), "");
      ASSERT_LE(connections_by_node(), 1u);
    }
    calm_ = true;
    const Time end = now_ + 10min;
    while (plan_.pulls() > 0 && now_ < end) {
      now_ = std::max(now_, std::min(next_event(), plan_.next_deadline()));
      catch_up();
      ASSERT_EQ(plan_.check(), "");
    }
    EXPECT_EQ(plan_.pulls(), 0u) << "FETCH-1: a pull that never ends";
    EXPECT_TRUE(memory_.empty()) << "FETCH-2: memory that nobody has";
    for (const auto& [id, count] : wanted_) EXPECT_EQ(count, 0) << "FETCH-1: " << id.low;
  }
  int completed = 0, failed = 0, named = 0, resumed = 0;

 private:
  struct Connection {
    NodeId node;
    std::vector<PullId> queue;  ///< numbers of pulls
    PullId writing;             ///< the pull whose memory is being written
    bool serving = false;       ///< a pull is in the queue or being written
    bool broken = false;
  };
  struct NodeState {
    bool dead = false;
    bool silent = false;
  };
  struct Event {
    Time at;
    std::function<void()> what;
  };

  static PlanOptions options(std::uint64_t seed) {
    PlanOptions o;
    if (seed % 2 == 0) {
      o.node_bytes = 3 * kMiB;
      o.all_bytes = 5 * kMiB;
      o.link_bytes = 2 * kSmallObject;
    }
    return o;
  }
  Duration delay() { return Duration(random_.below(50'000'000)); }
  void after(Duration time, std::function<void()> what) {
    events_.push_back({now_ + time, std::move(what)});
  }
  Time next_event() const {
    Time due = Time::max();
    for (const Event& e : events_) due = std::min(due, e.at);
    return due;
  }
  std::size_t connections_by_node() const {
    std::map<NodeId, std::size_t> count;
    std::size_t most = 0;
    for (const auto& [number, c] : connections_) most = std::max(most, ++count[c.node]);
    return most;
  }

  void step() {
    now_ += Duration(random_.below(100'000'000));
    const NodeId node{0, 1 + random_.below(3)};
    if (random_.chance(0.7)) {
      const ObjectId id{node.low, random_.below(60)};
      const std::uint64_t bytes = 1 + id.low * (id.low % 3 == 0 ? 1000 : 60'000);
      if (!nodes_[node].dead || random_.chance(0.1)) {
        wanted_[id] = 1;
        plan_.pull(node, id, bytes, random_.chance(0.5) ? Priority::get : Priority::prefetch, now_);
      }
    }
    if (random_.chance(0.05)) {
      const ObjectId id{node.low, random_.below(60)};
      wanted_[id] = 0;
      plan_.cancel(id, now_);
    }
    if (random_.chance(0.03)) full_ = !full_;
    if (random_.chance(0.02)) nodes_[node].silent = !nodes_[node].silent;
    if (random_.chance(0.005)) {
      nodes_[node].dead = true;
      plan_.node_died(node, true, now_);
    }
    if (random_.chance(0.05))
      for (auto& [number, c] : connections_)
        if (c.node == node) break_off(number);
    if (random_.chance(0.2) && !asked_.empty()) {  // its owner names some node
      const Plan::Ask& ask = asked_[random_.below(asked_.size())];
      const NodeId other{0, 1 + random_.below(4)};
      const PullId pull = plan_.large(ask.node, ask.transfer);
      if (pull != 0 && !is_written(pull)) {
        expected_.erase(pull);
        plan_.elsewhere(ask.node, ask.transfer, other, now_);
        ++named;
      }
    }
    if (random_.chance(0.1)) now_ += Duration(random_.below(3'000'000'000));
    catch_up();
  }

  void catch_up() {
    if (calm_) full_ = false;
    perform();
    while (true) {
      const auto next = std::min_element(events_.begin(), events_.end(),
                                         [](const auto& a, const auto& b) { return a.at < b.at; });
      if (next == events_.end() || next->at > now_) break;
      const std::function<void()> what = std::move(next->what);
      events_.erase(next);
      what();
      perform();
    }
    if (plan_.next_deadline() <= now_) plan_.on_tick(now_);
    perform();
  }

  void break_off(ConnectionId number) {
    Connection& c = connections_.at(number);
    if (std::exchange(c.broken, true)) return;
    after(delay(), [this, number] {
      const NodeId node = connections_.at(number).node;
      const PullId pull = connections_.at(number).writing;
      connections_.erase(number);
      if (pull != 0 && memory_.count(pull) != 0 && random_.chance(0.7)) {
        const auto at = parts_.find(pull);
        const std::uint64_t have = at == parts_.end() ? 0 : at->second;
        parts_[pull] = have + (sizes_[pull] - have) / 2;
        plan_.kept(pull, parts_[pull], 7);
      }
      plan_.connection_ended(node, number, Error(Code::unavailable, "cut"), now_);
    });
  }

  void serve(ConnectionId number) {
    const auto at = connections_.find(number);
    if (at == connections_.end() || at->second.broken) return;
    if (at->second.queue.empty()) {
      at->second.serving = false;
      return;
    }
    const NodeState& node = nodes_[at->second.node];
    if (node.dead || (node.silent && !calm_)) {
      after(100ms, [this, number] { serve(number); });
      return;
    }
    const PullId next = at->second.queue.front();
    at->second.queue.erase(at->second.queue.begin());
    if (expected_[next] != number) return serve(number);  // no longer requested here
    at->second.writing = next;
    after(delay(), [this, number, next] {
      const auto it = connections_.find(number);
      if (it == connections_.end() || it->second.broken) return;
      it->second.writing = 0;
      if (expected_[next] == number) expected_.erase(next);  // all of it has arrived
      plan_.heard(it->second.node, number, now_);
      plan_.received(it->second.node, number, next, now_);
      if (random_.chance(0.1)) plan_.received(it->second.node, number, next, now_);
      serve(number);
    });
  }

  void request(const Plan::Ask& ask) {
    const NodeState& node = nodes_[ask.node];
    if (node.dead || (node.silent && !calm_)) {
      if (!node.dead) after(1s, [this, ask] { request(ask); });
      return;
    }
    const bool gone = random_.chance(0.05);
    const auto answer = [this, ask, gone] {
      if (gone) {
        const PullId pull = plan_.large(ask.node, ask.transfer);
        if (pull != 0 && !is_written(pull)) expected_.erase(pull);
        plan_.refused(ask.node, ask.transfer, Error(Code::object_lost, "gone"), now_,
                      pull != 0 && is_written(pull));
      } else if (ask.connection == 0) {
        plan_.arrived(ask.node, ask.transfer, true, now_);
      }
    };
    after(delay(), answer);
    if (random_.chance(0.1)) after(delay(), answer);
    if (gone || ask.connection == 0) return;
    const auto at = connections_.find(ask.connection);
    if (at == connections_.end()) return;
    at->second.queue.push_back(ask.pull);
    if (!std::exchange(at->second.serving, true)) serve(ask.connection);
  }

  void perform() {
    for (auto actions = plan_.take_actions(); !actions.empty(); actions = plan_.take_actions())
      for (Plan::Action& action : actions) std::visit([this](auto& each) { act(each); }, action);
  }
  void act(Plan::Reserve& reserve) {
    if (full_) return plan_.no_memory(reserve.pull, Error(Code::out_of_memory, "full"), now_);
    EXPECT_TRUE(memory_.insert(reserve.pull).second);
    sizes_[reserve.pull] = reserve.bytes;
    plan_.reserved(reserve.pull, now_);
  }
  void act(Plan::Offer& offer) { connections_[offer.connection].node = offer.node; }
  bool is_written(PullId pull) const {
    for (const auto& [number, c] : connections_)
      if (c.writing == pull) return true;
    return false;
  }
  void act(Plan::Ask& ask) {
    EXPECT_EQ(memory_.count(ask.pull), 1u);
    EXPECT_FALSE(is_written(ask.pull)) << "FETCH-2: two connections write the same memory";
    const auto part = parts_.find(ask.pull);
    EXPECT_EQ(ask.have, part == parts_.end() ? 0 : part->second) << "FETCH-5";
    EXPECT_EQ(ask.stamp, ask.have == 0 ? 0u : 7u) << "FETCH-5";
    resumed += ask.have != 0 ? 1 : 0;
    asked_.push_back(ask);
    expected_[ask.pull] = ask.connection;
    after(delay(), [this, copy = ask] { request(copy); });
  }
  void act(Plan::Close& close) {
    if (connections_.count(close.connection) != 0) break_off(close.connection);
  }
  void act(Plan::Complete& complete) {
    EXPECT_EQ(memory_.erase(complete.pull), 1u);
    expected_.erase(complete.pull);
    end(complete.pull, complete.object, complete.wanted);
    ++completed;
  }
  void act(Plan::Discard& discard) {
    EXPECT_EQ(memory_.erase(discard.pull), 1u);
    expected_.erase(discard.pull);
    for (const auto& [number, c] : connections_)
      EXPECT_NE(c.writing, discard.pull) << "FETCH-2: memory is written after it was given back";
  }
  void act(Plan::Failed& f) {
    end(0, f.object, true);
    ++failed;
  }
  void end(PullId pull, ObjectId id, bool wanted) {
    for (const auto& [number, c] : connections_)
      EXPECT_TRUE(pull == 0 || c.writing != pull) << "FETCH-2: sealed while it is written";
    EXPECT_EQ(wanted_[id], wanted ? 1 : 0) << "FETCH-1: an end that nobody waits for";
    wanted_[id] = 0;
  }

  Random random_;
  Plan plan_;
  Time now_ = kStart;
  bool full_ = false, calm_ = false;
  std::map<NodeId, NodeState> nodes_;
  std::map<ConnectionId, Connection> connections_;
  std::vector<Event> events_;
  std::set<PullId> memory_;
  std::map<PullId, std::uint64_t> sizes_, parts_;  ///< by pull
  std::map<PullId, ConnectionId> expected_;        ///< pull → connection
  std::vector<Plan::Ask> asked_;
  std::map<ObjectId, int> wanted_;
};

TEST(TransferPlan, EveryPullEndsOnceWhateverBreaks) {
  int completed = 0, failed = 0, named = 0, resumed = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.run();
    completed += world.completed;
    failed += world.failed;
    named += world.named;
    resumed += world.resumed;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(completed, 60 * 50);
  EXPECT_GT(failed, 60);
  EXPECT_GT(named, 60);
  EXPECT_GT(resumed, 60);
}

}  // namespace
}  // namespace troupe::agent::transfer_plan_test
