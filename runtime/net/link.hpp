/// Link: every accepted message reaches the peer exactly once and in order, or its sender learns
/// that the peer's process is another one now. One Link per peer, over any wire that may lose,
/// double and reorder. A plain state machine: the owner carries frames and tells the time.
///
///     net::Link link(options, SessionId::random(), now);  net::LinkOutput out;
///     link.on_connected(now, out);                         // a wire to the peer exists
///     Result<net::Ticket> t = link.send(std::move(bytes), now, out);   // or Overloaded
///     for (net::Frame& f : out.transmit) wire.write(net::encode(f));
///     link.on_frame(received, now, out);  link.on_time(now, out);      // at link.next_deadline()
///
/// Protocol. Each Link has a session id; frames name both sessions, so nothing crosses from one
/// life of a process to the next. Hellos carry protocol version, build id, a nonce and the echo of
/// the other's: a session is adopted only when it echoes the current nonce, so that a hello delayed
/// from a dead process is never believed. Data is numbered from 1 per pair of sessions and
/// acknowledged cumulatively, piggybacked or within `ack_delay`; an acknowledgement names the gap
/// that it waits for. (Sliding window after TCP, RFC 9293; three-way handshake after Tomlinson
/// 1975.)
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

/// The n-th message that this Link accepted, from 1; never reused, not even across resets.
using Ticket = std::uint64_t;

/// Wire format. The header is 64 bytes, little-endian, and its layout and that of a hello never
/// change, so that any two versions can tell each other why they do not match.
enum class FrameKind : std::uint8_t {
  hello = 1,   ///< first on each connection; also the answer to one
  data = 2,    ///< one message
  ack = 3,     ///< what arrived in order; `sequence` = first one held beyond a gap, or 0
  fenced = 4,  ///< the receiver refuses this session for ever; `sequence` = least epoch it takes
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
inline constexpr std::size_t frame_header_size = 64;
/// Bytes of a frame on the wire; what ZMQ_MAXMSGSIZE is set to.
inline constexpr std::size_t max_frame_size = std::size_t{1} << 20;
inline constexpr std::size_t max_payload_size = max_frame_size - frame_header_size;

/// The header of a frame alone; the payload follows it on the wire.
void encode_header(const Frame& frame, std::byte (&out)[frame_header_size]) noexcept;
/// Header and payload in one piece; one copy of the payload.
Blob encode(const Frame& frame);
/// Checks every size before use. Copies the payload once.
Result<Frame> decode(BlobView bytes);

struct LinkOptions {
  std::uint32_t protocol = 1;  ///< peers of another number are refused
  std::string build_id;        ///< for the refusal's text; at most 64 bytes are sent
  /// The resend window is the credit: beyond either bound send() says Overloaded.
  std::size_t window_messages = 1024;
  std::size_t window_bytes = 4 << 20;
  Duration ack_delay{
      std::chrono::milliseconds(2)};  ///< an acknowledgement waits for data to ride on
  std::size_t ack_every = 32;         ///< ... but not past this many messages
  Duration resend_first{std::chrono::milliseconds(250)};  ///< then doubled up to resend_last
  Duration resend_last{std::chrono::seconds(4)};
  /// Without any frame for this long, ask for a sign of life; without one for three times as long,
  /// ask the owner for a new connection. A process that stood still for longer asks anew first,
  /// after three such standstills in a row at most.
  Duration keepalive{std::chrono::seconds(2)};
  Duration idle_close{std::chrono::seconds(60)};  ///< 0 = never
};

/// One message that arrived, in order.
struct Delivered {
  Blob payload;
  Epoch epoch = 0;
};

/// The peer's process is another one now (or was given up). For a ticket t of before the reset:
///   t <= delivered_through   it arrived; whether its work ran only a reply can tell
///   t <= sent_through        outcome unknown
///   otherwise                not executed: it was never handed to the wire
/// No ticket up to accepted_through is sent any more.
struct Reset {
  Ticket delivered_through = 0, sent_through = 0, accepted_through = 0;
  Outcome outcome_of(Ticket ticket) const noexcept {
    return ticket <= sent_through ? Outcome::unknown : Outcome::not_executed;
  }
};
/// The peer was met for the first time, or after a reset.
struct Established {
  SessionId peer;
  std::string peer_build;
};
/// The peer speaks another protocol; this Link is at its end, and a Reset comes before it if
/// messages were waiting. `error` names both versions.
struct Incompatible {
  Error error;
};
/// The peer refuses our epoch for ever: we were declared dead. This Link is at its end; a Reset
/// comes before it.
struct Fenced {
  Epoch least = 0;
};
/// The owner should replace the connection: the peer is silent although something is due.
struct Reconnect {};
/// Nothing was said for idle_close: the owner may close the connection once what it has was sent
/// (the peer is told, so that it closes too and raises no alarm); Open asks for it again.
struct IdleClose {};
struct Open {};
/// The peer broke the protocol (not merely a stale frame); drop it.
struct Violation {
  std::string why;
};
using LinkEvent =
    std::variant<Established, Reset, Incompatible, Fenced, Reconnect, IdleClose, Open, Violation>;

/// What follows from a call; the owner takes it and clears it. Events and deliveries are in order
/// among themselves, and a Reset comes before any delivery of the new session.
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

