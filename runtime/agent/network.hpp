/// The agent's connections to the agents of other nodes and to control. Carries frames over one
/// Link per node, keeps this node's membership alive, and admits the nodes that control lists.
///
///     auto network = Network::open(std::move(options), handler, steady_now()).value();
///     network->send(node, wire::PeerHold{object, holder, -1});      // buffered
///     network->send_control(control::WatchActor{actor});
///     network->flush(now);                                          // once, at the end of a pass
///     poll(network->fd(), until network->next_deadline());  network->poll(now);
///
/// All frames for one node in one pass travel as one Link message (wire/batch.hpp). Frames that
/// the Link's window does not take wait here, in order.
///
/// A message that was sent arrives, in order, or one of on_peer_reset(), on_node_dead() and
/// on_control_reset() follows. After one of these every earlier message to that node may be lost,
/// and every exchange with it has ended. The other side gets the corresponding reset.
///
/// Invariants: NETWORK-1 After a reset no frame from before it is delivered or sent. NETWORK-2 A
/// node that was declared dead gets and sends nothing any more. NETWORK-3 Memory per node is
/// bounded by max_backlog, the Link's two windows and one frame. NETWORK-4 RegisterNode precedes
/// every other message to a control process. NETWORK-5 A frame that cannot be read ends the
/// exchange with its sender and with no other node.
///
/// Use it from one thread; nothing blocks. Handler methods are called from poll() only and may call
/// send() and send_control().
#pragma once

#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/net/transport.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

struct NetworkOptions {
  /// Address and public key are filled in from `listen` and `keys`.
  control::NodeDescription self;
  net::CurveKeys keys;
  struct {
    NodeId node;
    net::PublicKey key;
    std::string door;
  } control;
  /// An address that the others can reach; no wildcard.
  std::string listen = "tcp://127.0.0.1:*";
  std::string build_id;
  control::SelfFencingOptions self_fencing;
  net::LinkOptions link;

  std::size_t batch = 256 << 10;        ///< bytes of one Link message, unless one frame is larger
  std::size_t backlog_high = 1 << 20;   ///< waiting bytes at which can_send() becomes false
  std::size_t backlog_low = 256 << 10;  ///< waiting bytes at which it becomes true again
  std::size_t max_backlog = 16 << 20;   ///< waiting bytes beyond which a peer is dropped
  /// The same for control. Larger, since the node may have to tell it all that it hosts at once.
  std::size_t max_control_backlog = 256 << 20;
  /// How long messages wait for a node that control has not listed yet.
  Duration unknown_for = std::chrono::seconds(10);
  /// A member that cannot be reached for this long is dropped. Control declares a dead one
  /// earlier.
  Duration unreachable_for = std::chrono::seconds(20);
  /// A member that control's list lacks for this long is dead. Control's list is durable, so a
  /// later control process lists every node except those whose death is on its disk. The
  /// NodeIsDead for such a death may have reached no agent.
  Duration absent_for = std::chrono::milliseconds(250);
  /// A node to which there is no connection for this long counts as out of reach.
  Duration out_of_reach_after = std::chrono::seconds(3);
  /// The transport may repair a broken connection for reconnect_grace. Then it connects anew, in
  /// the end once every retry_last.
  Duration reconnect_grace = std::chrono::milliseconds(300);
  Duration retry_last = std::chrono::seconds(1);
  Duration knock_timeout = std::chrono::seconds(5);
  /// A node that keep_in_touch() names and that sends nothing for this long gets an empty message,
  /// which it must acknowledge.
  Duration touch_every = std::chrono::seconds(10);
  /// A node that owes an answer (to messages or to a request for one) for this long is silent.
  /// Nodes usually answer within milliseconds.
  Duration silent_after = std::chrono::milliseconds(1500);
  /// A dropped peer is admitted again after drop_first; the pause doubles each time up to
  /// drop_last.
  Duration drop_first = std::chrono::seconds(1);
  Duration drop_last = std::chrono::seconds(60);
};

struct NetworkStats {
  std::uint64_t frames_sent = 0, frames_received = 0;
  std::uint64_t messages_sent = 0, messages_received = 0;  ///< Link messages: batches
  std::uint64_t bad_frames = 0, dropped_peers = 0, refused_strangers = 0;
};

