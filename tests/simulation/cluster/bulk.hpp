/// Moves large objects between simulated nodes: the real TransferPlan, with memory and bulk
/// connections that the world may take away (agent/transfers.cpp without threads and sockets).
#pragma once

#include "tests/simulation/cluster/channel.hpp"
#include "tests/simulation/cluster/truth.hpp"
#include "tests/simulation/cluster/wire.hpp"
#include "troupe/runtime/agent/transfer_plan.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <map>
#include <optional>
#include <set>

namespace troupe::sim::cluster {

class BulkMoves {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send_peer(NodeId to, const wire::PeerMessage& message, BlobView payload) = 0;
    virtual void send_bulk(Packet packet) = 0;
    virtual std::optional<wire::Location> find(ObjectId object) = 0;
    virtual void moved(ObjectId object, const wire::Location& location) = 0;
    virtual void move_failed(ObjectId object, const Error& error) = 0;
  };
  BulkMoves(Out& out, Store& store, Truth& truth, Random& random, NodeId self, double trouble)
      : out_(out), store_(store), truth_(truth), random_(random), self_(self), trouble_(trouble) {}

  void pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now);
  /// False when the message is not about transfers.
  bool on_message(NodeId from, const wire::PeerMessage& message, BlobView payload, Time now);
  void on_packet(const Packet& packet, Time now);
  void node_died(NodeId node, bool for_ever, Time now);
  void on_tick(Time now);
  Time next_deadline() const;
  void calm() noexcept { trouble_ = 0; }
  std::size_t pulls() const noexcept { return plan_.pulls(); }

 private:
  struct Inbound {
    NodeId node;
    std::map<ObjectId, std::uint64_t> expected;  ///< object → pull
    std::optional<std::string> closing;
  };
  void run(Time now);
  void serve(NodeId from, const wire::PullRequest& request, Time now);

  Out& out_;
  Store& store_;
  Truth& truth_;
  Random& random_;
  NodeId self_;
  double trouble_;
  agent::TransferPlan plan_;
  std::map<std::uint64_t, std::uint64_t> memory_;  ///< pull → content
  std::map<std::uint64_t, Inbound> inbound_;
  std::map<NodeId, std::uint64_t> serving_;  ///< the connection that it offered last
  std::multimap<Time, std::uint64_t> ended_;
};

}  // namespace troupe::sim::cluster
