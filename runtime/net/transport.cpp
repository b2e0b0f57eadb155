#include "troupe/runtime/net/transport.hpp"

#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/net/internal/door_socket.hpp"
#include "troupe/runtime/net/internal/gatekeeper.hpp"
#include "troupe/runtime/net/internal/own_join.hpp"
#include "troupe/runtime/net/internal/pending_joins.hpp"
#include "troupe/runtime/net/internal/sockets.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace troupe::net {

using internal::Channel;
using internal::ConnectionNews;
using internal::DoorKind;
using internal::DoorMessage;
using internal::OwnJoin;
using internal::Part;
using internal::Watched;

namespace {

constexpr int kMessagesPerTurn = 256;
/// Threads that must be free: libzmq starts two and aborts without them. Other processes of this
/// user may start some meanwhile.
constexpr unsigned kThreads = 4;
constexpr std::size_t kBytesPerTurn = 4 << 20;  // of one peer, so that no peer delays the others
constexpr int kByeMs = 1000;  // the longest that a closing socket may take to send its last frame
constexpr Duration kDoubtFor = std::chrono::milliseconds(100);

/// Returns libzmq's high-water mark: four times the Link's window, which is the real bound. libzmq
/// returns credit to a pipe's writer only after half of the mark was read. A mark near the window
/// would therefore refuse frames although the queue is nearly empty.
int high_water_mark(std::size_t window) {
  return static_cast<int>(std::min<std::size_t>(4 * window + 64, 1 << 20));
}
/// "tcp://host" of an address with a port.
std::string without_port(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}
struct Peer {
  PeerInfo info;
  Link link;
  Channel data;
  bool bound = false;      // we bound the data channel, so strangers may connect to its port
  bool up = false;         // there is a connection
  bool announced = false;  // the last event about it was PeerUp
  bool told_down = false;  // the last event about it was PeerDown
  Channel knock;
  std::string build;
  std::string trouble;  // why the present attempt fails
  Time knock_deadline = Time::max(), doubt_deadline = Time::max();
  bool doubt_unread = false;  // unread frames from before the doubt may be left: see doubt()
  Time down_since{}, next_try{}, due = Time::max();
  Duration retry_after{};

  bool busy() const noexcept { return link.unacknowledged() > 0; }
};

}  // namespace

struct Transport::Impl {
  TransportOptions options;
  internal::Sockets sockets;
  internal::Gatekeeper gate;
  internal::DoorSocket door;
  std::map<NodeId, std::unique_ptr<Peer>> peers;
  std::map<PublicKey, NodeId> by_key;
  std::vector<std::unique_ptr<Peer>> buried;  // lost peers; callers up the stack still use them
  std::set<std::pair<Time, NodeId>> deadlines;
  internal::PendingJoins joins;
  std::unique_ptr<OwnJoin> own_join;
  std::vector<TransportEvent> news;
  Epoch epoch = 0;
  TransportStats stats;

  explicit Impl(TransportOptions given)
      : options(std::move(given)),
        sockets(options.keys, high_water_mark(options.link.window_messages)),
        gate(sockets.context()),
        door(sockets, options.protocol, options.build_id) {
    options.link.protocol = options.protocol;
    options.link.build_id = options.build_id;
  }
  ~Impl() {
    for (auto& entry : peers) close_all(*entry.second);
    own_join.reset();
    door.close();
  }

  Result<void> open() {
    if (!gate.bound()) return Error(Code::internal, "the ZAP handler cannot be started");
    sockets.watch(gate.fd(), Watched::gate, {});
    return door.open(options.listen);
  }

  std::string dialled(const std::string& address) const {
    return options.dial ? options.dial(address) : address;
  }
  Peer* find(NodeId node) const {
    const auto at = peers.find(node);
    return at != peers.end() ? at->second.get() : nullptr;
  }

  // Deadlines.