  // Use. Nothing blocks; nothing throws but for lack of memory.

  /// Accepts a message and returns its ticket; it is sent as soon as the peer has said on a
  /// connection that it is still the same.
  /// Errors: Overloaded (window full), InvalidArgument (larger than max_payload_size), Unavailable
  /// (incompatible or fenced). All of them: not executed.
  Result<Ticket> send(Blob payload, Time now, LinkOutput& out);
  /// Whether send() would take a message of this size now.
  bool can_send(std::size_t size) const noexcept;

  /// A frame came from the wire. Bad ones give a Violation and change nothing.
  void on_frame(BlobView bytes, Time now, LinkOutput& out);
  /// A connection exists (again): what is unacknowledged goes out again.
  void on_connected(Time now, LinkOutput& out);
  /// No connection: messages are kept, up to the window.
  void on_disconnected() noexcept { connected_ = false; }
  /// Asks the peer for a sign of life on the present connection.
  void probe(LinkOutput& out);
  /// To be called at next_deadline(); calls at other times are harmless.
  void on_time(Time now, LinkOutput& out);
  /// When on_time() is due; Time::max() when never.
  Time next_deadline() const noexcept;

  /// Stamped on every message accepted from now on; never goes down.
  void set_epoch(Epoch epoch) noexcept { epoch_ = epoch > epoch_ ? epoch : epoch_; }
  /// Messages and hellos below it are refused and their session for ever; never goes down.
  void set_min_epoch(Epoch least) noexcept { min_epoch_ = least > min_epoch_ ? least : min_epoch_; }
  /// Gives the peer up: what became of each ticket. The Link is at its end.
  Reset abandon() noexcept;

  // Observe.
  bool established() const noexcept { return static_cast<bool>(peer_); }
  /// Whether the peer, the one of established(), has spoken on the present connection.
  bool confirmed() const noexcept { return connected_ && confirmed_; }
  SessionId peer() const noexcept { return peer_; }
  /// Tickets up to here have arrived.
  Ticket delivered_through() const noexcept { return base_ + acked_; }
  std::size_t unacknowledged() const noexcept { return window_.size(); }
  /// Since when the peer has owed a sign of life: for messages, or because it was asked for one.
  /// Time::max(): it owes none.
  Time due_since() const noexcept { return due_since_; }
  /// Payload bytes held, both directions; at most 2 * window_bytes + one message each way.
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
  std::uint64_t recover_next_ = 1, recover_through_ = 0;  ///< what is still to be sent again
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
  unsigned asked_ = 0;      ///< keepalives without an answer
  unsigned discounts_ = 0;  ///< own standstills since the peer spoke last
  LinkStats stats_;
};

}  // namespace troupe::net
