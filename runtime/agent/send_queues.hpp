/// The frames that wait for the Links of a Network's peers: which peers have some, and which peers
/// have too many. A plain state machine.
///
///     queues.append(peer, wire::Protocol::peer, frame);     // or append_urgent()
///     queues.flush([&](NetworkPeer& peer) { send what the Link of the peer takes });
///     for (NodeId node : queues.take_relieved()) …          // it may be sent to again
///
/// Invariants: QUEUES-1 A peer whose frames wait is visited by each flush() while it listens.
/// QUEUES-2 A peer is congested from more than `high` waiting bytes on, until `low` or fewer wait
/// after a flush(). It is then in take_relieved() once.
#pragma once

#include "troupe/runtime/agent/peer_table.hpp"
#include "troupe/runtime/wire/batch.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::agent {

class SendQueues {
 public:
  struct Limits {
    std::size_t batch = 0;  ///< bytes of one batch, unless one frame is larger
    std::size_t high = 0, low = 0;
  };
  explicit SendQueues(const Limits& limits) : limits_(limits) {}

  /// Adds a frame behind the peer's others. Cost: one copy.
  void append(NetworkPeer& peer, wire::Protocol protocol, BlobView frame) {
    peer.out.append(protocol, frame, limits_.batch);
    peer.congested = peer.congested || peer.out.bytes() > limits_.high;
    wait(peer);
  }
  /// Adds a frame ahead of the others, so that no backlog delays it.
  void append_urgent(NetworkPeer& peer, wire::Protocol protocol, BlobView frame) {
    peer.out.append_urgent(protocol, frame);
    wait(peer);
  }
  /// Forgets a peer whose record goes.
  void forget(NetworkPeer& peer) { std::erase(waiting_, &peer); }

  /// Calls pump(peer) for each peer with frames that listens. It takes frames out of peer.out, and
  /// calls nothing here.
  template <class Pump>
  void flush(Pump pump) {
    unflushed_ = false;
    for (NetworkPeer* peer : waiting_) {
      if (peer->listens()) {
        pump(*peer);
        if (peer->listens()) relieve(*peer);
      }
      peer->waiting = !peer->out.empty();
    }
    std::erase_if(waiting_, [](const NetworkPeer* peer) { return !peer->waiting; });
  }
  /// Whether something was added since the last flush().
  bool unflushed() const noexcept { return unflushed_; }
  bool has_relieved() const noexcept { return !relieved_.empty(); }
  std::vector<NodeId> take_relieved() { return std::exchange(relieved_, {}); }

 private:
  void wait(NetworkPeer& peer) {
    unflushed_ = true;
    if (peer.waiting) return;
    peer.waiting = true;
    waiting_.push_back(&peer);
  }
  void relieve(NetworkPeer& peer) {
    if (!peer.congested || peer.out.bytes() > limits_.low) return;
    peer.congested = false;
    relieved_.push_back(peer.node);
  }

  Limits limits_;
  std::vector<NetworkPeer*> waiting_;  ///< peers with something to send
  std::vector<NodeId> relieved_;       ///< peers whose congestion has ended
  bool unflushed_ = false;
};

}  // namespace troupe::agent