  void plan(Peer& peer) {
    Time due = std::min({peer.link.next_deadline(), peer.knock_deadline, peer.doubt_deadline});
    if (peer.data && !peer.up && peer.busy())
      due = std::min(due, peer.down_since + options.reconnect_grace);
    if (!peer.data && !peer.knock && peer.busy() && !peer.info.door.empty())
      due = std::min(due, peer.next_try);
    if (due == peer.due) return;
    if (peer.due != Time::max()) deadlines.erase({peer.due, peer.info.node});
    peer.due = due;
    if (due != Time::max()) deadlines.insert({due, peer.info.node});
  }

  void on_deadline(Peer& peer, Time now) {
    LinkOutput out;
    peer.link.on_time(now, out);
    if (!flush(peer, out, now)) return;
    if (now >= peer.doubt_deadline) went_down(peer, "its connection closed", now);
    if (now >= peer.knock_deadline) knock_failed(peer, "no answer", now);
    if (peer.data && !peer.up && peer.busy() && now >= peer.down_since + options.reconnect_grace) {
      tell_down(peer, peer.bound ? "it does not come to this node's port for data"
                                 : "its port for data cannot be reached");
      close_data(peer);
      peer.next_try = std::max(peer.next_try, now);
    }
    if (!peer.data && !peer.knock && peer.busy() && now >= peer.next_try) start_knock(peer, now);
    plan(peer);
  }

  // Connections.

  void close_data(Peer& peer) {
    peer.link.on_disconnected();
    peer.up = false;
    peer.doubt_deadline = Time::max();
    if (peer.data) sockets.close(peer.data);
  }
  void close_knock(Peer& peer) {
    peer.knock_deadline = Time::max();
    if (peer.knock) sockets.close(peer.knock);
  }
  void close_all(Peer& peer) {
    close_knock(peer);
    close_data(peer);
  }

  void start_knock(Peer& peer, Time now) {
    if (peer.info.door.empty() || peer.knock) return;
    peer.trouble.clear();
    peer.knock = sockets.dial(peer.info.key, options.keys, internal::kMaxDoorMessage,
                              Watched::knock, peer.info.node, true);
    if (!peer.knock) return knock_failed(peer, internal::Sockets::kNoneLeft, now);
    peer.knock_deadline = now + options.knock_timeout;
    const Blob bytes = encode(door.message_of(DoorKind::knock, {}));
    if (!peer.knock.socket.connect(dialled(peer.info.door)))
      return knock_failed(peer, "its address cannot be used: " + internal::Socket::error(), now);
    peer.knock.socket.send(bytes.data(), bytes.size());
    plan(peer);
  }

  void knock_failed(Peer& peer, const std::string& why, Time now) {
    close_knock(peer);
    peer.retry_after =
        std::min(std::max(2 * peer.retry_after, options.retry_first), options.retry_last);
    peer.next_try = now + peer.retry_after;
    std::string text = "cannot reach its door " + peer.info.door + ": " + why;
    if (!peer.trouble.empty()) text += " (" + peer.trouble + ")";
    tell_down(peer, std::move(text));
    plan(peer);
  }

  void tell_down(Peer& peer, std::string why) {
    if (!peer.told_down) news.push_back(PeerDown{peer.info.node, std::move(why)});
    peer.told_down = true;
    peer.announced = false;
  }

  void went_down(Peer& peer, const std::string& why, Time now) {
    peer.doubt_deadline = Time::max();
    if (!peer.up) return;
    peer.up = false;
    peer.down_since = now;
    peer.link.on_disconnected();
    ++stats.disconnections;
    tell_down(peer, why);
  }

  /// Handles a closed connection on a socket that we bound. It may have been a stranger's, so the
  /// peer gets a probe and has `kDoubtFor` to answer. Frames that arrived before are no answer:
  /// while such frames may be unread (`unread`), the peer is probed once more after they are read.
  void doubt(Peer& peer, Time now, bool unread) {
    peer.doubt_deadline = now + kDoubtFor;
    peer.doubt_unread = unread;
    LinkOutput out;
    peer.link.probe(out);
    flush(peer, out, now);
  }

