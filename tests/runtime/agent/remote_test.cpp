/// Tests RemoteTable: the tables of three agents, joined by FIFO links and driven at random, with
/// deaths of processes and of a node. Proves REMOTE-1 to REMOTE-4: no lease is given twice or
/// leaked, proxies open and close in pairs, and credits bound the frames under way.
#include "troupe/runtime/agent/remote.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <functional>

namespace troupe::agent::remote_test {
namespace {

NodeId node_id(std::uint64_t n) {
  return NodeId{0, n};
}

/// An agent as RemoteTable sees it: processes, and a lease table that grants what is requested.
class Agent final : public RemoteTable::Out {
 public:
  explicit Agent(NodeId self) : self_(self), table(*this, [this] { return next_++; }) {}

  struct ProxyChannel {
    std::deque<int> ring;  ///< frames that have arrived and that the process has not taken
    std::uint64_t entered = 0;
  };
  NodeId self_;
  ProcessIndex next_ = 1;
  std::set<ProcessIndex> live;
  std::map<std::pair<ProcessIndex, ProcessIndex>, ProxyChannel> proxies;
  std::map<ProcessIndex, std::set<LeaseId>> held;  ///< process → leases of other nodes
  std::map<LeaseId, ProcessIndex> held_worker;
  std::map<LeaseId, ProcessIndex> given;  ///< this node's lease → proxy process
  std::map<LeaseId, ProcessIndex> lease_worker;
  std::map<std::pair<ProcessIndex, LeaseKey>, std::uint32_t> backlog;
  std::map<std::pair<ProcessIndex, LeaseKey>, int> came_back;
  std::vector<std::pair<NodeId, std::string>> refusals;  ///< the node, and why
  std::vector<std::pair<NodeId, std::int64_t>> gave;     ///< the node, and the CPUs of its lease
  std::map<NodeId, std::deque<wire::PeerMessage>> outbox;
  std::set<NodeId> dead_nodes;
  LeaseId next_lease = 1;
  int closed = 0;
  std::function<void()> at_read;  ///< called when the agent reads what a process has written
  RemoteTable table;

  ProcessIndex start() {
    live.insert(next_);
    return next_++;
  }
  // RemoteTable::Out
  void send(NodeId to, const wire::PeerMessage& message) override {
    if (dead_nodes.count(to) == 0) outbox[to].push_back(message);
  }
  bool is_alive(ProcessIndex process) override { return live.count(process) != 0; }
  bool hosts(ProcessIndex worker, ActorId, std::uint64_t) override {
    return live.count(worker) != 0;
  }
  void open_proxy(ProcessIndex process, ProcessIndex proxy_process, NodeId) override {
    ASSERT_TRUE(live.count(process)) << "a proxy for a dead process";
    ASSERT_TRUE(proxies.try_emplace({process, proxy_process}).second) << "opened twice";
  }
  void read(ProcessIndex) override {
    if (at_read) at_read();
  }
  void close_proxy(ProcessIndex process, ProcessIndex proxy_process, const Death&,
                   std::uint64_t) override {
    ASSERT_EQ(proxies.erase({process, proxy_process}), 1u) << "closed twice";
    ++closed;
    // A process does so at PeerDied: the lease went with its worker.
    std::erase_if(held[process],
                  [&](LeaseId lease) { return held_worker[lease] == proxy_process; });
  }
  std::uint64_t started(ProcessIndex, ProcessIndex) override { return 0; }
  void granted(ProcessIndex process, LeaseKey, LeaseId lease, ProcessIndex worker,
               const std::vector<std::int32_t>&) override {
    ASSERT_TRUE(proxies.count({process, worker})) << "granted before its proxy";
    ASSERT_TRUE(held[process].insert(lease).second);
    held_worker[lease] = worker;
  }
  void reclaim(ProcessIndex process, LeaseId lease) override {
    ASSERT_TRUE(held[process].count(lease));
  }
  void job_refused(ProcessIndex process, NodeId node, const std::string& why) override {
    EXPECT_TRUE(live.count(process)) << "a dead process has no requests";
    refusals.emplace_back(node, why);
  }
  void spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand&,
                    std::uint32_t count, NodeId) override {
    came_back[{process, key}] += static_cast<int>(count);
  }
  void gave_back(NodeId node, const wire::ResourceDemand& demand) override {
    gave.emplace_back(node, demand.cpus);
  }
  void request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand&,
               std::uint32_t n, JobId, bool no_faster) override {
    takes_slow = no_faster;
    backlog[{proxy_process, key}] = n;
  }
  void returned(LeaseId lease) override {
    ASSERT_EQ(given.erase(lease), 1u) << "a lease came back twice, or never was given";
    lease_worker.erase(lease);
  }
  void owner_died(ProcessIndex proxy_process) override {
    std::erase_if(backlog, [&](const auto& entry) { return entry.first.first == proxy_process; });
    std::erase_if(given, [&](const auto& entry) {
      if (entry.second != proxy_process) return false;
      lease_worker.erase(entry.first);
      return true;
    });
  }

