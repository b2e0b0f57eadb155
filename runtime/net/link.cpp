#include "troupe/runtime/net/link.hpp"

#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/base/random.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe::net {
namespace {

constexpr std::uint16_t kFrameMagic = 0x4c74;  // "tL"
constexpr std::uint8_t kFlagWantReply = 1;  // in a hello: the sender has not adopted the receiver
constexpr std::uint8_t kFlagWantAck = 2;    // asks for an ack frame at once
constexpr std::uint8_t kFlagBye = 4;        // in an ack: the sender closes an idle connection
constexpr std::size_t kMaxBuildId = 64;
constexpr std::size_t kHelloFixedSize = 4 + 8 + 8 + 1;
constexpr std::size_t kResendBurst = 64;
constexpr unsigned kMostDiscounts = 3;  // standstills in a row, without a frame between them
constexpr Duration kMinBetweenGapResends = std::chrono::milliseconds(20);
constexpr Duration kMinBetweenHellos = std::chrono::milliseconds(10);

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

template <class T>
void put(std::byte*& at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}
template <class T>
T take(const std::byte*& at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

}  // namespace

void encode_header(const Frame& frame, std::byte (&out)[kFrameHeaderSize]) noexcept {
  std::byte* at = out;
  put(at, kFrameMagic);
  put(at, static_cast<std::uint8_t>(frame.kind));
  put(at, frame.flags);
  put(at, static_cast<std::uint32_t>(frame.payload != nullptr ? frame.payload->size() : 0));
  put(at, frame.sequence);
  put(at, frame.ack);
  put(at, frame.epoch);
  put(at, frame.from.high);
  put(at, frame.from.low);
  put(at, frame.to.high);
  put(at, frame.to.low);
}

Blob encode(const Frame& frame) {
  std::byte header[kFrameHeaderSize];
  encode_header(frame, header);
  Blob bytes;
  bytes.reserve(sizeof header + (frame.payload != nullptr ? frame.payload->size() : 0));
  bytes.assign(header, header + sizeof header);
  if (frame.payload != nullptr)
    bytes.insert(bytes.end(), frame.payload->begin(), frame.payload->end());
  return bytes;
}

Result<Frame> decode(BlobView bytes) {
  auto bad = [](const char* why) { return Error(Code::invalid_argument, why); };
  if (bytes.size() < kFrameHeaderSize) return bad("a frame shorter than its header");
  if (bytes.size() > kMaxFrameSize) return bad("a frame larger than 1 MiB");
  const std::byte* at = bytes.data();
  if (take<std::uint16_t>(at) != kFrameMagic) return bad("not a Link frame");
  Frame frame;
  const auto kind = take<std::uint8_t>(at);
  if (kind < 1 || kind > 4) return bad("a frame of unknown kind");
  frame.kind = static_cast<FrameKind>(kind);
  frame.flags = take<std::uint8_t>(at);
  const auto size = take<std::uint32_t>(at);
  if (size != bytes.size() - kFrameHeaderSize)
    return bad("a frame whose length field does not match its size");
  frame.sequence = take<std::uint64_t>(at);
  frame.ack = take<std::uint64_t>(at);
  frame.epoch = take<std::uint64_t>(at);
  frame.from.high = take<std::uint64_t>(at);
  frame.from.low = take<std::uint64_t>(at);
  frame.to.high = take<std::uint64_t>(at);
  frame.to.low = take<std::uint64_t>(at);
  if (!frame.from) return bad("a frame without a session");
  const BlobView payload = bytes.subspan(kFrameHeaderSize);
  frame.payload = std::make_shared<Blob>(payload.begin(), payload.end());
  return frame;
}

Link::Link(LinkOptions options, SessionId mine, Time now)
    : options_(std::move(options)),
      mine_(mine),
      resend_after_(options_.resend_first),
      hello_after_(options_.resend_first),
      last_heard_(now),
      last_used_(now) {
  TROUPE_ASSERT(static_cast<bool>(mine), "a Link needs a session id");
  std::uint64_t seed = mine.low;
  nonce_ = splitmix64(seed) | 1;  // never 0, which stands for "no echo" in a hello
  options_.build_id.resize(std::min(options_.build_id.size(), kMaxBuildId));
}

Frame Link::make(FrameKind kind) const {
  Frame frame;
  frame.kind = kind;
  frame.from = mine_;
  frame.to = peer_;
  frame.epoch = epoch_;
  frame.ack = received_;
  return frame;
}

void Link::push_hello(SessionId to, std::uint64_t echo, LinkOutput& out) {
  Frame frame = make(FrameKind::hello);
  frame.to = to;
  const bool known = peer_ && to == peer_;
  if (!known) frame.ack = 0;  // what we received came from another session
  frame.flags = known ? kFlagWantAck : kFlagWantReply;
  Blob payload(kHelloFixedSize + options_.build_id.size());
  std::byte* at = payload.data();
  put(at, options_.protocol);
  put(at, nonce_);
  put(at, echo);
  put(at, static_cast<std::uint8_t>(options_.build_id.size()));
  if (!options_.build_id.empty())
    std::memcpy(at, options_.build_id.data(), options_.build_id.size());
  frame.payload = std::make_shared<const Blob>(std::move(payload));
  out.transmit.push_back(std::move(frame));
}

bool Link::parse_hello(const Frame& frame, Hello& hello) {
  const Blob& payload = *frame.payload;
  if (payload.size() < kHelloFixedSize) return false;
  const std::byte* at = payload.data();
  hello.protocol = take<std::uint32_t>(at);
  hello.nonce = take<std::uint64_t>(at);
  hello.echo = take<std::uint64_t>(at);
  const auto size = take<std::uint8_t>(at);
  if (size > kMaxBuildId || payload.size() != kHelloFixedSize + size) return false;
  for (std::size_t i = 0; i < size; ++i) {
    const char c = static_cast<char>(*at++);
    hello.build += c >= ' ' && c <= '~' ? c : '?';  // messages for people show it
  }
  return true;
}

void Link::push_ack(LinkOutput& out) {
  Frame frame = make(FrameKind::ack);
  frame.sequence = reorder_.empty() ? 0 : reorder_.begin()->first;
  if (TROUPE_MUTANT("link.ack_beyond_gap") && !reorder_.empty())
    frame.ack = reorder_.rbegin()->first;
  out.transmit.push_back(std::move(frame));
  unacked_ = 0;
  ack_due_ = Time::max();
}

void Link::push_fenced(SessionId to, LinkOutput& out) {
  Frame frame = make(FrameKind::fenced);
  frame.to = to;
  frame.sequence = min_epoch_;
  if (to != peer_) frame.ack = 0;
  out.transmit.push_back(std::move(frame));
  ++stats_.fenced;
}

bool Link::can_send(std::size_t size) const noexcept {
  return !ended_ && size <= kMaxPayloadSize && window_.size() < options_.window_messages &&
         (window_.empty() || window_used_ + size <= options_.window_bytes);
}

Result<Ticket> Link::send(Blob payload, Time now, LinkOutput& out) {
  if (ended_)
    return Error(Code::unavailable, "the connection to this peer has ended and takes no messages");
  if (payload.size() > kMaxPayloadSize)
    return Error(Code::invalid_argument,
                 "a message of " + std::to_string(payload.size()) + " bytes exceeds the limit of " +
                     std::to_string(kMaxPayloadSize) + "; send it as an object");
  if (!can_send(payload.size()) || TROUPE_BUGGIFY("link.refuse", 0.05))
    return Error(Code::overloaded, "the resend window of this peer is full (" +
                                       std::to_string(window_.size()) + " messages, " +
                                       std::to_string(window_used_) + " bytes unacknowledged)");
  window_used_ += payload.size();
  window_.push_back({std::make_shared<const Blob>(std::move(payload)), epoch_});
  ++stats_.accepted;
  last_used_ = now;
  due_since_ = std::min(due_since_, now);
  if (idle_) {
    idle_ = false;
    out.events.emplace_back(std::in_place_type<Open>);
  }
  transmit_new(now, out);
  return base_ + acked_ + window_.size();
}

void Link::transmit(std::uint64_t sequence, Time now, LinkOutput& out) {
  const Pending& pending = window_[sequence - acked_ - 1];
  Frame frame = make(FrameKind::data);
  frame.sequence = sequence;
  frame.epoch = pending.epoch;
  frame.payload = pending.payload;
  out.transmit.push_back(std::move(frame));
  ++stats_.transmitted;
  unacked_ = 0;  // the header carries the acknowledgement
  if (reorder_.empty()) ack_due_ = Time::max();
  if (resend_due_ == Time::max()) resend_due_ = now + resend_after_;
}

void Link::transmit_new(Time now, LinkOutput& out) {
  if (!connected_ || !confirmed_ || ended_) return;
  while (sent_ < acked_ + window_.size()) transmit(++sent_, now, out);
}

void Link::resend(std::uint64_t first, std::uint64_t last, Time now, LinkOutput& out) {
  if (!connected_ || !confirmed_ || ended_) return;
  first = std::max(first, acked_ + 1);
  last = std::min({last, sent_, first + kResendBurst - 1});
  for (std::uint64_t sequence = first; sequence <= last; ++sequence) {
    transmit(sequence, now, out);
    ++stats_.resent;
  }
}

/// Sends all unacknowledged messages again: one burst now, and the next burst with each
/// acknowledgement (take_ack()).
void Link::recover(Time now, LinkOutput& out) {
  last_gap_resend_ = now;
  recover_next_ = std::min(acked_ + kResendBurst, sent_) + 1;
  recover_through_ = sent_;
  resend(acked_ + 1, sent_, now, out);
}

void Link::on_connected(Time now, LinkOutput& out) {
  if (ended_) return;
  connected_ = true;
  confirmed_ = false;
  idle_ = false;
  asked_ = 0;
  last_heard_ = now;
  last_used_ = std::max(last_used_, now - options_.idle_close / 2);
  // Deadlines that passed while there was no connection must not look like a standstill of this
  // process (discount_standstill()).
  for (Time* due : {&resend_due_, &ack_due_}) *due = std::max(*due, now);
  hello_after_ = options_.resend_first;
  hello_due_ = now + hello_after_;
  push_hello(peer_, 0, out);
  resend_after_ = options_.resend_first;
}

/// Records that the process at the other end of this connection is the peer of the adopted session.
/// Data may be sent from now on.
void Link::confirm(Time now, LinkOutput& out) {
  last_heard_ = now;
  asked_ = discounts_ = 0;
  hello_due_ = Time::max();
  due_since_ = window_.empty() ? Time::max() : now;
  if (confirmed_) return;
  confirmed_ = true;
  recover(now, out);
  transmit_new(now, out);
}

void Link::on_frame(BlobView bytes, Time now, LinkOutput& out) {
  if (ended_) return;
  Result<Frame> decoded = decode(bytes);
  if (!decoded) return violation(decoded.error().message(), out);
  Frame& frame = *decoded;
  if (frame.from == mine_) return violation("a frame from ourselves", out);
  if (idle_) {  // the peer sends again: undo the IdleClose
    idle_ = false;
    out.events.emplace_back(std::in_place_type<Open>);
  }
  if (frame.kind == FrameKind::hello) return on_hello(frame, now, out);
  if (frame.to != mine_ && !TROUPE_MUTANT("link.ignore_receiver")) {
    ++stats_.stale;  // for an earlier process at this address: a hello tells the peer our session
    return ask_for_hello(frame.from, now, out);
  }
  if (frame.kind == FrameKind::fenced) return on_fenced(frame, out);
  if (frame.from != peer_) {
    ++stats_.stale;
    return ask_for_hello(frame.from, now, out);
  }
  if (!take_ack(frame.ack, now, out)) return;
  confirm(now, out);
  if (frame.kind == FrameKind::data) {
    on_data(frame, now, out);
  } else {
    on_ack(frame, now, out);
  }
}

/// Answers a frame of an unknown session, or for a former session of ours, with a hello; at most
/// one in kMinBetweenHellos.
void Link::ask_for_hello(SessionId from, Time now, LinkOutput& out) {
  if (!connected_ || now < last_hello_ + kMinBetweenHellos) return;
  last_hello_ = now;
  push_hello(from, 0, out);
}

/// Handles a hello. A hello that echoes our current nonce was sent by a living process that has
/// read our hello, so its session is adopted. Any other hello of an unknown session gets an answer
/// with its nonce as the echo, or a hello that asks for one.
void Link::on_hello(const Frame& frame, Time now, LinkOutput& out) {
  Hello hello;
  if (!parse_hello(frame, hello)) return violation("a malformed hello", out);
  if (hello.protocol != options_.protocol) {
    if ((frame.flags & kFlagWantReply) != 0) push_hello(frame.from, hello.nonce, out);
    if (!window_.empty()) out.events.push_back(drop_window());
    ended_ = true;
    out.events.push_back(Incompatible{Error(
        Code::unavailable, "the peer speaks protocol " + std::to_string(hello.protocol) +
                               " (build " + hello.build + ") and this process protocol " +
                               std::to_string(options_.protocol) + " (build " + options_.build_id +
                               "): run the same release of troupe on both")});
    return;
  }
  if (frame.epoch < min_epoch_) return push_fenced(frame.from, out);
  const bool echoes = frame.to == mine_ && hello.echo == nonce_;
  if (frame.from != peer_ && (echoes || TROUPE_MUTANT("link.adopt_without_echo")))
    adopt(frame, hello, now, out);
  if (frame.from == peer_ && frame.to == mine_ && !take_ack(frame.ack, now, out)) return;
  if ((frame.flags & kFlagWantReply) != 0) {
    push_hello(frame.from, hello.nonce, out);
  } else if (frame.from == peer_ && (frame.flags & kFlagWantAck) != 0 && !echoes) {
    push_ack(out);
  }
  if (frame.from != peer_) {
    if ((frame.flags & kFlagWantReply) == 0) ask_for_hello(frame.from, now, out);
    return;
  }
  const bool again = confirmed_ && now >= last_gap_resend_ + kMinBetweenGapResends;
  confirm(now, out);
  if (again) recover(now, out);  // the peer has reconnected, so frames may have been lost
}

/// Makes the session of this hello the peer's. The Reset of the former session comes before all
/// events and deliveries of the new one (NET-2).
void Link::adopt(const Frame& frame, const Hello& hello, Time now, LinkOutput& out) {
  if (peer_) {
    if (!TROUPE_MUTANT("link.keep_window_at_reset")) {
      out.events.push_back(drop_window());
    } else {
      sent_ = 0;  // the mutant: the old messages go to the new process
      base_ += acked_;
      acked_ = 0;
    }
    ++stats_.resets;
  }
  peer_ = frame.from;
  peer_build_ = hello.build;
  confirmed_ = false;
  nonce_ += 2;  // a late hello with the former echo is not adopted (NET-4); stays odd
  received_ = 0;
  peer_fenced_ = false;
  reorder_.clear();
  reorder_used_ = 0;
  unacked_ = 0;
  ack_due_ = Time::max();
  resend_due_ = Time::max();
  resend_after_ = options_.resend_first;
  last_used_ = now;
  out.events.push_back(Established{peer_, peer_build_});
}

/// Empties the window and returns the outcome of each ticket. Later sequences start from 1 again.
Reset Link::drop_window() {
  Reset reset;
  reset.delivered_through = base_ + acked_;
  reset.sent_through = base_ + sent_;
  reset.accepted_through = base_ + acked_ + window_.size();
  base_ = reset.accepted_through;
  acked_ = sent_ = recover_through_ = 0;
  recover_next_ = 1;
  window_.clear();
  window_used_ = 0;
  resend_due_ = due_since_ = Time::max();
  return reset;
}

Reset Link::abandon() noexcept {
  ended_ = true;
  return drop_window();
}

/// Removes acknowledged messages from the window and continues recover(). Returns false when the
/// acknowledgement is not possible.
bool Link::take_ack(std::uint64_t ack, Time now, LinkOutput& out) {
  if (ack > sent_) {
    violation("an acknowledgement of something never sent", out);
    return false;
  }
  if (ack <= acked_) return true;
  while (acked_ < ack) {
    window_used_ -= window_.front().payload->size();
    window_.pop_front();
    ++acked_;
  }
  resend_after_ = options_.resend_first;
  resend_due_ = acked_ == sent_ ? Time::max() : now + resend_after_;
  last_used_ = now;
  if (recover_next_ <= recover_through_) {
    const std::uint64_t from = std::max(recover_next_, acked_ + 1);
    recover_next_ = from + kResendBurst;
    resend(from, recover_through_, now, out);
  }
  return true;
}

void Link::on_ack(const Frame& frame, Time now, LinkOutput& out) {
  if (frame.sequence > frame.ack + 1 && frame.sequence <= sent_ && frame.ack == acked_ &&
      now >= last_gap_resend_ + kMinBetweenGapResends) {
    last_gap_resend_ = now;
    resend(frame.ack + 1, frame.sequence - 1, now, out);
  }
  if ((frame.flags & kFlagWantAck) != 0) push_ack(out);
  if ((frame.flags & kFlagBye) != 0 && connected_ && !busy()) close_idle(out);
}

void Link::on_data(Frame& frame, Time now, LinkOutput& out) {
  if (frame.epoch < min_epoch_ || peer_fenced_) {
    peer_fenced_ = true;
    return push_fenced(peer_, out);
  }
  if (frame.sequence == 0) return violation("a message without a number", out);
  last_used_ = now;
  if (frame.sequence <= received_ && !TROUPE_MUTANT("link.accept_duplicates")) {
    ++stats_.duplicates;
    ack_due_ = std::min(ack_due_, now + options_.ack_delay);  // our acknowledgement was lost
    return;
  }
  const std::size_t size = frame.payload->size();
  if (frame.sequence > received_ + options_.window_messages ||
      (frame.sequence > received_ + 1 && reorder_used_ + size > options_.window_bytes)) {
    ++stats_.beyond_window;
    return;
  }
  if (reorder_.count(frame.sequence) != 0) {
    ++stats_.duplicates;
    return;
  }
  Delivered message{std::move(*std::const_pointer_cast<Blob>(frame.payload)), frame.epoch};
  if (frame.sequence != received_ + 1 && frame.sequence > received_) {
    reorder_used_ += size;
    reorder_.emplace(frame.sequence, std::move(message));
    ack_due_ = std::min(ack_due_, now + options_.ack_delay);  // the ack names the gap
    return;
  }
  received_ = std::max(received_, frame.sequence);
  ++stats_.delivered;
  ++unacked_;
  out.deliver.push_back(std::move(message));
  deliver_in_order(out);
  ack_due_ = std::min(ack_due_, now + options_.ack_delay);
  if (unacked_ >= options_.ack_every || TROUPE_BUGGIFY("link.ack_early", 0.1)) push_ack(out);
}

void Link::deliver_in_order(LinkOutput& out) {
  while (!reorder_.empty() && reorder_.begin()->first == received_ + 1) {
    reorder_used_ -= reorder_.begin()->second.payload.size();
    out.deliver.push_back(std::move(reorder_.begin()->second));
    reorder_.erase(reorder_.begin());
    ++received_;
    ++stats_.delivered;
    ++unacked_;
  }
}

void Link::on_fenced(const Frame& frame, LinkOutput& out) {
  if (frame.sequence <= epoch_) {
    ++stats_.stale;  // the peer refused an older epoch than our present one
    return;
  }
  Reset reset;
  if (frame.from == peer_) {
    // The peer accepts nothing more from this session, so this acknowledgement is final: messages
    // after it did not arrive.
    if (frame.ack > sent_) return violation("an acknowledgement of something never sent", out);
    const Ticket delivered = base_ + std::max(acked_, frame.ack);
    reset = drop_window();
    reset.delivered_through = reset.sent_through = delivered;
  } else {
    reset = drop_window();
  }
  ended_ = true;
  out.events.push_back(reset);
  out.events.push_back(Fenced{frame.sequence});
}

void Link::violation(std::string why, LinkOutput& out) {
  ++stats_.violations;
  out.events.push_back(Violation{std::move(why)});
}

/// Detects that this process stood still: on_time() comes much later than the deadline. The peer's
/// silence during a standstill does not count, so the timers start anew. After kMostDiscounts
/// standstills in a row without a frame from the peer, the silence counts.
void Link::discount_standstill(Time now) {
  if (discounts_ == kMostDiscounts || now - next_deadline() < options_.keepalive) return;
  ++discounts_;
  asked_ = 0;
  last_heard_ = std::max(last_heard_, now - options_.keepalive);  // the probe is due now
  last_used_ = std::max(last_used_, now - options_.idle_close / 2);
  if (due_since_ != Time::max()) due_since_ = now;
  resend_after_ = hello_after_ = options_.resend_first;
}

void Link::on_time(Time now, LinkOutput& out) {
  if (ended_ || !connected_) return;
  discount_standstill(now);
  if (now >= hello_due_) {
    hello_after_ = std::min(2 * hello_after_, options_.resend_last);
    hello_due_ = now + hello_after_;
    push_hello(peer_, 0, out);
  }
  if (now >= ack_due_) push_ack(out);
  if (now >= resend_due_ && !TROUPE_MUTANT("link.no_resend")) {
    resend_after_ = std::min(2 * resend_after_, options_.resend_last);
    resend_due_ = now + resend_after_;
    recover(now, out);
  } else if (now >= resend_due_) {
    resend_due_ = Time::max();
  }
  if (options_.idle_close > Duration{} && !busy() && now >= last_used_ + options_.idle_close) {
    push_ack(out);
    out.transmit.back().flags = kFlagBye;
    return close_idle(out);
  }
  if (now < last_heard_ + (asked_ + 1) * options_.keepalive) return;
  ++asked_;
  if (peer_) due_since_ = std::min(due_since_, now);
  if (asked_ >= 3 && busy()) {
    out.events.emplace_back(std::in_place_type<Reconnect>);
  } else {
    probe(out);
  }
}

void Link::close_idle(LinkOutput& out) {
  connected_ = false;
  idle_ = true;
  out.events.emplace_back(std::in_place_type<IdleClose>);
}

void Link::probe(LinkOutput& out) {
  if (ended_ || !connected_ || !peer_) return;
  Frame frame = make(FrameKind::ack);
  frame.flags = kFlagWantAck;
  out.transmit.push_back(std::move(frame));
}

/// Returns whether messages are unacknowledged or incomplete, or the peer's session is unknown.
bool Link::busy() const noexcept {
  return !window_.empty() || !peer_ || !reorder_.empty();
}

Time Link::next_deadline() const noexcept {
  if (ended_ || !connected_) return Time::max();
  Time due = std::min({hello_due_, ack_due_, resend_due_});
  due = std::min(due, last_heard_ + (asked_ + 1) * options_.keepalive);
  if (options_.idle_close > Duration{} && !busy())
    due = std::min(due, last_used_ + options_.idle_close);
  return due;
}

}  // namespace troupe::net