  void came_up(Peer& peer, Time now) {
    peer.up = true;
    peer.doubt_deadline = Time::max();
    peer.retry_after = {};
    ++stats.connections;
    LinkOutput out;
    peer.link.on_connected(now, out);
    flush(peer, out, now);
  }

  void lose(Peer& peer, const Error& error, bool fenced) {
    const NodeId node = peer.info.node;
    const auto at = peers.find(node);
    if (at == peers.end()) return;
    close_all(peer);
    gate.revoke(peer.info.key);
    by_key.erase(peer.info.key);
    if (peer.due != Time::max()) deadlines.erase({peer.due, node});
    const bool waiting = peer.busy();
    const Reset reset = peer.link.abandon();
    if (waiting) news.push_back(PeerReset{node, reset});
    news.push_back(PeerLost{node, error, fenced});
    buried.push_back(std::move(at->second));
    peers.erase(at);
  }

  /// Carries out the Link's output. Returns false when that lost the peer; the caller must not use
  /// the peer any more then.
  bool flush(Peer& peer, LinkOutput& out, Time now) {
    const NodeId node = peer.info.node;
    for (const Frame& frame : out.transmit) transmit(peer, frame);
    if (!out.transmit.empty() && peer.data && peer.data.socket.readable())
      sockets.again(peer.data.watch);
    for (LinkEvent& event : out.events)
      if (!on_link_event(peer, event, now)) return false;
    if (!peer.announced && peer.link.confirmed()) {
      peer.announced = true;
      peer.told_down = false;
      news.push_back(PeerUp{node, peer.build});
    }
    for (Delivered& content : out.deliver)
      news.push_back(Message{node, peer.info.role, std::move(content)});
    out.clear();
    plan(peer);
    return true;
  }

  void transmit(Peer& peer, const Frame& frame) {
    const std::size_t size = frame.payload != nullptr ? frame.payload->size() : 0;
    Part part;
    zmq_msg_init_size(part.raw(), kFrameHeaderSize + size);
    std::byte header[kFrameHeaderSize];
    encode_header(frame, header);
    auto* at = static_cast<std::byte*>(zmq_msg_data(part.raw()));
    std::memcpy(at, header, sizeof header);
    if (size > 0) std::memcpy(at + sizeof header, frame.payload->data(), size);
    if (!peer.up || !peer.data || !peer.data.socket.send(std::move(part))) ++stats.dropped_frames;
  }

  bool on_link_event(Peer& peer, LinkEvent& event, Time now) {
    const NodeId node = peer.info.node;
    if (auto* met = std::get_if<Established>(&event)) {
      peer.build = met->peer_build;
      peer.announced = false;
    } else if (auto* reset = std::get_if<Reset>(&event)) {
      news.push_back(PeerReset{node, *reset});
    } else if (auto* other = std::get_if<Incompatible>(&event)) {
      lose(peer, other->error, false);
      return false;
    } else if (auto* fenced = std::get_if<Fenced>(&event)) {
      lose(peer,
           Error(Code::unavailable, "the peer takes no epoch below " +
                                        std::to_string(fenced->least) +
                                        ": this node was declared dead"),
           true);
      return false;
    } else if (auto* broken = std::get_if<Violation>(&event)) {
      ++stats.bad_messages;
      lose(peer, Error(Code::unavailable, "the peer broke the protocol: " + broken->why), false);
      return false;
    } else if (std::get_if<IdleClose>(&event) != nullptr) {
      if (peer.data) peer.data.socket.set(ZMQ_LINGER, kByeMs);
      close_data(peer);
    } else {  // Reconnect, Open
      if (std::get_if<Reconnect>(&event) != nullptr) close_data(peer);
      if (!peer.data) start_knock(peer, now);
    }
    return true;
  }

  // Input of the sockets.

