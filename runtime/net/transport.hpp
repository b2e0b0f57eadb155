/// The node's one door to the network: messages to and from admitted peers, each carried by a Link
/// over a CURVE-encrypted ZeroMQ socket of that peer's own.
///
///     auto t = net::Transport::open({.keys = std::move(mine), .listen = "tcp://127.0.0.1:*"});
///     t->admit({.node = other, .key = its_key, .door = "tcp://127.0.0.1:6500"});
///     t->send(other, std::move(bytes), now);           // connects on demand
///     poll(t->fd(), until t->next_deadline());  t->poll(now, events);
///
/// How. `listen` is the door, a ROUTER that takes small messages only: a knock from an admitted key
/// is answered with the port of a fresh DEALER that no other key may use, and a join from a
/// one-time key goes to the owner. So dropping a peer is closing its socket. Of two peers that
/// knock at each other, the knock of the smaller key wins. Every socket is CURVE, and its ZAP
/// handler is up before the first bind; there is no way to switch that off.
///
/// Use it from one thread (an event loop); nothing blocks. fd() becomes readable when poll() has
/// work, with one condition: ask next_deadline() after every other call, since work may be pending
/// without a new signal.
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

/// What an admitted key may do. A join key may only knock once, to join.
enum class Role : std::uint8_t { node = 1, observer = 2, join = 3 };

struct TransportOptions {
  CurveKeys keys;
  /// The door. Loopback and an ephemeral port unless the user named another address.
  std::string listen = "tcp://127.0.0.1:*";
  std::uint32_t protocol = kProtocolVersion;
  std::string build_id;
  LinkOptions link;  ///< window, timeouts; protocol and build id are taken from here above
  Duration knock_timeout{std::chrono::seconds(5)};
  Duration retry_first{std::chrono::milliseconds(200)};  ///< between knocks, then doubled
  Duration retry_last{std::chrono::seconds(5)};
  Duration reconnect_grace{std::chrono::seconds(1)};  ///< a broken connection may heal by itself
  /// Changes an address before it is dialled (address translation; null = as it is).
  std::function<std::string(const std::string&)> dial;
};

struct PeerInfo {
  NodeId node;
  PublicKey key;
  std::string door;  ///< empty when only the peer can connect
  Role role = Role::node;
};

// What poll() reports.
struct Message {
  NodeId from;
  Role role = Role::node;
  Delivered content;
};
/// A connection stands and the peer has spoken on it: at first, after each reset (then PeerReset
/// comes before it), and after each PeerDown.
struct PeerUp {
  NodeId node;
  std::string build;
};
/// The connection broke or cannot be made; messages are kept and it is tried again.
struct PeerDown {
  NodeId node;
  std::string why;
};
/// The peer's process is another one now; see Reset for what became of each ticket.
struct PeerReset {
  NodeId node;
  Reset reset;
};
/// The peer is out (another protocol, fenced, broke the protocol, or revoked): its socket is
/// closed. A PeerReset comes before it. admit() may take it back.
struct PeerLost {
  NodeId node;
  Error error;
  bool fenced = false;  ///< it refuses our epoch: this node was declared dead
};
/// A holder of a one-time key asks to join; answer with answer_join() or refuse_join().
struct JoinRequest {
  std::uint64_t id = 0;
  PublicKey one_time;
  Blob request;
};
/// How our own join() ended.
struct JoinReply {
  Result<Blob> answer;
};
/// Somebody was refused at a socket; for the audit log.
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
  /// Starts the ZAP handler, then binds the door. Does not block (a few ms).
  /// Errors: Unavailable with the address in the text when it is busy or cannot be bound.
  static Result<std::unique_ptr<Transport>> open(TransportOptions options);
  /// Closes every socket at once; unacknowledged messages are not sent.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Peers.

  /// From now on this key may connect as this node, and send() reaches it. A second call for a node
  /// replaces its door and role; another key for it revokes the former first.
  void admit(const PeerInfo& peer);
  /// The key is refused from now on, the peer's socket closes at once, and the next poll() reports
  /// what became of its messages. Unknown nodes are ignored.
  void revoke(NodeId node);
  /// Admits the public half of a join token's secret for one join until it expires.
  void admit_join(const PublicKey& one_time, Time expires);

  // Messages.

  /// See Link::send; also InvalidArgument for a node that is not admitted.
  Result<Ticket> send(NodeId node, Blob payload, Time now);
  bool can_send(NodeId node, std::size_t size) const;
  /// Epoch on every message from now on; never goes down.
  void set_epoch(Epoch epoch);
  /// Messages of this node below that epoch are refused for ever.
  void set_min_epoch(NodeId node, Epoch least);

  // Joining.

  /// Sends a request to the token's door under its one-time key. Ends in a JoinReply by `deadline`.
  /// One join at a time: a second call replaces the first.
  void join(const JoinToken& token, Blob request, Time deadline);
  /// Answers a JoinRequest within 30 s; its one-time key is spent.
  void answer_join(std::uint64_t id, Blob answer);
  /// Refuses it with a sentence for people; the key stays valid until it expires.
  void refuse_join(std::uint64_t id, const std::string& why);

  // The event loop.

  int fd() const noexcept;
  /// Does what is due and appends what happened; at most a few hundred messages at a time.
  void poll(Time now, std::vector<TransportEvent>& events);
  Time next_deadline() const;

  // Observe.

  /// The door's address with its real port.
  const std::string& door() const noexcept;
  const PublicKey& public_key() const noexcept;
  bool connected(NodeId node) const;
  /// Null for a node that is not admitted.
  const Link* link(NodeId node) const;
  TransportStats stats() const;

 private:
  struct Impl;
  explicit Transport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::net