  bool takes_slow = false;  ///< the last request said that no faster node takes it

  void kill(ProcessIndex process) {
    live.erase(process);
    held.erase(process);
    table.process_died(process, {"killed"});
    for (auto at = lease_worker.begin(); at != lease_worker.end();) {
      if (at->second != process) {
        ++at;
        continue;
      }
      table.lease_lost(at->first);
      given.erase(at->first);
      at = lease_worker.erase(at);
    }
  }
};

/// RemoteTable tells the messages about a lease or a proxy apart by the node that sends them.
TEST(Remote, AnotherNodesWordsAboutALeaseOrAProxyChangeNothing) {
  Agent a(node_id(1)), b(node_id(2));
  const NodeId c = node_id(3);
  const ProcessIndex caller = a.start(), worker = b.start();
  const auto hand = [](Agent& from, Agent& to) {
    for (auto& message : std::exchange(from.outbox[to.self_], {}))
      EXPECT_TRUE(to.table.on_message(from.self_, message));
  };
  a.table.spilled(caller, 5, b.self_, {}, JobId{1, 1});
  hand(a, b);
  ASSERT_EQ(b.backlog.size(), 1u);
  const ProcessIndex proxy_process = b.backlog.begin()->first.first;
  b.given[1] = proxy_process;
  b.lease_worker[1] = worker;
  b.table.granted_here(proxy_process, 5, 1, worker, {});
  hand(b, a);
  ASSERT_EQ(a.held[caller].size(), 1u);
  a.table.spilled(caller, 6, b.self_, {}, JobId{1, 1});
  hand(a, b);
  const ProcessIndex there = a.held_worker.begin()->second;
  for (int i = 0; i < 4; ++i) a.table.carried(caller, there);

  const std::vector<wire::PeerMessage> to_b{wire::PeerLeaseReturned{caller, 1},
                                            wire::PeerLeaseWithdraw{caller, 6},
                                            wire::PeerProcessGone{caller, 0, 0, "a lie"}};
  for (const auto& lie : to_b) EXPECT_TRUE(b.table.on_message(c, lie));
  EXPECT_EQ(b.given.size(), 1u) << "the lease is out";
  EXPECT_EQ((b.backlog[{proxy_process, LeaseKey{6}}]), 1u) << "the request stays";
  EXPECT_EQ(b.proxies.size(), 1u);
  EXPECT_FALSE(b.table.arrived(c, {caller, worker, {}})) << "no frame enters";

  const std::vector<wire::PeerMessage> to_a{
      wire::PeerLeaseReclaim{caller, 1}, wire::PeerLeaseRefused{caller, 6, 1, "a lie"},
      wire::PeerProcessGone{worker, 0, 0, "a lie"}, wire::PeerCredit{worker, caller, 4}};
  for (const auto& lie : to_a) EXPECT_TRUE(a.table.on_message(c, lie));
  EXPECT_EQ(a.held[caller].size(), 1u);
  EXPECT_TRUE(a.came_back.empty());
  EXPECT_EQ(a.proxies.size(), 1u);
  EXPECT_EQ(a.table.outstanding(caller, 6), 1u);
}

struct World {
  explicit World(std::uint64_t seed) : random(seed) {
    for (std::uint64_t n = 1; n <= 3; ++n) agents.push_back(std::make_unique<Agent>(node_id(n)));
    for (auto& agent : agents)
      for (int i = 0; i < 3; ++i) agent->start();
  }
  Random random;
  std::vector<std::unique_ptr<Agent>> agents;