  void on_data(Peer& peer, std::uint64_t watch, Time now) {
    std::size_t bytes = 0;
    for (int i = 0; i < kMessagesPerTurn && bytes < kBytesPerTurn; ++i) {
      Part part;
      if (!peer.data) return;
      if (!peer.data.socket.receive(part)) {
        sockets.done(watch);
        if (peer.doubt_deadline != Time::max() && peer.doubt_unread) doubt(peer, now, false);
        return;
      }
      if (part.more()) {
        ++stats.bad_messages;
        return lose(peer, Error(Code::unavailable, "the peer sent a message of several parts"),
                    false);
      }
      if (peer.doubt_deadline != Time::max())
        peer.doubt_deadline = peer.doubt_unread ? now + kDoubtFor : Time::max();
      bytes += part.bytes().size();
      LinkOutput out;
      peer.link.on_frame(part.bytes(), now, out);
      if (!flush(peer, out, now)) return;
    }
    sockets.again(watch);
  }

  void on_data_monitor(Peer& peer, Time now) {
    for (const ConnectionNews& item : internal::Sockets::news(peer.data.monitor)) {
      if (item.kind == ConnectionNews::up) {
        came_up(peer, now);
      } else if (item.kind == ConnectionNews::down && peer.up) {
        if (!peer.bound)
          went_down(peer, "its connection closed", now);
        else if (peer.doubt_deadline == Time::max())
          doubt(peer, now, true);
      }
    }
    plan(peer);
  }

  void on_knock_monitor(Peer& peer, Time now) {
    for (const ConnectionNews& item : internal::Sockets::news(peer.knock.monitor)) {
      if (item.kind == ConnectionNews::refused_by_peer)
        return knock_failed(peer, "it does not admit this node's key", now);
      if (item.kind == ConnectionNews::failed) peer.trouble = "nobody there completes a handshake";
    }
  }

  void on_knock_answer(Peer& peer, Time now) {
    Part part;
    if (!peer.knock.socket.readable() || !peer.knock.socket.receive(part)) return;
    Result<DoorMessage> answer = internal::decode_door(part.bytes());
    if (!answer || part.more()) return knock_failed(peer, "it answers nonsense", now);
    if (answer->kind == DoorKind::refuse && answer->protocol != options.protocol) {
      return lose(peer, Error(Code::unavailable, internal::printable(answer->body)), false);
    }
    if (answer->kind == DoorKind::later) {
      close_knock(peer);
      peer.next_try = now + options.retry_first;
      return plan(peer);
    }
    const std::optional<std::uint16_t> port = internal::port_of(*answer);
    if (!port) return knock_failed(peer, internal::printable(answer->body), now);
    close_knock(peer);
    close_data(peer);
    peer.data = sockets.dial(peer.info.key, options.keys, kMaxFrameSize, Watched::data,
                             peer.info.node, false);
    peer.bound = false;
    if (!peer.data) return knock_failed(peer, internal::Sockets::kNoneLeft, now);
    peer.down_since = now + options.knock_timeout;  // allow that much for the first handshake
    peer.data.socket.connect(dialled(without_port(peer.info.door) + ":" + std::to_string(*port)));
    plan(peer);
  }

  // The door.

  void refuse(const Blob& routing_id, const std::string& why) {
    ++stats.refused_knocks;
    door.refuse(routing_id, why);
  }

