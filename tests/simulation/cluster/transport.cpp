/// Implements net::Transport over the simulator's packets, with the rules of the real one: doors,
/// knocks, admission, one connection per peer, and the events that it reports. The linker takes
/// this definition in place of the library's. The file also replaces getrandom(), so that
/// sessions and ids come from the seed.
#include "troupe/runtime/net/transport.hpp"

#include "tests/simulation/cluster/wire.hpp"
#include "tests/simulation/kernel/flat_map.hpp"
#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/random.hpp"

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <optional>

namespace troupe::sim::cluster {
namespace {
std::optional<Random> id_source;
}
void seed_random_ids(std::uint64_t seed) {
  id_source.emplace(seed ^ 0x6964732121ULL);
}
void free_random_ids() {
  id_source.reset();
}
}  // namespace troupe::sim::cluster

extern "C" ssize_t getrandom(void* out, size_t size, unsigned flags) {
  auto& source = troupe::sim::cluster::id_source;
  if (!source) return syscall(SYS_getrandom, out, size, flags);
  auto* at = static_cast<unsigned char*>(out);
  for (size_t i = 0; i < size; ++i) at[i] = static_cast<unsigned char>((*source)());
  return static_cast<ssize_t>(size);
}

namespace troupe::net {

using sim::cluster::Packet;
using sim::cluster::Wire;

namespace {

constexpr Duration kKnockAgain = std::chrono::milliseconds(250);

struct Peer {
  PeerInfo info;
  Link link;
  bool up = false;         ///< there is a connection
  bool announced = false;  ///< the last event about the peer was PeerUp
  bool told_down = false;
  bool knocking = false;
  std::string build;
  Time knock_deadline = Time::max(), knock_again = Time::max();
  Time down_since{}, next_try{};
  Duration retry_after{};
  Peer(const PeerInfo& who, Link to) : info(who), link(std::move(to)) {}
  bool busy() const noexcept { return link.unacknowledged() > 0; }
};

}  // namespace

struct Transport::Impl final : sim::cluster::Port {
  TransportOptions options;
  Wire& wire;
  std::string address;
  sim::FlatMap<NodeId, std::unique_ptr<Peer>> peers;
  std::vector<std::unique_ptr<Peer>> buried;
  std::vector<TransportEvent> news;
  Epoch epoch = 0;

  Impl(TransportOptions given, Wire& below) : options(std::move(given)), wire(below) {
    options.link.protocol = options.protocol;
    options.link.build_id = options.build_id;
    address = "tcp://sim:" + std::to_string(wire.self.low);
    wire.port = this;
  }
  ~Impl() override { wire.port = nullptr; }

  Peer* find(NodeId node) {
    const auto at = peers.find(node);
    return at == peers.end() ? nullptr : at->second.get();
  }
  void say(NodeId to, Packet::Kind kind) {
    Packet packet;
    packet.kind = kind;
    packet.from = wire.self;
    packet.to = to;
    wire.transmit(std::move(packet));
  }

  // Connections.