  std::uint64_t below(std::uint64_t n) { return random.below(n); }
  Agent& of(NodeId id) { return *agents[id.low - 1]; }
  ProcessIndex some_live(Agent& agent) {
    auto at = agent.live.begin();
    std::advance(at, static_cast<long>(below(agent.live.size())));
    return *at;
  }
  void deliver(Agent& from, NodeId to) {
    auto& queue = from.outbox[to];
    if (queue.empty()) return;
    const wire::PeerMessage message = std::move(queue.front());
    queue.pop_front();
    Agent& receiver = of(to);
    if (receiver.dead_nodes.count(from.self_)) return;
    if (const auto* frame = std::get_if<wire::PeerFrame>(&message)) {
      if (const auto proxy_process = receiver.table.arrived(from.self_, *frame))
        receiver.proxies.at({frame->to, *proxy_process}).ring.push_back(1);
      return;
    }
    EXPECT_TRUE(receiver.table.on_message(from.self_, message));
  }
  void act(bool may_kill) {
    Agent& agent = *agents[below(3)];
    if (agent.live.empty()) return;
    const ProcessIndex process = some_live(agent);
    const NodeId other = node_id(1 + (agent.self_.low + below(2)) % 3);
    switch (below(may_kill ? 10 : 9)) {
      case 0:
      case 1:
        if (agent.dead_nodes.count(other) == 0)
          agent.table.spilled(process, LeaseKey::of(below(2)), other, {}, JobId{1, 1});
        break;
      case 2: agent.table.withdrawn(process, LeaseKey::of(below(2))); break;
      case 3: {
        auto& held = agent.held[process];
        if (held.empty()) break;
        const LeaseId lease = *held.begin();
        held.erase(held.begin());
        EXPECT_TRUE(agent.table.lease_returned(process, lease));
        break;
      }
      case 4:  // grants a lease that another node requested
        for (auto& [key, count] : agent.backlog) {
          if (count == 0) continue;
          --count;
          const LeaseId lease = agent.next_lease++;
          agent.given[lease] = key.first;
          agent.lease_worker[lease] = process;
          agent.table.granted_here(key.first, key.second, lease, process, {});
          break;
        }
        break;
      case 5:
        for (auto& [key, count] : agent.backlog)
          if (count > 0) {
            count = 0;
            agent.table.refused_here(key.first, key.second, "no");
            break;
          }
        break;
      case 6:
        if (agent.dead_nodes.count(other) == 0 && !of(other).live.empty())
          agent.table.connect(process, other, some_live(of(other)), ActorId{1, 1}, 1);
        break;
      case 7:  // sends a frame through some proxy
        for (auto& [key, proxy] : agent.proxies) {
          if (below(2) != 0 || !agent.table.may_carry(key.first, key.second)) continue;
          const auto target = agent.table.target(key.second);
          agent.send(target.node, wire::PeerFrame{key.first, target.process, {}});
          agent.table.carried(key.first, key.second);
          break;
        }
        break;
      case 8:  // lets the process take frames
        for (auto& [key, proxy] : agent.proxies) {
          proxy.entered += proxy.ring.size();
          proxy.ring.clear();
          agent.table.entered(key.first, key.second, proxy.entered);
        }
        break;
      default:
        if (below(4) == 0) {
          agent.kill(process);
          agent.start();
        }
        break;
    }
  }
  void kill_node(Agent& victim) {
    for (auto& agent : agents) {
      if (agent.get() == &victim) continue;
      agent->dead_nodes.insert(victim.self_);
      agent->outbox[victim.self_].clear();
      agent->table.node_died(victim.self_, "the node is dead", true);
    }
    victim.outbox.clear();
    for (auto& agent : agents) victim.dead_nodes.insert(agent->self_);
    victim.live.clear();
    victim.held.clear();
  }
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& from : agents)
        for (auto& [to, queue] : from->outbox)
          while (!queue.empty()) {
            deliver(*from, to);
            moved = true;
          }
    }
  }
};

