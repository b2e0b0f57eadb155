/// What an agent says to others: to the agents of other nodes and to control. Carries frames over
/// one Link per node, keeps this node's membership alive, and admits whom control names.
///
///     auto network = Network::open(std::move(options), handler, steady_now()).value();
///     network->send(node, wire::PeerHold{object, holder, -1});      // buffered
///     network->send_control(control::WatchActor{actor});
///     network->flush(now);                                          // once, at the end of a pass
///     poll(network->fd(), until network->next_deadline());  network->poll(now);
///
/// All frames for one node in one pass travel as one Link message (wire/batch.hpp). What the Link's
/// window does not take waits here, in order.
///
/// Nothing that was sent is lost without a word. Either it arrives, in order, or one of
/// on_peer_reset(), on_node_dead() and on_control_reset() follows: then all that was sent before
/// may be lost, and everything with that node is over. The other side is told the same.
///
/// Invariants: NETWORK-1 after a reset nothing of before it is handed in or sent. NETWORK-2 a node
/// that was declared dead is never spoken with again. NETWORK-3 memory per node is bounded by
/// max_backlog, the Link's two windows and one frame. NETWORK-4 RegisterNode precedes everything
/// else that control's process gets. NETWORK-5 a frame that cannot be read ends the talk with its
/// sender and with nobody else.
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
  std::size_t backlog_high = 1 << 20;   ///< bytes waiting from which on can_send() says false,
  std::size_t backlog_low = 256 << 10;  ///< ... down to here
  std::size_t max_backlog = 16 << 20;   ///< beyond it the peer is dropped;
  /// ... control not before this: all that the node hosts may have to be told at once.
  std::size_t max_control_backlog = 256 << 20;
  /// For so long messages are kept for a node that control has not told of.
  Duration unknown_for = std::chrono::seconds(10);
  /// A member that cannot be reached for so long is dropped; control declares dead ones earlier.
  Duration unreachable_for = std::chrono::seconds(20);
  /// A member that control's view lacks for so long is dead: what control tells of nodes is
  /// durable, so that a later one lists all but those whose death was written down, and perhaps
  /// told to nobody who could hear it.
  Duration absent_for = std::chrono::milliseconds(250);
  /// A node to which no connection can be had for so long counts as out of reach.
  Duration out_of_reach_after = std::chrono::seconds(3);
  /// A broken connection may heal by itself for so long; then the peer is knocked at anew, this
  /// often at last.
  Duration reconnect_grace = std::chrono::milliseconds(300);
  Duration retry_last = std::chrono::seconds(1);
  Duration knock_timeout = std::chrono::seconds(5);
  /// A node that keep_in_touch() names and that says nothing for so long is asked for an answer.
  Duration touch_every = std::chrono::seconds(10);
  /// A node that owes a sign of life for so long is silent. Others answer within milliseconds.
  Duration silent_after = std::chrono::milliseconds(1500);
  /// A dropped peer is taken back after this, doubled each time up to the other.
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
    /// In the order in which that node sent them. The payload is valid during the call.
    virtual void on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& message) = 0;
    /// Everything control says but Roster, Fence, HeartbeatAnswer, ClusterNodes and NodeIsDead.
    /// After each Registered control waits for NodeHosts.
    virtual void on_control(control::FromControl& message) = 0;
    /// Everything with that node is over: its process is another one, or it was given up. It may
    /// be spoken with anew.
    virtual void on_peer_reset(NodeId node, const std::string& why) = 0;
    /// Control is another process now, or had to be given up: all that was sent to it may be lost,
    /// and it asks for NodeHosts and watches again (it registers first, see on_control()).
    virtual void on_control_reset(const std::string& why) = 0;
    virtual void on_nodes(const control::ClusterNodes& nodes) = 0;
    /// For ever, and everything with it is over; no on_peer_reset() besides.
    virtual void on_node_dead(NodeId node, const std::string& why) = 0;
    /// It says nothing to control or to this node, and is not known to be dead; or it speaks again.
    /// What is under way stays so.
    virtual void on_silent(NodeId /*node*/, bool /*silent*/) {}
    /// can_send() was false and is true again.
    virtual void on_can_send(NodeId node) = 0;
    /// Once: this process must end now, its workers first.
    virtual void exit_now(const std::string& why) = 0;
  };

  /// Listens, and begins to register with control. Does not block (a few ms).
  /// Errors: Unavailable (the address is busy), InvalidArgument (a wildcard address).
  static Result<std::unique_ptr<Network>> open(NetworkOptions options, Handler& handler, Time now);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Messages. All are buffered until flush().

  /// To another node; one that is not known yet is waited for, one that is dead or stays unknown
  /// ends in on_peer_reset(), and so does a message that no Link takes. Precondition: the payload
  /// has at most kMaxPeerPayload bytes.
  /// Cost: encoding and one copy; no allocation once the buffers have grown.
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload = {});
  /// The error (InvalidArgument), when it is larger than a Link takes (nearly 1 MiB), or control
  /// would not take it for a message: nothing was sent.
  std::optional<Error> send_control(const control::ToControl& message);
  /// Back-pressure: false while much waits for this node. Messages are accepted nevertheless, up
  /// to max_backlog; on_can_send() tells when it is over. O(log nodes), mostly O(1).
  bool can_send(NodeId to) const;
  /// Control has said so, of late.
  bool is_dead(NodeId node) const;
  /// It breaks the protocol in what it says: the talk with it ends, soon and for a while.
  void drop(NodeId node, const std::string& why);
  /// Whether something is awaited from this node. While it is, the connection is not closed when
  /// idle, and a node that falls silent ends in on_peer_reset() within a minute, whatever control
  /// thinks of it. A reset ends it.
  void keep_in_touch(NodeId node, bool on);
  /// Members to which there is no connection though one is wanted, for a while now: the first
  /// ones, in order. O(nodes).
  std::vector<NodeId> out_of_reach(Time now, std::size_t most) const;
  /// Hands over to the Links what they take. Call it at the end of each pass of the event loop.
  void flush(Time now);

  // The event loop.

  int fd() const noexcept;
  void poll(Time now);
  /// Ask it after every other call.
  Time next_deadline() const;

  // Membership.

  /// Whether actor calls may be run and answered at this moment; ask before each of both.
  bool may_serve(Time now) const;
  /// The machine has slept: see control::SelfFencing.
  void on_slept(Time now);
  /// Until when, if nothing is heard meanwhile.
  Time serves_until() const noexcept;
  /// Whether control has answered within the last seconds.
  bool hears_control(Time now) const;
  /// Zero until registered.
  /// Whether control has said who votes, since it registered this process first.
  bool has_roster() const noexcept;
  Epoch epoch() const noexcept;
  Epoch control_epoch() const noexcept;

  // Observe.

  /// This node as it registers: with address and key.
  const control::NodeDescription& self() const noexcept;
  const std::string& door() const noexcept;
  /// Everything that was sent to this node (control included) has arrived.
  bool delivered(NodeId to) const;
  NetworkStats stats() const noexcept;

 private:
  struct Impl;
  explicit Network(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::agent