  void on_door(Time now) {
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      if (!door.readable()) return;
      if (auto caller = door.receive())
        on_caller(*caller, now);
      else
        ++stats.bad_messages;
    }
    sockets.again(door.watch());
  }

  void on_caller(internal::DoorSocket::Caller& caller, Time now) {
    auto& [routing_id, key, message] = caller;
    const auto* admission = gate.find(key, now);
    if (admission == nullptr) return refuse(routing_id, "this key is no longer admitted");
    if (const std::string why = door.objection_to(message); !why.empty())
      return refuse(routing_id, why);
    if (message.kind == DoorKind::join)
      return on_join(routing_id, key, admission->role, message, now);
    const auto at = by_key.find(key);
    if (message.kind != DoorKind::knock || at == by_key.end() || admission->role == Role::join)
      return refuse(routing_id, "this key may not ask for that");
    welcome(routing_id, *find(at->second), now);
  }

  void welcome(const Blob& routing_id, Peer& peer, Time now) {
    // Both peers knock at once: the knock of the smaller key goes first. Both sides decide alike.
    const bool ours_under_way =
        peer.knock || (peer.data && !peer.bound && !peer.up && now < peer.down_since);
    if (ours_under_way && options.keys.public_key < peer.info.key)
      return door.answer(routing_id, DoorKind::later, {});
    close_knock(peer);
    close_data(peer);
    peer.data = sockets.serve(ZMQ_DEALER, internal::peer_domain(peer.info.key), kMaxFrameSize,
                              Watched::data, peer.info.node);
    peer.bound = true;
    if (!peer.data) return refuse(routing_id, internal::Sockets::kNoneLeft);
    peer.down_since = now + options.knock_timeout;
    if (!peer.data.socket.bind(without_port(door.address()) + ":*")) {
      close_data(peer);
      return refuse(routing_id, "no port is free here");
    }
    door.answer(routing_id, DoorKind::welcome, internal::body_of_port(peer.data.socket.endpoint()));
    plan(peer);
  }

  void on_join(const Blob& routing_id, const PublicKey& key, Role role, DoorMessage& message,
               Time now) {
    if (const char* why = joins.refusal(key, role, now)) return refuse(routing_id, why);
    const std::uint64_t id = joins.add(routing_id, key, now);
    news.push_back(JoinRequest{id, key, std::move(message.body)});
  }

  // Our own join.

  void end_join(OwnJoin::End end) {
    if (!end) return;
    own_join.reset();
    news.push_back(JoinReply{std::move(*end)});
  }

  void handle(std::uint64_t id, Time now) {
    const internal::Sockets::Watch* watch = sockets.find(id);
    if (watch == nullptr) return;
    switch (watch->kind) {
      case Watched::gate: return gate.answer(now);
      case Watched::door: return on_door(now);
      case Watched::join: return end_join(own_join->on_answer());
      case Watched::join_monitor: return end_join(own_join->on_monitor());
      default: break;
    }
    Peer* peer = find(watch->node);
    if (peer == nullptr) return;
    switch (watch->kind) {
      case Watched::data: return on_data(*peer, id, now);
      case Watched::data_monitor: return on_data_monitor(*peer, now);
      case Watched::knock: return on_knock_answer(*peer, now);
      default: return on_knock_monitor(*peer, now);
    }
  }
};

Transport::Transport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transport::~Transport() = default;

Result<std::unique_ptr<Transport>> Transport::open(TransportOptions options) {
  if (auto can = can_start_threads(kThreads); !can) return can.error();
  auto impl = std::make_unique<Impl>(std::move(options));
  if (Result<void> opened = impl->open(); !opened) return opened.error();
  return std::unique_ptr<Transport>(new Transport(std::move(impl)));
}

void Transport::admit(const PeerInfo& info) {
  Peer* peer = impl_->find(info.node);
  if (peer != nullptr && peer->info.key != info.key) {
    revoke(info.node);
    peer = nullptr;
  }
  // A key belongs to one node. Another node with this key was admitted by mistake: revoke it.
  const auto same_key = impl_->by_key.find(info.key);
  if (same_key != impl_->by_key.end() && same_key->second != info.node) revoke(same_key->second);
  impl_->gate.admit(info.key, info.role, Time::max());
  impl_->by_key[info.key] = info.node;
  if (peer != nullptr) {
    peer->info = info;
    return;
  }
  Link link(impl_->options.link, SessionId::random(), Time{});
  link.set_epoch(impl_->epoch);
  impl_->peers[info.node] = std::make_unique<Peer>(Peer{.info = info, .link = std::move(link)});
}

void Transport::revoke(NodeId node) {
  if (Peer* peer = impl_->find(node))
    impl_->lose(*peer, Error(Code::unavailable, "the peer's key was revoked", Outcome::unknown),
                false);
  impl_->buried.clear();
}

void Transport::admit_join(const PublicKey& one_time, Time expires) {
  impl_->gate.admit(one_time, Role::join, expires);
}

