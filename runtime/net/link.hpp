/// Link: every accepted message reaches the peer exactly once and in order, or its sender gets a
/// Reset: the peer's process is another one now. One Link per peer, over any wire that may lose,
/// double and reorder frames. A plain state machine: the owner carries frames and passes in the
/// time.
///
///     net::Link link(options, SessionId::random(), now);  net::LinkOutput out;
///     link.on_connected(now, out);                         // a wire to the peer exists
///     Result<net::Ticket> t = link.send(std::move(bytes), now, out);   // or Overloaded
///     for (net::Frame& f : out.transmit) wire.write(net::encode(f));
///     link.on_frame(received, now, out);  link.on_time(now, out);      // at link.next_deadline()
///
/// Protocol. Each Link has a session id, and frames name both sessions, so that no frame passes
/// from one run of a process to the next. A hello carries protocol version, build id, a nonce and
/// the echo of the peer's nonce. A Link adopts a session only when its hello echoes the current
/// nonce, so that it never accepts a delayed hello of a dead process. Data is numbered from 1 per
/// pair of sessions. Acknowledgements are cumulative; they travel with data or within `ack_delay`.
/// An acknowledgement also names the end of the first gap. (Sliding window after TCP, RFC 9293;
/// three-way handshake after Tomlinson 1975.)
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace troupe::net {

/// The number of a message that this Link accepted, from 1; never reused, not even across resets.
using Ticket = std::uint64_t;

/// Wire format. The header is 64 bytes, little-endian. Its layout and that of a hello never change,
/// so that any two versions can tell each other why they do not match.
enum class FrameKind : std::uint8_t {
  hello = 1,   ///< first on each connection; also the answer to a hello
  data = 2,    ///< one message
  ack = 3,     ///< `ack`: last one that arrived in order; `sequence`: first held after a gap, or 0
  fenced = 4,  ///< the sender refuses the receiver's session for ever; `sequence`: least epoch
};

struct Frame {
  FrameKind kind = FrameKind::data;
  std::uint8_t flags = 0;
  std::uint64_t sequence = 0;
  std::uint64_t ack = 0;
  Epoch epoch = 0;
  SessionId from, to;  ///< `to` is zero in a hello to an unknown peer
  std::shared_ptr<const Blob> payload;
};
inline constexpr std::size_t kFrameHeaderSize = 64;
/// The most bytes of a frame on the wire; the value of ZMQ_MAXMSGSIZE.
inline constexpr std::size_t kMaxFrameSize = std::size_t{1} << 20;
inline constexpr std::size_t kMaxPayloadSize = kMaxFrameSize - kFrameHeaderSize;

/// Encodes the header of a frame alone; the payload follows it on the wire.
void encode_header(const Frame& frame, std::byte (&out)[kFrameHeaderSize]) noexcept;
/// Encodes header and payload in one piece. Copies the payload once.
Blob encode(const Frame& frame);
/// Decodes a frame and checks every size before use. Copies the payload once.
Result<Frame> decode(BlobView bytes);

struct LinkOptions {
  std::uint32_t protocol = 1;  ///< a peer with another number is refused
  std::string build_id;        ///< for the refusal's text; at most 64 bytes are sent
  /// Bounds of the resend window, which holds unacknowledged messages. Beyond either bound send()
  /// returns Overloaded.
  std::size_t window_messages = 1024;
  std::size_t window_bytes = 4 << 20;
  Duration ack_delay{
      std::chrono::milliseconds(2)};  ///< an acknowledgement waits for data to ride on
  std::size_t ack_every = 32;         ///< ... but not past this many messages
  Duration resend_first{std::chrono::milliseconds(250)};  ///< then doubled up to resend_last
  Duration resend_last{std::chrono::seconds(4)};
  /// Without a frame from the peer for this long, the Link sends a probe. Without a frame for three
  /// times as long, it asks the owner for a new connection (Reconnect) if it waits for anything. A
  /// process that itself stood still for longer than this first probes anew, after at most three
  /// such standstills in a row.
  Duration keepalive{std::chrono::seconds(2)};
  Duration idle_close{std::chrono::seconds(60)};  ///< 0 = never
};

/// One message that arrived, in order.
struct Delivered {
  Blob payload;
  Epoch epoch = 0;
};

/// The peer's process is another one now, or abandon() was called. For a ticket t from before the
/// reset:
///   t <= delivered_through   it arrived; only a reply can tell whether its work ran
///   t <= sent_through        outcome unknown
///   otherwise                not executed: it was never handed to the wire
/// The Link sends no ticket up to accepted_through any more.
struct Reset {
  Ticket delivered_through = 0, sent_through = 0, accepted_through = 0;
  Outcome outcome_of(Ticket ticket) const noexcept {
    return ticket <= sent_through ? Outcome::unknown : Outcome::not_executed;
  }
};
/// The peer's session was adopted, for the first time or after a reset.
struct Established {
  SessionId peer;
  std::string peer_build;
};
/// The peer speaks another protocol. This Link has ended; a Reset comes before this event if
/// messages were waiting. `error` names both versions.
struct Incompatible {
  Error error;
};
/// The peer refuses our epoch for ever: control declared this node dead. This Link has ended; a
/// Reset comes before this event.
struct Fenced {
  Epoch least = 0;
};
/// The owner should replace the connection: the peer owes an answer and is silent.
struct Reconnect {};
/// No message has passed for idle_close. The owner may close the connection once it has sent the
/// frames that it has. One of them tells the peer, which closes too and reports no failure.
struct IdleClose {};
/// The owner should connect again: there is a message to send after IdleClose.
struct Open {};
/// The peer broke the protocol, and not merely by a stale frame. The owner should drop it.
struct Violation {
  std::string why;
};
using LinkEvent =
    std::variant<Established, Reset, Incompatible, Fenced, Reconnect, IdleClose, Open, Violation>;

/// The effects of a call. The owner carries them out and clears them. Events are in order among
/// themselves, and so are deliveries. A Reset comes before any delivery of the new session.
struct LinkOutput {
  std::vector<Frame> transmit;
  std::vector<Delivered> deliver;
  std::vector<LinkEvent> events;
  void clear() {
    transmit.clear();
    deliver.clear();
    events.clear();
  }
};

struct LinkStats {
  std::uint64_t accepted = 0, delivered = 0, transmitted = 0, resent = 0, duplicates = 0, stale = 0,
                beyond_window = 0, fenced = 0, violations = 0, resets = 0;
};

class Link {
 public:
  /// `mine` must be fresh for each Link object, so also for each start of a process.
  Link(LinkOptions options, SessionId mine, Time now);

  // Use. No call blocks, and none throws except for lack of memory.

  /// Accepts a message and returns its ticket. The message is sent as soon as the peer has
  /// confirmed, on the present connection, that it is still the same process.
  /// Errors: Overloaded (window full), InvalidArgument (larger than kMaxPayloadSize), Unavailable
  /// (incompatible or fenced). All of them: not executed.
  Result<Ticket> send(Blob payload, Time now, LinkOutput& out);
  /// Returns whether send() would accept a message of this size now.
  bool can_send(std::size_t size) const noexcept;

  /// Handles a frame from the wire. A malformed frame causes a Violation and changes nothing.
  void on_frame(BlobView bytes, Time now, LinkOutput& out);
  /// A connection exists (again). Unacknowledged messages go out again once the peer has confirmed.
  void on_connected(Time now, LinkOutput& out);
  /// The connection is gone. The Link keeps messages, up to the window.
  void on_disconnected() noexcept { connected_ = false; }
  /// Sends a probe on the present connection: an ack frame that asks the peer for one.
  void probe(LinkOutput& out);
  /// Does what is due. Call it at next_deadline(); calls at other times are harmless.
  void on_time(Time now, LinkOutput& out);
  /// Returns when on_time() is due; Time::max() when never.
  Time next_deadline() const noexcept;

  /// Sets the epoch of every message accepted from now on; it never goes down.
  void set_epoch(Epoch epoch) noexcept { epoch_ = epoch > epoch_ ? epoch : epoch_; }
  /// Refuses messages and hellos below this epoch, and their session for ever; it never goes down.
  void set_min_epoch(Epoch least) noexcept { min_epoch_ = least > min_epoch_ ? least : min_epoch_; }
  /// Ends the Link and returns the outcome of each ticket.
  Reset abandon() noexcept;

  // Observe.
  /// Whether a session of the peer has been adopted.
  bool established() const noexcept { return static_cast<bool>(peer_); }
  /// Whether that session's process has spoken on the present connection.
  bool confirmed() const noexcept { return connected_ && confirmed_; }
  SessionId peer() const noexcept { return peer_; }
  /// Tickets up to here have arrived.
  Ticket delivered_through() const noexcept { return base_ + acked_; }
  std::size_t unacknowledged() const noexcept { return window_.size(); }
  /// Since when the peer has owed an acknowledgement: of messages, or of a probe.
  /// Time::max(): it owes none.
  Time due_since() const noexcept { return due_since_; }
  /// Payload bytes held, in both directions; at most 2 * window_bytes + one message each way.
  std::size_t held_bytes() const noexcept { return window_used_ + reorder_used_; }
  const LinkStats& stats() const noexcept { return stats_; }

 private:
  struct Pending {
    std::shared_ptr<const Blob> payload;
    Epoch epoch = 0;
  };
  struct Hello {
    std::uint32_t protocol = 0;
    std::uint64_t nonce = 0, echo = 0;
    std::string build;
  };

  Frame make(FrameKind kind) const;
  void push_hello(SessionId to, std::uint64_t echo, LinkOutput& out);
  void push_ack(LinkOutput& out);
  void push_fenced(SessionId to, LinkOutput& out);
  void transmit(std::uint64_t sequence, Time now, LinkOutput& out);
  void transmit_new(Time now, LinkOutput& out);
  void resend(std::uint64_t first, std::uint64_t last, Time now, LinkOutput& out);
  bool busy() const noexcept;
  void close_idle(LinkOutput& out);
  void discount_standstill(Time now);
  void confirm(Time now, LinkOutput& out);
  void recover(Time now, LinkOutput& out);
  void on_hello(const Frame& frame, Time now, LinkOutput& out);
  void on_data(Frame& frame, Time now, LinkOutput& out);
  void on_ack(const Frame& frame, Time now, LinkOutput& out);
  void on_fenced(const Frame& frame, LinkOutput& out);
  bool take_ack(std::uint64_t ack, Time now, LinkOutput& out);
  void adopt(const Frame& frame, const Hello& hello, Time now, LinkOutput& out);
  void deliver_in_order(LinkOutput& out);
  void violation(std::string why, LinkOutput& out);
  void ask_for_hello(SessionId from, Time now, LinkOutput& out);
  Reset drop_window();
  static bool parse_hello(const Frame& frame, Hello& hello);

  LinkOptions options_;
  SessionId mine_, peer_;
  std::string peer_build_;
  bool connected_ = false;
  bool confirmed_ = false;  ///< the peer has spoken on this connection; no data before that
  bool ended_ = false, idle_ = false;
  std::uint64_t nonce_;
  Epoch epoch_ = 0, min_epoch_ = 0;

  // Sending. Sequence n of this session is ticket base_ + n.
  Ticket base_ = 0;
  std::uint64_t acked_ = 0, sent_ = 0;
  std::uint64_t recover_next_ = 1, recover_through_ = 0;  ///< range still to be sent again
  std::deque<Pending> window_;                            ///< sequences acked_ + 1 ...
  std::size_t window_used_ = 0;
  Duration resend_after_;
  Time resend_due_ = Time::max(), hello_due_ = Time::max(), last_gap_resend_{}, last_hello_{};
  Duration hello_after_;

  // Receiving.
  std::uint64_t received_ = 0;
  bool peer_fenced_ = false;
  std::map<std::uint64_t, Delivered> reorder_;
  std::size_t reorder_used_ = 0;
  std::size_t unacked_ = 0;  ///< delivered since our last acknowledgement
  Time ack_due_ = Time::max();

  Time last_heard_, last_used_, due_since_ = Time::max();
  unsigned asked_ = 0;      ///< probes without an answer
  unsigned discounts_ = 0;  ///< this process's standstills since the peer's last frame
  LinkStats stats_;
};

}  // namespace troupe::net