TEST(RemoteTable, ADeadNodeKeepsItsIndexUntilItIsForgotten) {
  Agent agent(NodeId{1, 1});
  const NodeId dead{2, 2};
  const ProcessIndex index = agent.table.index_of(dead);
  agent.table.node_died(dead, "it is dead", true);
  EXPECT_EQ(agent.table.index_of(dead), index);
  agent.table.forget_node(index);
  EXPECT_EQ(agent.table.node_of(index), std::nullopt);
  EXPECT_NE(agent.table.index_of(dead), index);
}

TEST(RemoteTable, WhoNamesALostNodeWhileItsProxiesCloseNamesItsNextLife) {
  World world(11);
  Agent& a = *world.agents[0];
  const NodeId lost = world.agents[1]->self_;
  a.table.connect(1, lost, 2, ActorId{1, 1}, 1);
  const ProcessIndex before = a.table.index_of(lost);
  ProcessIndex named = before;
  a.at_read = [&] { named = a.table.index_of(lost); };
  a.table.node_died(lost, "it is out of reach", false);
  EXPECT_NE(named, before) << "what is counted for that one is dropped";
  EXPECT_EQ(a.table.index_of(lost), named);
  EXPECT_EQ(a.table.node_of(before), std::nullopt);
}

TEST(RemoteTable, NoProxyIsOpenedToAnAliasThatIsBeingDropped) {
  for (const bool node : {true, false}) {
    Agent a(node_id(1));
    const NodeId lost = node_id(2);
    const ProcessIndex first = a.start(), second = a.start();
    a.table.connect(first, lost, 2, ActorId{1, 1}, 1);
    // The first process has written a request to connect to the same process, and so has another.
    bool is_read = false;
    a.at_read = [&] {
      if (std::exchange(is_read, true)) return;
      for (const ProcessIndex process : {first, second})
        a.table.connect(process, lost, 2, ActorId{1, 2}, 1);
    };
    if (node)
      a.table.node_died(lost, "it is out of reach", false);
    else
      a.table.on_message(lost, wire::PeerProcessGone{2, 0, 0, "killed"});
    EXPECT_EQ(a.table.proxy_count(), 0u);
    EXPECT_EQ(a.table.proxy_process_count(), 0u);
    EXPECT_TRUE(a.proxies.empty());
    a.kill(first);
    a.kill(second);
  }
}

TEST(RemoteTable, ANodeIsLostWhileTheJobOfItsRequestsEnds) {
  Agent a(node_id(1));
  const NodeId lost = node_id(2);
  const ProcessIndex driver = a.start();
  const JobId job{1, 1};
  a.table.connect(driver, lost, 2, ActorId{1, 1}, 1);
  a.table.on_message(lost, wire::PeerLeaseRequest{3, 7, 1, job, {}});
  ASSERT_EQ(a.table.proxy_process_count(), 2u);
  a.at_read = [&] { a.table.refuse_job(job, "its driver has ended", false); };
  a.table.node_died(lost, "it is out of reach", false);
  EXPECT_EQ(a.table.proxy_process_count(), 0u);
}

TEST(RemoteTable, ARefusalForEverIsToldBeforeEachOfItsRequestsComesBack) {
  Agent a(node_id(1)), b(node_id(2));
  const ProcessIndex driver = a.start();
  const JobId job{1, 1};
  const auto hand = [](Agent& from, Agent& to) {
    for (auto& message : std::exchange(from.outbox[to.self_], {}))
      EXPECT_TRUE(to.table.on_message(from.self_, message));
  };
  const auto ask = [&](LeaseKey key) {
    a.table.spilled(driver, key, b.self_, {}, job);
    hand(a, b);
  };
  ask(5);
  b.table.refuse_job(job, "its job has ended", false);
  hand(b, a);
  EXPECT_TRUE(a.refusals.empty()) << "the node may take the next one";
  EXPECT_EQ((a.came_back[{driver, LeaseKey{5}}]), 1);
  ask(5), ask(6);
  b.table.refuse_job(JobId{1, 2}, "another job", true);
  hand(b, a);
  EXPECT_TRUE(a.refusals.empty());
  b.table.refuse_job(job, "no program", true);
  hand(b, a);
  EXPECT_EQ(a.refusals, (std::vector(2, std::pair(b.self_, std::string("no program")))));
  EXPECT_EQ((a.came_back[{driver, LeaseKey{5}}]), 2);
  EXPECT_EQ((a.came_back[{driver, LeaseKey{6}}]), 1);
  a.table.on_message(b.self_, wire::PeerLeaseRefused{driver, 6, 1, "unasked", true});
  EXPECT_EQ(a.refusals.size(), 2u) << "there is no such request";
}