class Network {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    /// Delivers a node's messages in the order of sending. The payload is valid during the call.
    virtual void on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& message) = 0;
    /// Delivers control's messages except Roster, Fence, HeartbeatAnswer, ClusterNodes and
    /// NodeIsDead. After each Registered, control waits for NodeHosts.
    virtual void on_control(control::FromControl& message) = 0;
    /// Ends every exchange with that node: it is another process now, or this node or that one has
    /// dropped the connection. Also follows a message to a node that is dead or that control does
    /// not list. New messages may be sent.
    virtual void on_peer_reset(NodeId node, const std::string& why) = 0;
    /// Control is another process now, or its connection was dropped: all messages to it may be
    /// lost. It asks for NodeHosts and watches again, after this node has registered (see
    /// on_control()).
    virtual void on_control_reset(const std::string& why) = 0;
    virtual void on_nodes(const control::ClusterNodes& nodes) = 0;
    /// Ends every exchange with that node for ever. No on_peer_reset() comes in addition.
    virtual void on_node_dead(NodeId node, const std::string& why) = 0;
    /// Reports that a node which is not known to be dead sends nothing to control or to this node,
    /// or that it sends again. Exchanges under way continue.
    virtual void on_silent(NodeId /*node*/, bool /*silent*/) {}
    /// Reports a message that no connection takes, in a sentence.
    virtual void on_not_sent(const std::string& /*why*/) {}
    /// Reports that can_send() was false and is true again.
    virtual void on_can_send(NodeId node) = 0;
    /// Called once: this process must end now, its workers first.
    virtual void exit_now(const std::string& why) = 0;
  };

  /// Listens, and begins to register with control. Takes a few ms and waits for no other process.
  /// Errors: Unavailable (the address is busy), InvalidArgument (a wildcard address).
  static Result<std::unique_ptr<Network>> open(NetworkOptions options, Handler& handler, Time now);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Messages. All are buffered until flush().

  /// Sends to another node. Messages wait for a node that control has not listed yet. A node that
  /// is dead or stays unlisted, and a message larger than a Link takes, end in on_peer_reset().
  /// Precondition: the payload has at most kMaxPeerPayload bytes. Cost: encoding and one copy; no
  /// allocation once the buffers have grown.
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload = {});
  /// Sends to control. Returns InvalidArgument, and sends nothing, if the message is larger than a
  /// Link takes (nearly 1 MiB) or control could not decode it.
  std::optional<Error> send_control(const control::ToControl& message);
  /// Back-pressure: false while much waits for this node. Messages are accepted nevertheless, up
  /// to max_backlog; on_can_send() tells when it is over. O(log nodes), mostly O(1).
  bool can_send(NodeId to) const;
  /// Whether the node was declared dead; very old deaths are forgotten.
  bool is_dead(NodeId node) const;
  /// Drops a node whose messages break the protocol: ends all exchanges with it, in the next
  /// poll() at the latest, and refuses it for a while.
  void drop(NodeId node, const std::string& why);
  /// Says whether something is awaited from this node. While it is, the connection is not closed
  /// when idle, and a node that falls silent ends in on_peer_reset() within a minute, even if
  /// control has not declared it dead. A reset ends this state.
  void keep_in_touch(NodeId node, bool on);
  /// The first `most` members, in order, that have had no connection for out_of_reach_after though
  /// one is wanted. O(nodes).
  std::vector<NodeId> out_of_reach(Time now, std::size_t most) const;
  /// Hands the Links as much as they take. Call it at the end of each pass of the event loop.
  void flush(Time now);

  // The event loop.

  int fd() const noexcept;
  void poll(Time now);
  /// When to call poll() next. Every other call may change it.
  Time next_deadline() const;

  // Membership.

  /// Whether actor calls may be run and answered at this moment. Ask before a call runs and again
  /// before it is answered.
  bool may_serve(Time now) const;
  /// Reports that the machine has slept: see control::SelfFencing.
  void on_slept(Time now);
  /// The time at which may_serve() becomes false if no answer of control or of other nodes comes.
  Time serves_until() const noexcept;
  /// Whether control has answered within the last seconds.
  bool hears_control(Time now) const;
  /// Whether a Roster (the list of voters) has come from control since this process first
  /// registered.
  bool has_roster() const noexcept;
  /// Zero until registered, as is control_epoch().
  Epoch epoch() const noexcept;
  Epoch control_epoch() const noexcept;

  // Observe.

  /// This node's description as it registers: with address and key.
  const control::NodeDescription& self() const noexcept;
  const std::string& door() const noexcept;
  /// Whether everything that was sent to this node (control included) has arrived.
  bool delivered(NodeId to) const;
  NetworkStats stats() const noexcept;

 private:
  struct Impl;
  explicit Network(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Returns the host of an address: "10.0.0.1" of "tcp://10.0.0.1:*".
std::string host_of(const std::string& address);

}  // namespace troupe::agent
