/// The nodes that a Network talks to, control among them: a record for each, the owner of each key,
/// and the dead. A plain state machine.
///
///     NetworkPeer& peer = peers.add(node, now + patience);        // its state is `unknown`
///     for (const auto& [key, row] : peers.newest_rows(nodes, self, own_key))
///       if (NodeId former = peers.take_key(key, row->description.id)) …      // is dead
///     peers.set_state(peer, NetworkPeer::State::member);
///     peers.end_later(peer, why);  …  for (NodeId node : peers.take_ending()) …
///     if (peers.note_death(node)) …                                     // dead from now on
///
/// Invariants: PEERS-1 A record keeps its address until erase(). PEERS-2 A key belongs to one node.
/// PEERS-3 At most kMostUnknown unknown nodes are waited for, and kMostDead deaths are remembered.
/// PEERS-4 A peer is in take_ending() once for each end_later() that gave it a reason.
#pragma once

#include "troupe/runtime/agent/outbox.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/net/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

/// What a Network knows of one node.
struct NetworkPeer {
  enum class State : std::uint8_t {
    unknown,  ///< control has not listed it (yet)
    member,   ///< admitted
    dropped,  ///< refused until `until`, then admitted again
  };
  static constexpr Time kNever = Time::max();

  NodeId node;
  State state = State::unknown;
  net::PublicKey key;
  std::string door;
  Outbox out;
  bool touched = false;    ///< a message was sent or received since the last reset
  bool kept = false;       ///< see Network::keep_in_touch()
  bool waiting = false;    ///< in SendQueues
  bool congested = false;  ///< Network::can_send() is false
  std::string end_reason;  ///< why it is about to be dropped; empty if it is not
  std::string trouble;     ///< why it is down
  Time until{};            ///< end of the states unknown and dropped
  Time down_since = kNever, absent_since = kNever, admitted_at{};
  Time unreached_since = kNever;  ///< like down_since, but runs on while the peer is dropped
  Time heard{};                   ///< of the last message from it, or of the last request for one
  Duration penalty{};

  bool member() const noexcept { return state == State::member; }
  bool listens() const noexcept { return member() && end_reason.empty(); }
};

class PeerTable {
 public:
  static constexpr std::size_t kMostUnknown = 4096;  ///< unlisted nodes for which messages wait
  static constexpr std::size_t kMostDead = 65536;    ///< nodes remembered as dead

  explicit PeerTable(NodeId control) : control_(&add(control, Time{})) {}
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  // Records.

  /// O(log nodes); O(1) for the node of the last call.
  NetworkPeer* find(NodeId node) {
    if (last_ != nullptr && last_->node == node) return last_;
    const auto at = peers_.find(node);
    return at != peers_.end() ? last_ = &at->second : nullptr;
  }
  NetworkPeer& control() noexcept { return *control_; }
  const NetworkPeer& control() const noexcept { return *control_; }
  /// Adds an unknown node. Precondition: it has no record.
  NetworkPeer& add(NodeId node, Time until);
  /// Whether messages for one more unknown node may wait.
  bool may_wait_for_more() const noexcept { return unknown_ < kMostUnknown; }
  void set_state(NetworkPeer& peer, NetworkPeer::State state);
  /// Removes the record, and the node's key if the node still owns it. Precondition: it is not
  /// control.
  void erase(NetworkPeer& peer);
  auto begin() { return peers_.begin(); }
  auto end() { return peers_.end(); }

  /// Marks the peer to be dropped later, when no caller uses its record. The first reason stays.
  void end_later(NetworkPeer& peer, std::string why);
  bool has_ending() const noexcept { return !ending_.empty(); }
  std::vector<NodeId> take_ending() { return std::exchange(ending_, {}); }

  // Keys and deaths.

  /// Gives the key to the node. Returns the other node that had it; zero: none.
  NodeId take_key(const net::PublicKey& key, NodeId node);
  /// Notes the key of the peer; another key that it had belongs to nobody then.
  void set_key(NetworkPeer& peer, const net::PublicKey& key);
  /// Notes a death. Returns false for control, and for a node that was dead already.
  bool note_death(NodeId node);
  bool is_dead(NodeId node) const { return dead_.count(node) != 0; }

  // Control's list.

  using Rows = std::map<net::PublicKey, const control::ClusterRow*>;
  /// The row of the newest life behind each key. Leaves out `self`, control, and rows with the key
  /// of either. `own`: the key of `self`.
  Rows newest_rows(const control::ClusterNodes& nodes, NodeId self,
                   const net::PublicKey& own) const;
  /// The nodes whose heartbeats control misses, without `self` and the dead.
  std::set<NodeId> suspects(const control::ClusterNodes& nodes, NodeId self) const;
  /// Notes that control's list, which is whole, has come. A row takes the note back.
  void all_absent(Time now);

  /// The first `most` members, in order, that have had no connection for `after` though one is
  /// wanted.
  std::vector<NodeId> out_of_reach(Time now, Duration after, std::size_t most) const;

 private:
  std::map<NodeId, NetworkPeer> peers_;  ///< control among them
  NetworkPeer* last_ = nullptr;          ///< cache of find(): most calls name the same node again
  std::size_t unknown_ = 0;
  NetworkPeer* const control_;
  std::vector<NodeId> ending_;
  std::map<net::PublicKey, NodeId> keys_;  ///< of members except control
  std::set<NodeId> dead_;
  std::deque<NodeId> dead_in_order_;
};

}  // namespace troupe::agent