  void close_data(Peer& peer) {
    peer.link.on_disconnected();
    peer.up = false;
  }
  void end_knock(Peer& peer) {
    peer.knocking = false;
    peer.knock_deadline = peer.knock_again = Time::max();
  }
  void start_knock(Peer& peer, Time now) {
    if (peer.info.door.empty() || peer.knocking) return;
    peer.knocking = true;
    peer.knock_deadline = now + options.knock_timeout;
    peer.knock_again = now + kKnockAgain;
    say(peer.info.node, Packet::Kind::knock);
  }
  void knock_failed(Peer& peer, const std::string& why, Time now) {
    end_knock(peer);
    peer.retry_after =
        std::min(std::max(2 * peer.retry_after, options.retry_first), options.retry_last);
    peer.next_try = now + peer.retry_after;
    tell_down(peer, "cannot reach its door: " + why);
  }
  void tell_down(Peer& peer, std::string why) {
    if (!peer.told_down) news.push_back(PeerDown{peer.info.node, std::move(why)});
    peer.told_down = true;
    peer.announced = false;
  }
  void went_down(Peer& peer, const std::string& why, Time now) {
    if (!peer.up) return;
    peer.up = false;
    peer.down_since = now;
    peer.link.on_disconnected();
    tell_down(peer, why);
  }
  void came_up(Peer& peer, Time now) {
    end_knock(peer);
    if (peer.up) return;
    peer.up = true;
    peer.retry_after = {};
    LinkOutput out;
    peer.link.on_connected(now, out);
    flush(peer, out, now);
  }
  void lose(Peer& peer, const Error& error, bool fenced) {
    const NodeId node = peer.info.node;
    const auto at = peers.find(node);
    if (at == peers.end()) return;
    close_data(peer);
    const bool waiting = peer.busy();
    const Reset reset = peer.link.abandon();
    if (waiting) news.push_back(PeerReset{node, reset});
    news.push_back(PeerLost{node, error, fenced});
    buried.push_back(std::move(at->second));
    peers.erase(at);
  }

  // The Link's output. False when the peer is lost.

  bool flush(Peer& peer, LinkOutput& out, Time now) {
    const NodeId node = peer.info.node;
    for (const Frame& frame : out.transmit) {
      if (!peer.up) continue;
      Packet packet;
      packet.kind = Packet::Kind::frame;
      packet.from = wire.self;
      packet.to = node;
      packet.bytes = std::make_shared<const Blob>(encode(frame));
      wire.transmit(std::move(packet));
    }
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
    return true;
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
    } else if (std::get_if<Fenced>(&event) != nullptr) {
      lose(peer, Error(Code::unavailable, "the peer takes no epoch of ours any more"), true);
      return false;
    } else if (auto* broken = std::get_if<Violation>(&event)) {
      lose(peer, Error(Code::unavailable, "the peer broke the protocol: " + broken->why), false);
      return false;
    } else if (std::get_if<IdleClose>(&event) != nullptr) {
      close_data(peer);
    } else {  // Reconnect, Open
      if (std::get_if<Reconnect>(&event) != nullptr) close_data(peer);
      if (!peer.up) start_knock(peer, now);
    }
    return true;
  }

  // Port.

  void on_packet(const Packet& packet, Time now) override {
    if (packet.to != wire.self) return say_gone(packet);
    Peer* peer = find(packet.from);
    switch (packet.kind) {
      case Packet::Kind::knock:
        if (peer == nullptr) return say(packet.from, Packet::Kind::refuse);
        if (peer->up) close_data(*peer);  // the peer begins anew
        say(packet.from, Packet::Kind::welcome);
        return came_up(*peer, now);
      case Packet::Kind::welcome:
        if (peer != nullptr && peer->knocking) came_up(*peer, now);
        return;
      case Packet::Kind::refuse:
        if (peer != nullptr && peer->knocking)
          knock_failed(*peer, "it does not admit this node's key", now);
        return;
      case Packet::Kind::frame: {
        if (peer == nullptr || !peer->up) return;  // a connection that this side has closed
        LinkOutput out;
        peer->link.on_frame(*packet.bytes, now, out);
        flush(*peer, out, now);
        return;
      }
      default: return;
    }
  }
  /// No process has this name (any more), so its host refuses the connection.
  void say_gone(const Packet& packet) {
    if (packet.kind != Packet::Kind::knock) return;
    Packet answer;
    answer.kind = Packet::Kind::refuse;
    answer.from = packet.to;
    answer.to = packet.from;
    wire.transmit(std::move(answer));
  }

  void on_closed(std::uint64_t machine, Time now) override {
    for (auto& [node, peer] : peers)
      if (node.low == machine) went_down(*peer, "its connection closed", now);
  }

  // Time.