TEST(RemoteTable, ARequestThatNoFasterNodeTakesSaysSo) {
  Agent a(node_id(1)), b(node_id(2));
  const ProcessIndex driver = a.start();
  const auto hand = [&] {
    for (auto& message : std::exchange(a.outbox[b.self_], {}))
      EXPECT_TRUE(b.table.on_message(a.self_, message));
  };
  a.table.spilled(driver, 5, b.self_, {}, JobId{1, 1}, true);
  hand();
  ASSERT_EQ(b.backlog.size(), 1u);
  EXPECT_TRUE(b.takes_slow);
  const auto [proxy_process, key] = b.backlog.begin()->first;
  a.table.spilled(driver, 6, b.self_, {}, JobId{1, 1});
  hand();
  EXPECT_FALSE(b.takes_slow);
  b.table.request_again(proxy_process, key);
  EXPECT_TRUE(b.takes_slow);
}

TEST(RemoteTable, AnAliasIsForgottenWithItsLastLeaseWhenTheWorkerDies) {
  Agent a(node_id(1));
  const ProcessIndex worker = a.start();
  a.table.on_message(node_id(2), wire::PeerLeaseRequest{2, 7, 1, {}, {}});
  ASSERT_EQ(a.backlog.size(), 1u);
  const ProcessIndex proxy_process = a.backlog.begin()->first.first;
  a.given[1] = proxy_process;
  a.lease_worker[1] = worker;
  a.table.granted_here(proxy_process, 7, 1, worker, {});
  EXPECT_EQ(a.table.proxy_process_count(), 1u);
  a.kill(worker);
  EXPECT_EQ(a.table.proxy_process_count(), 0u);
  EXPECT_FALSE(a.table.talks_to(node_id(2)));
}

TEST(RemoteTable, LeasesAndProxiesBalanceUnderDeaths) {
  int leases = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int step = 0; step < 400; ++step) {
      world.act(true);
      for (std::uint64_t n = world.below(4); n > 0; --n)
        world.deliver(*world.agents[world.below(3)], node_id(1 + world.below(3)));
      if (step == 300 && seed % 2 == 0) world.kill_node(*world.agents[world.below(3)]);
    }
    world.settle();
    // Every lease that one side takes for given is held by a live process of the other.
    std::size_t given = 0, held = 0;
    for (auto& agent : world.agents) {
      if (agent->live.empty()) continue;
      given += agent->given.size();
      for (auto& [process, ids] : agent->held) held += ids.size();
    }
    EXPECT_EQ(given, held);
    leases += static_cast<int>(held);
    for (auto& agent : world.agents) {
      if (agent->live.empty()) continue;
      EXPECT_EQ(agent->proxies.size(), agent->table.proxy_count());
    }
    // Proxy channels come in pairs.
    std::size_t proxies = 0;
    for (auto& agent : world.agents)
      if (!agent->live.empty()) proxies += agent->proxies.size();
    EXPECT_EQ(proxies % 2, 0u);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(leases, 100) << "the load fell below its floor";
}

TEST(RemoteTable, CreditBoundsWhatIsUnderWay) {
  World world(7);
  Agent& a = *world.agents[0];
  Agent& b = *world.agents[1];
  const ProcessIndex proxy_process = a.table.connect(1, b.self_, 1, ActorId{1, 1}, 1);
  world.settle();
  std::uint64_t sent = 0;
  while (a.table.may_carry(1, proxy_process)) {
    a.send(b.self_, wire::PeerFrame{1, 1, {}});
    a.table.carried(1, proxy_process);
    ++sent;
  }
  EXPECT_EQ(sent, wire::kCarryWindow);
  world.settle();
  EXPECT_FALSE(a.table.may_carry(1, proxy_process)) << "nothing has entered the ring";
  const ProcessIndex there = b.proxies.begin()->first.second;
  b.table.entered(1, there, sent);
  world.settle();
  EXPECT_TRUE(a.table.may_carry(1, proxy_process));
}

