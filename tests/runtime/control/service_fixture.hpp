/// Control's Service with a disk in memory, three nodes, and a clock that the test moves.
#pragma once

#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/service.hpp"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control::service_test {

using namespace std::chrono_literals;
using scheduling::kUnit;

inline const NodeId kA{0, 1}, kB{0, 2}, kC{0, 3};
inline const JobId kJob{5, 1};

/// The messages and actions of control, in order.
struct Outbox : Service::Out {
  struct Sent {
    NodeId to;
    FromControl message;
  };
  void send(NodeId to, const FromControl& message) override { sent.push_back({to, message}); }
  void broadcast(const std::vector<NodeId>& to, const FromControl& message) override {
    for (const NodeId node : to) sent.push_back({node, message});
    ++broadcasts;
  }
  void probe(const Probe& probe) override { probes.push_back(probe); }
  void admit(const NodeDescription& node) override { admitted.push_back(node.id); }
  void fence(NodeId node, Epoch least) override { fenced[node] = least; }
  void revoke(NodeId node) override { revoked.push_back(node); }
  void say(const std::string& line) override { said.push_back(line); }
  void joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) override {
    joins.emplace_back(request, error);
  }

  std::vector<Sent> sent;
  int broadcasts = 0;
  std::vector<Probe> probes;
  std::vector<NodeId> admitted, revoked;
  std::map<NodeId, Epoch> fenced;
  std::vector<std::string> said;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<const ErrorInfo>>> joins;
};

struct ServiceTest : testing::Test {
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store;
  std::unique_ptr<Service> service;
  Outbox out;
  ServiceOptions options;
  Time now = Time{} + 1000s;
  std::map<NodeId, Epoch> epochs;
  std::uint64_t beats = 0;

  void SetUp() override { start(); }
  /// Starts a new control on the same disk. What the old one had not written is gone.
  void start() {
    service.reset();
    store.reset();
    out = Outbox();
    store = open_memory_store(disk, {}).value();
    service = Service::open(*store, options, out, now).value();
    flush();
  }
  void flush() {
    while (service->has_commit()) {
      ASSERT_TRUE(store->commit(service->begin_commit(), Need::essential).ok());
      service->finish_commit(now);
    }
  }
  /// Gives a message to control, and completes all commits.
  void say(NodeId from, const ToControl& message) {
    service->on_message(from, message, now);
    flush();
  }
  /// Returns the messages of one kind to this node since the last take().
  template <class M>
  std::vector<M> told(NodeId node) const {
    std::vector<M> found;
    for (const auto& one : out.sent)
      if (const M* match = std::get_if<M>(&one.message); match != nullptr && one.to == node)
        found.push_back(*match);
    return found;
  }
  template <class M>
  M last(NodeId node) const {
    const auto all = told<M>(node);
    EXPECT_FALSE(all.empty());
    return all.empty() ? M{} : all.back();
  }
  static NodeDescription description(NodeId id, std::int64_t cpus, std::int64_t gpus = 0) {
    NodeDescription node;
    node.id = id;
    node.name = "n" + std::to_string(id.low);
    node.address = "tcp://127.0.0.1:" + std::to_string(7000 + id.low);
    node.public_key = "key" + std::to_string(id.low);
    node.resources.cpus = cpus * kUnit;
    node.resources.gpus = gpus * kUnit;
    node.beside_control = id == kA;
    return node;
  }
  void join(NodeId id, std::int64_t cpus, std::int64_t gpus = 0) {
    RegisterNode message;
    message.node = description(id, cpus, gpus);
    message.epoch = epochs[id];
    message.session = SessionId{id.low, 1};
    say(id, message);
    epochs[id] = last<Registered>(id).epoch;
  }
  void join_all() {
    join(kA, 4);
    join(kB, 4);
    join(kC, 4, 2);
    StartJob job;
    job.job.id = kJob;
    job.job.name = "train";
    say(kA, job);
    ASSERT_EQ(last<JobReply>(kA).error, nullptr);
  }
  void report(NodeId id, std::int64_t cpus_free, std::int64_t gpus_free = 0) {
    NodeReport message;
    message.view.free.cpus = cpus_free * kUnit;
    message.view.free.gpus = gpus_free * kUnit;
    message.view.gpu_free.assign(static_cast<std::size_t>(gpus_free), kUnit);
    say(id, message);
  }
  /// Lets time pass, in steps of 250 ms, with heartbeats of these nodes.
  void pass(Duration time, const std::vector<NodeId>& alive) {
    for (const Time end = now + time; now < end;) {
      now += 250ms;
      for (const NodeId node : alive) {
        const auto rosters = told<Roster>(node);
        const std::uint64_t roster = rosters.empty() ? 0 : rosters.back().version;
        say(node, Heartbeat{node, epochs[node], ++beats, roster});
      }
      service->on_tick(now);
      flush();
    }
  }
  static ActorSpec spec(std::uint64_t n, std::int64_t cpus, std::string name = "") {
    ActorSpec s;
    s.id = ActorId{7, n};
    s.job = kJob;
    s.name = std::move(name);
    s.class_name = "Counter";
    s.owner = kA;
    s.lifetime = ObjectId{8, n};
    s.demand.need.cpus = cpus * kUnit;
    return s;
  }
  ActorReply spawn(ActorSpec s, NodeId from = kA, bool get_if_exists = false) {
    SpawnActor message;
    message.request = 77;
    message.spec = std::move(s);
    message.get_if_exists = get_if_exists;
    say(from, message);
    const ActorReply reply = last<ActorReply>(from);
    EXPECT_EQ(reply.request, 77u);
    return reply;
  }
  /// Returns the node to which the last start of this actor went; zero when there was none.
  NodeId placed(std::uint64_t n) const {
    NodeId at;
    for (const auto& one : out.sent)
      if (const auto* start = std::get_if<StartActorAt>(&one.message);
          start != nullptr && start->spec->id == ActorId{7, n})
        at = one.to;
    return at;
  }
  StartActorAt start_of(std::uint64_t n) const {
    for (auto at = out.sent.rbegin(); at != out.sent.rend(); ++at)
      if (const auto* start = std::get_if<StartActorAt>(&at->message);
          start != nullptr && start->spec->id == ActorId{7, n})
        return *start;
    ADD_FAILURE() << "actor " << n << " was never started";
    return {};
  }
  void started(std::uint64_t n) {
    say(placed(n), ActorStarted{ActorId{7, n}, start_of(n).incarnation, ProcessIndex::of(40 + n)});
  }
  ActorState state(std::uint64_t n) const { return service->actors().find(ActorId{7, n})->state; }
};

}  // namespace troupe::control::service_test