Result<Ticket> Transport::send(NodeId node, Blob payload, Time now) {
  Peer* peer = impl_->find(node);
  if (peer == nullptr)
    return Error(Code::invalid_argument, "node " + node.str() + " is not admitted");
  LinkOutput out;
  Result<Ticket> ticket = peer->link.send(std::move(payload), now, out);
  if (!impl_->flush(*peer, out, now) || !ticket) return ticket;
  if (!peer->data && !peer->knock && now >= peer->next_try) impl_->start_knock(*peer, now);
  impl_->plan(*peer);
  return ticket;
}

bool Transport::can_send(NodeId node, std::size_t size) const {
  const Peer* peer = impl_->find(node);
  return peer != nullptr && peer->link.can_send(size);
}

void Transport::set_epoch(Epoch epoch) {
  impl_->epoch = std::max(impl_->epoch, epoch);
  for (auto& entry : impl_->peers) entry.second->link.set_epoch(epoch);
}

void Transport::set_min_epoch(NodeId node, Epoch least) {
  if (Peer* peer = impl_->find(node)) peer->link.set_min_epoch(least);
}

void Transport::join(const JoinToken& token, Blob request, Time deadline) {
  impl_->own_join.reset();  // its socket is closed before there is another
  impl_->own_join = std::make_unique<OwnJoin>(impl_->sockets, token.door, deadline);
  impl_->end_join(impl_->own_join->start(token,
                                         impl_->door.message_of(DoorKind::join, std::move(request)),
                                         impl_->dialled(token.door)));
}

void Transport::answer_join(std::uint64_t id, Blob answer) {
  const auto join = impl_->joins.take(id);
  if (!join) return;
  impl_->gate.revoke(join->key);
  impl_->door.answer(join->routing_id, DoorKind::joined, std::move(answer));
}

void Transport::refuse_join(std::uint64_t id, const std::string& why) {
  if (const auto join = impl_->joins.take(id)) impl_->refuse(join->routing_id, why);
}

int Transport::fd() const noexcept {
  return impl_->sockets.fd();
}

void Transport::poll(Time now, std::vector<TransportEvent>& events) {
  Impl& impl = *impl_;
  for (std::uint64_t id : impl.sockets.ready()) impl.handle(id, now);
  // Collect the due peers first, so that each is handled once: a deadline that on_deadline() sets
  // to `now` waits for the next call.
  std::vector<NodeId> due;
  for (const auto& [at, node] : impl.deadlines) {
    if (at > now) break;
    due.push_back(node);
  }
  for (NodeId node : due)
    if (Peer* peer = impl.find(node)) impl.on_deadline(*peer, now);
  if (impl.own_join != nullptr && now >= impl.own_join->deadline())
    impl.end_join(impl.own_join->failed("no answer in time"));
  for (Refused& refused : impl.gate.take_audit()) impl.news.push_back(std::move(refused));
  impl.buried.clear();
  for (TransportEvent& event : impl.news) events.push_back(std::move(event));
  impl.news.clear();
}

Time Transport::next_deadline() const {
  if (impl_->sockets.pending() || !impl_->news.empty()) return Time{};
  Time due = impl_->deadlines.empty() ? Time::max() : impl_->deadlines.begin()->first;
  if (impl_->own_join != nullptr) due = std::min(due, impl_->own_join->deadline());
  return due;
}

const std::string& Transport::door() const noexcept {
  return impl_->door.address();
}
const PublicKey& Transport::public_key() const noexcept {
  return impl_->options.keys.public_key;
}
bool Transport::connected(NodeId node) const {
  const Peer* peer = impl_->find(node);
  return peer != nullptr && peer->up;
}
const Link* Transport::link(NodeId node) const {
  const Peer* peer = impl_->find(node);
  return peer != nullptr ? &peer->link : nullptr;
}
TransportStats Transport::stats() const {
  TransportStats stats = impl_->stats;
  stats.refused_handshakes = impl_->gate.refused();
  return stats;
}

}  // namespace troupe::net
