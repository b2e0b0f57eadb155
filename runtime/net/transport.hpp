/// The transport of a node: it carries messages to and from admitted peers. Each peer has a Link
/// and a CURVE-encrypted ZeroMQ socket of its own. Agents and control own one transport each.
///
///     auto t = net::Transport::open({.keys = std::move(mine), .listen = "tcp://127.0.0.1:*"});
///     t->admit({.node = other, .key = its_key, .door = "tcp://127.0.0.1:6500"});
///     t->send(other, std::move(bytes), now);           // connects on demand
///     poll(t->fd(), until t->next_deadline());  t->poll(now, events);
///
/// How. `listen` is the *door*: a ROUTER socket that takes small messages only. The transport
/// answers a *knock* from an admitted key with the port of a fresh DEALER socket that no other key
/// may use. It passes a *join* from a one-time key to the owner. Dropping a peer is therefore
/// closing its socket. When two peers knock at each other at once, the knock of the smaller key
/// wins. Every socket uses CURVE, and the ZAP handler is bound before the first socket; encryption
/// cannot be switched off.
///
/// Use it from one thread (an event loop). No call blocks. fd() becomes readable when poll() has
/// work, with one condition: ask next_deadline() after every other call, because work may be
/// pending without a new signal.
#pragma once

#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/net/keys.hpp"
#include "troupe/runtime/net/link.hpp"

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace troupe::net {

/// The role of an admitted key. A join key may send one join and nothing else.
enum class Role : std::uint8_t { node = 1, observer = 2, join = 3 };

struct TransportOptions {
  CurveKeys keys;
  /// The door. Loopback and an ephemeral port unless the user named another address.
  std::string listen = "tcp://127.0.0.1:*";
  std::uint32_t protocol = kProtocolVersion;
  std::string build_id;
  LinkOptions link;  ///< window and timeouts; its protocol and build id are replaced by the above
  Duration knock_timeout{std::chrono::seconds(5)};
  Duration retry_first{std::chrono::milliseconds(200)};  ///< pause between knocks, then doubled
  Duration retry_last{std::chrono::seconds(5)};
  Duration reconnect_grace{std::chrono::seconds(1)};  ///< libzmq may restore a broken connection
  /// Changes an address before it is dialled (address translation; null = as it is).
  std::function<std::string(const std::string&)> dial;
};

struct PeerInfo {
  NodeId node;
  PublicKey key;
  std::string door;  ///< empty when only the peer can connect
  Role role = Role::node;
};

// The events that poll() reports.
struct Message {
  NodeId from;
  Role role = Role::node;
  Delivered content;
};
/// There is a connection and the peer has spoken on it. Reported at first, after each reset (then
/// PeerReset comes before it), and after each PeerDown.
struct PeerUp {
  NodeId node;
  std::string build;
};
/// The connection broke or cannot be made. The transport keeps messages and tries again.
struct PeerDown {
  NodeId node;
  std::string why;
};
/// The peer's process is another one now. Reset has the outcome of each ticket.
struct PeerReset {
  NodeId node;
  Reset reset;
};
/// The peer is not admitted any more: it has another protocol, is fenced, broke the protocol, or
/// was revoked. Its socket is closed. A PeerReset comes before this event if messages were waiting.
/// admit() may admit it again.
struct PeerLost {
  NodeId node;
  Error error;
  bool fenced = false;  ///< the peer refuses our epoch: this node was declared dead
};
/// A holder of a one-time key asks to join; answer with answer_join() or refuse_join().
struct JoinRequest {
  std::uint64_t id = 0;
  PublicKey one_time;
  Blob request;
};
/// The end of this transport's own join().
struct JoinReply {
  Result<Blob> answer;
};
/// A connection was refused at a socket; for the audit log.
struct Refused {
  std::string address, why;
};
using TransportEvent =
    std::variant<Message, PeerUp, PeerDown, PeerReset, PeerLost, JoinRequest, JoinReply, Refused>;

struct TransportStats {
  std::uint64_t refused_handshakes = 0, refused_knocks = 0, bad_messages = 0, dropped_frames = 0,
                connections = 0, disconnections = 0;
};

class Transport {
 public:
  /// Starts the ZAP handler, then binds the door. Does not wait for other processes.
  /// Errors: Unavailable with the address in the text when it is busy or cannot be bound;
  /// OutOfMemory, which names the limit, when the system starts no threads.
  static Result<std::unique_ptr<Transport>> open(TransportOptions options);
  /// Closes every socket at once. Unacknowledged messages are lost.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Peers.

  /// Admits a peer: from now on this key may connect as this node, and send() reaches it. A second
  /// call for a node replaces its door and role. A call with another key first revokes the old key.
  void admit(const PeerInfo& peer);
  /// Refuses the node's key from now on and closes the peer's socket at once. The next poll()
  /// reports the outcome of its messages. Ignores an unknown node.
  void revoke(NodeId node);
  /// Admits the public half of a join token's secret for one join, until `expires`.
  void admit_join(const PublicKey& one_time, Time expires);

  // Messages.

  /// Sends a message; see Link::send. Also InvalidArgument for a node that is not admitted.
  Result<Ticket> send(NodeId node, Blob payload, Time now);
  bool can_send(NodeId node, std::size_t size) const;
  /// Sets the epoch of every message from now on; it never goes down.
  void set_epoch(Epoch epoch);
  /// Refuses messages of this node below that epoch for ever.
  void set_min_epoch(NodeId node, Epoch least);

  // Joining.

  /// Sends a request to the token's door under its one-time key. poll() reports a JoinReply by
  /// `deadline`. One join at a time: a second call replaces the first.
  void join(const JoinToken& token, Blob request, Time deadline);
  /// Answers a JoinRequest, which waits 30 s at most. Its one-time key is valid no longer.
  void answer_join(std::uint64_t id, Blob answer);
  /// Refuses a JoinRequest with a sentence for people. The key stays valid until it expires.
  void refuse_join(std::uint64_t id, const std::string& why);

  // The event loop.

  int fd() const noexcept;
  /// Does what is due and appends the events; at most a few hundred messages per call.
  void poll(Time now, std::vector<TransportEvent>& events);
  Time next_deadline() const;

  // Observe.

  /// The door's address with the port that was bound.
  const std::string& door() const noexcept;
  const PublicKey& public_key() const noexcept;
  bool connected(NodeId node) const;
  /// The node's Link; null for a node that is not admitted.
  const Link* link(NodeId node) const;
  TransportStats stats() const;

 private:
  struct Impl;
  explicit Transport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::net
