/// Simulated control: the real Service on a Store whose writes a crash can tear, with the loop of
/// control/server.cpp played around it. Its disk can be slow, fill up, flip bits and fail.
#pragma once

#include "tests/simulation/cluster/truth.hpp"
#include "tests/simulation/cluster/wire.hpp"
#include "tests/simulation/kernel/world.hpp"
#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/service.hpp"
#include "troupe/runtime/net/transport.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>

namespace troupe::sim::cluster {

class Cluster;

/// Control's disk as the simulator's kernel sees it.
class ControlDisk final : public sim::Disk {
 public:
  explicit ControlDisk(std::uint64_t seed) : memory(std::make_shared<control::MemoryDisk>(seed)) {}
  bool inject(sim::Fault fault, Random& random) override;
  void on_process_death() override;
  void heal() override;
  /// Writes the records of jobs that ended long ago, as an earlier control would have left them.
  void write_ended_jobs(std::size_t count);
  std::shared_ptr<control::MemoryDisk> memory;
  Duration latency = std::chrono::milliseconds(1);
  /// The store and the batch of a process that died during a commit. inject() and
  /// on_process_death() decide how much of the batch reached the disk.
  std::unique_ptr<control::Store> store;
  std::vector<control::Batch> group;

 private:
  bool end_commit(Random& random, int how);
};

class ControlNode final : public sim::Node<Packet>, private Wire, private control::Service::Out {
 public:
  ControlNode(Cluster& cluster, NodeId id);
  ~ControlNode() override;
  void on_start(sim::Env<Packet>& env) override;
  void on_message(sim::Env<Packet>& env, sim::NodeIndex from, Packet packet) override;
  void on_timer(sim::Env<Packet>& env, std::uint64_t id) override;
  void on_connection(sim::Env<Packet>& env, sim::NodeIndex peer, bool up) override;

  const control::Service* service() const noexcept { return service_.get(); }
  /// Names in words one key of each kind that the store still keeps of actors. Called when all
  /// actors are over; empty when the store has forgotten them.
  std::string left_in_store() const;

 private:
  struct Outbox {
    Blob open;
    std::deque<Blob> closed;
  };
  // Wire
  void transmit(Packet packet) override;
  // Service::Out
  void send(NodeId to, const control::FromControl& message) override;
  void broadcast(const std::vector<NodeId>& to, const control::FromControl& message) override;
  void probe(const control::Probe& probe) override;
  void admit(const control::NodeDescription& node) override;
  void fence(NodeId node, Epoch least) override;
  void revoke(NodeId node) override;
  void say(const std::string&) override {}
  void joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) override;

  void flip_in_copy(sim::Env<Packet>& env);
  void pass();
  void take(net::TransportEvent& event);
  void on_frame(NodeId from, BlobView frame);
  void drop(NodeId node);
  void flush(NodeId node);
  void arm(Duration after);
  void note(NodeId to, const control::FromControl& message);

  Cluster& cluster_;
  NodeId id_;
  sim::Env<Packet>* env_ = nullptr;
  std::unique_ptr<control::Store> store_;
  std::unique_ptr<control::Service> service_;
  std::unique_ptr<net::Transport> transport_;
  std::map<NodeId, std::string> keys_;
  std::map<NodeId, Outbox> outboxes_;
  std::set<NodeId> waiting_;
  std::vector<NodeId> gone_silent_;
  std::map<std::uint64_t, NodeId> joins_;
  std::uint64_t last_join_ = 0, next_probe_ = 0;
  std::map<std::uint64_t, control::Probe> probes_;
  std::map<std::pair<NodeId, std::uint64_t>, JobId> asked_jobs_;  ///< by asker and its request
  std::vector<control::Batch> group_;
  bool committing_ = false;
  std::optional<Time> pass_at_;
};

}  // namespace troupe::sim::cluster