  Time due(const Peer& peer) const {
    Time due = std::min({peer.link.next_deadline(), peer.knock_deadline, peer.knock_again});
    if (!peer.up && !peer.knocking && peer.busy() && !peer.info.door.empty())
      due = std::min(due, std::max(peer.next_try, peer.down_since + options.reconnect_grace));
    return due;
  }
  void on_deadline(Peer& peer, Time now) {
    LinkOutput out;
    peer.link.on_time(now, out);
    if (!flush(peer, out, now)) return;
    if (now >= peer.knock_deadline) {
      knock_failed(peer, "no answer", now);
    } else if (now >= peer.knock_again) {
      peer.knock_again = now + kKnockAgain;
      say(peer.info.node, Packet::Kind::knock);
    }
    if (!peer.up && !peer.knocking && peer.busy() && now >= peer.next_try &&
        now >= peer.down_since + options.reconnect_grace)
      start_knock(peer, now);
  }
};

Transport::Transport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transport::~Transport() = default;

Result<std::unique_ptr<Transport>> Transport::open(TransportOptions options) {
  TROUPE_ASSERT(sim::cluster::WireScope::current() != nullptr, "a transport outside the simulator");
  auto impl = std::make_unique<Impl>(std::move(options), *sim::cluster::WireScope::current());
  return std::unique_ptr<Transport>(new Transport(std::move(impl)));
}

void Transport::admit(const PeerInfo& info) {
  Peer* peer = impl_->find(info.node);
  if (peer != nullptr && peer->info.key != info.key) {
    revoke(info.node);
    peer = nullptr;
  }
  if (peer != nullptr) {
    peer->info = info;
    return;
  }
  Link link(impl_->options.link, SessionId::random(), Time{});
  link.set_epoch(impl_->epoch);
  auto made = std::make_unique<Peer>(info, std::move(link));
  made->down_since = Time{} - std::chrono::hours(1);
  impl_->peers[info.node] = std::move(made);
}

void Transport::revoke(NodeId node) {
  if (Peer* peer = impl_->find(node))
    impl_->lose(*peer, Error(Code::unavailable, "the peer's key was revoked", Outcome::unknown),
                false);
  impl_->buried.clear();
}

void Transport::admit_join(const PublicKey&, Time) {}

Result<Ticket> Transport::send(NodeId node, Blob payload, Time now) {
  Peer* peer = impl_->find(node);
  if (peer == nullptr)
    return Error(Code::invalid_argument, "node " + node.str() + " is not admitted");
  LinkOutput out;
  Result<Ticket> ticket = peer->link.send(std::move(payload), now, out);
  if (!impl_->flush(*peer, out, now) || !ticket) return ticket;
  if (!peer->up && !peer->knocking && now >= peer->next_try) impl_->start_knock(*peer, now);
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
// NOLINTBEGIN(performance-unnecessary-value-param): the parameters are those of the product's
void Transport::join(const JoinToken&, Blob, Time) {}
void Transport::answer_join(std::uint64_t, Blob) {}
// NOLINTEND(performance-unnecessary-value-param)
void Transport::refuse_join(std::uint64_t, const std::string&) {}
int Transport::fd() const noexcept {
  return impl_->wire.fd();
}

void Transport::poll(Time now, std::vector<TransportEvent>& events) {
  impl_->wire.arrive(now);
  std::vector<NodeId> due;
  for (const auto& [node, peer] : impl_->peers)
    if (impl_->due(*peer) <= now) due.push_back(node);
  for (const NodeId node : due)
    if (Peer* peer = impl_->find(node)) impl_->on_deadline(*peer, now);
  impl_->buried.clear();
  for (TransportEvent& event : impl_->news) events.push_back(std::move(event));
  impl_->news.clear();
}

Time Transport::next_deadline() const {
  if (!impl_->news.empty()) return Time{};
  Time due = Time::max();
  for (const auto& [node, peer] : impl_->peers) due = std::min(due, impl_->due(*peer));
  return due;
}

const std::string& Transport::door() const noexcept {
  return impl_->address;
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
  return {};
}

}  // namespace troupe::net
