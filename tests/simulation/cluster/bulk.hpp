/// Moves large objects between simulated nodes: the real TransferPlan and Broadcast over
/// simulated memory and bulk connections, which may fail. It stands for agent/transfers*.cpp
/// without threads and sockets. An object travels in pieces. Pieces that arrived survive the end
/// of their connection, and the rest is requested again. Not simulated: passing on pieces of an
/// incomplete object.
#pragma once

#include "tests/simulation/cluster/channel.hpp"
#include "tests/simulation/cluster/truth.hpp"
#include "tests/simulation/cluster/wire.hpp"
#include "troupe/runtime/agent/broadcast.hpp"
#include "troupe/runtime/agent/transfer_plan.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <map>
#include <optional>
#include <set>

namespace troupe::sim::cluster {

class BulkMoves {
 public:
  struct Held {
    wire::Location location;
    bool own = false;  ///< this node owns it; else it has a copy
  };
  class Out {
   public:
    virtual ~Out() = default;
    virtual void send_peer(NodeId to, const wire::PeerMessage& message, BlobView payload) = 0;
    virtual void send_bulk(Packet packet) = 0;
    virtual std::optional<Held> find(ObjectId object) = 0;
    virtual void moved(ObjectId object, const wire::Location& location) = 0;
    virtual void move_failed(ObjectId object, const Error& error) = 0;
  };
  BulkMoves(Out& out, Store& store, Truth& truth, Random& random, NodeId self, double trouble,
            std::size_t fan, const agent::PlanOptions& options)
      : out_(out),
        store_(store),
        truth_(truth),
        random_(random),
        self_(self),
        trouble_(trouble),
        small_(options.link_objects < agent::PlanOptions{}.link_objects),
        plan_(options),
        tree_({.fan = fan}) {}

  void pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now);
  /// Returns false when the message is not about transfers.
  bool on_message(NodeId from, const wire::PeerMessage& message, BlobView payload, Time now);
  void on_packet(const Packet& packet, Time now);
  void node_died(NodeId node, bool for_ever, Time now);
  void on_tick(Time now);
  Time next_deadline() const;
  void calm() noexcept { trouble_ = 0; }
  std::size_t pulls() const noexcept { return plan_.pulls(); }
  std::size_t memory() const noexcept { return memory_.size() + late_.size(); }

 private:
  struct Inbound {
    NodeId node;
    std::map<ObjectId, agent::PullId> expected;  ///< object → pull
    std::optional<std::string> closing;
  };
  /// The received part of an object.
  struct Memory {
    std::uint64_t bytes = 0, content = 0;
    agent::ConnectionId connection;
    std::uint64_t have = 0, stamp = 0;
    std::map<std::uint64_t, std::uint64_t> ahead;  ///< offset → size of pieces behind a gap
  };
  struct Piece {
    ObjectId object;
    std::uint64_t offset = 0, size = 0, stamp = 0, content = 0;
  };
  void run(Time now);
  void give_memory(agent::PullId pull, std::uint64_t bytes, Time now);
  void serve(NodeId from, const wire::PullRequest& request);
  bool sends_elsewhere(NodeId from, const wire::PullRequest& request, const Held& held,
                       std::uint64_t stamp);
  void take_off(agent::PullId pull);
  void keep_part(agent::PullId pull, Memory& memory);
  void on_piece(NodeId from, agent::ConnectionId connection, const Piece& piece, Time now);

  Out& out_;
  Store& store_;
  Truth& truth_;
  Random& random_;
  NodeId self_;
  double trouble_;
  bool small_;  ///< this schedule allows few transfers at a time
  agent::TransferPlan plan_;
  agent::Broadcast tree_;
  std::map<agent::PullId, Memory> memory_;      ///< by pull
  std::map<Store::Key, std::uint64_t> copies_;  ///< by copy: the stamp of the bytes that it holds
  std::map<agent::ConnectionId, Inbound> inbound_;
  std::map<NodeId, agent::ConnectionId> serving_;  ///< the connection that it offered last
  std::multimap<Time, agent::ConnectionId> ended_;
  std::multimap<Time, std::pair<agent::PullId, std::uint64_t>> late_;  ///< memory of a pull, bytes
};

}  // namespace troupe::sim::cluster