TEST(RemoteTable, FrameForADeadProcessIsAnsweredOnceAndClosesTheProxy) {
  World world(9);
  Agent& a = *world.agents[0];
  Agent& b = *world.agents[1];
  const ProcessIndex proxy_process = a.table.connect(1, b.self_, 2, ActorId{1, 1}, 1);
  world.settle();
  b.kill(2);
  b.outbox[a.self_].clear();  // as if the message about the death were still on its way
  a.send(b.self_, wire::PeerFrame{1, 2, {}});
  a.table.carried(1, proxy_process);
  world.settle();
  EXPECT_EQ(a.proxies.size(), 0u);
  EXPECT_EQ(a.closed, 1);
}

TEST(RemoteTable, TalksToANodeWhileAProxyOrARequestIsOpen) {
  World world(13);
  Agent& a = *world.agents[0];
  Agent& b = *world.agents[1];
  Agent& c = *world.agents[2];
  EXPECT_FALSE(a.table.talks_to(b.self_));
  a.table.connect(1, b.self_, 2, ActorId{1, 1}, 1);
  world.settle();
  EXPECT_TRUE(a.table.talks_to(b.self_));
  EXPECT_TRUE(b.table.talks_to(a.self_));
  a.table.spilled(1, 0, c.self_, {}, JobId{1, 1});
  EXPECT_TRUE(a.table.talks_to(c.self_));
  a.table.withdrawn(1, 0);
  EXPECT_FALSE(a.table.talks_to(c.self_));
  b.kill(2);
  world.settle();
  EXPECT_FALSE(a.table.talks_to(b.self_));
  EXPECT_FALSE(b.table.talks_to(a.self_));
}

// The lease table has served the request with a worker that had just died, so no grant was sent.
// The request must be open again, since a process that waits for another node's answer does not
// ask twice.
TEST(RemoteTable, ARequestThatMetADeadWorkerIsOpenStill) {
  World world(15);
  Agent& a = *world.agents[0];
  Agent& b = *world.agents[1];
  a.table.spilled(1, 0, b.self_, {}, JobId{1, 1});
  a.table.spilled(1, 0, b.self_, {}, JobId{1, 1});
  world.settle();
  const auto [proxy_process, key] = b.backlog.begin()->first;
  b.backlog.begin()->second = 1;  // the lease table has served one of two
  b.table.request_again(proxy_process, key);
  EXPECT_EQ(b.backlog.begin()->second, 2u);
  EXPECT_EQ(a.table.outstanding(1, 0), 2u);
  b.backlog.begin()->second = 0;
  a.table.withdrawn(1, 0);
  world.settle();
  b.table.request_again(proxy_process, key);
  EXPECT_EQ(b.backlog.begin()->second, 0u) << "nobody wants it any more";
}

TEST(RemoteTable, AStrangersLeaseNumberIsIgnored) {
  World world(11);
  Agent& a = *world.agents[0];
  Agent& b = *world.agents[1];
  Agent& c = *world.agents[2];
  a.table.spilled(1, 0, b.self_, {}, JobId{1, 1});
  world.settle();
  ASSERT_EQ(b.backlog.size(), 1u);
  b.given[5] = b.backlog.begin()->first.first;
  b.lease_worker[5] = 3;
  b.table.granted_here(b.backlog.begin()->first.first, 0, 5, 3, {});
  c.send(b.self_, wire::PeerLeaseReturned{1, 5});
  world.settle();
  EXPECT_EQ(b.given.count(5), 1u) << "another node gave back what it does not have";
  EXPECT_TRUE(a.table.lease_returned(2, *a.held[1].begin())) << "another process's lease";
  EXPECT_TRUE(a.gave.empty());
  world.settle();
  EXPECT_EQ(b.given.count(5), 1u);
  EXPECT_TRUE(a.table.lease_returned(1, *a.held[1].begin()));
  EXPECT_EQ(a.gave,
            (std::vector<std::pair<NodeId, std::int64_t>>{{b.self_, wire::ResourceDemand{}.cpus}}));
}

}  // namespace
}  // namespace troupe::agent::remote_test
