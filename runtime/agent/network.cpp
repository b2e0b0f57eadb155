#include "troupe/runtime/agent/network.hpp"

#include "troupe/runtime/agent/peer_table.hpp"
#include "troupe/runtime/agent/send_queues.hpp"
#include "troupe/runtime/agent/silence.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe::agent {

using Peer = NetworkPeer;
using wire::Protocol;

namespace {

constexpr Time kNever = Time::max();

bool is_wildcard(const std::string& address) {
  for (const char* wild : {"tcp://*", "tcp://0.0.0.0", "tcp://[::]"})
    if (address.compare(0, std::char_traits<char>::length(wild), wild) == 0) return true;
  return false;
}

std::string seconds(Duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s";
}

}  // namespace

struct Network::Impl {
  NetworkOptions options;
  Handler& handler;
  std::unique_ptr<net::Transport> transport;
  SessionId session = SessionId::random();
  control::SelfFencing self_fencing;
  Silence silence;
  wire::PeerWriter writer;
  PeerTable peers;
  SendQueues queues;
  std::vector<std::pair<NodeId, std::string>> notices;  ///< on_peer_reset() calls to make
  std::vector<net::TransportEvent> events;
  std::uint64_t view = 0;   ///< version of the ClusterNodes applied last
  Epoch control_stamp = 0;  ///< lowest epoch stamp that control's messages may have
  Time now{};
  NetworkStats stats;

  Impl(NetworkOptions given, Handler& h, Time start)
      : options(std::move(given)),
        handler(h),
        self_fencing(options.self_fencing, options.self.id, session),
        silence(options.silent_after),
        peers(options.control.node),
        queues({options.batch, options.backlog_high, options.backlog_low}),
        now(start) {}

  Result<void> open() {
    if (is_wildcard(options.listen))
      return Error(Code::invalid_argument, "an agent cannot tell others to reach it at " +
                                               options.listen +
                                               "; name an address of this machine");
    net::TransportOptions with;
    with.keys = std::move(options.keys);
    with.listen = options.listen;
    with.build_id = options.build_id;
    with.link = options.link;
    with.reconnect_grace = options.reconnect_grace;
    with.retry_last = options.retry_last;
    with.knock_timeout = options.knock_timeout;
    auto opened = net::Transport::open(std::move(with));
    if (!opened) return opened.error();
    transport = std::move(*opened);
    options.self.address = transport->door();
    options.self.public_key = transport->public_key().str();

    Peer& head = peers.control();
    head.key = options.control.key;
    head.door = options.control.door;
    admit(head);
    run(self_fencing.start(now));
    return {};
  }

  // Peers.

  Peer* find(NodeId node) { return peers.find(node); }
  bool is_control(const Peer& peer) const noexcept { return &peer == &peers.control(); }

  void admit(Peer& peer) {
    const bool back = peer.state == Peer::State::dropped;
    transport->admit({.node = peer.node, .key = peer.key, .door = peer.door});
    if (is_control(peer)) transport->set_min_epoch(peer.node, control_stamp);
    peers.set_state(peer, Peer::State::member);
    peer.admitted_at = now;
    peer.down_since = kNever;
    if (back) make_contact(peer);
  }

  /// Sends an empty batch. It makes the Link connect, so that both sides learn whether the other
  /// is still the same process.
  void make_contact(Peer& peer) {
    const net::Link* link = transport->link(peer.node);
    if (link == nullptr || link->unacknowledged() != 0) return;
    const Result<net::Ticket> sent = transport->send(peer.node, {}, now);
    if (!sent) end_later(peer, sent.error().message());
  }

  void ask(Peer& peer) {
    peer.touched = true;
    peer.heard = now;
    make_contact(peer);
  }

  /// Marks the peer to be dropped at the end of poll().
  void end_later(Peer& peer, std::string why) { peers.end_later(peer, std::move(why)); }

  void drop(Peer& peer, const std::string& why) {
    if (peer.member()) {
      transport->revoke(peer.node);
      keep_out(peer);
    }
    end_talk(peer, why);
  }

  /// Refuses the peer for a while; twice as long each time.
  void keep_out(Peer& peer) {
    ++stats.dropped_peers;
    if (now - peer.admitted_at > options.drop_last) peer.penalty = {};
    peer.penalty = std::clamp(2 * peer.penalty, options.drop_first, options.drop_last);
    peer.until = now + peer.penalty;
    peers.set_state(peer, Peer::State::dropped);
  }

  /// Resets the peer: drops its waiting frames and tells the handler, if anything was exchanged.
  void end_talk(Peer& peer, const std::string& why) {
    const bool said = std::exchange(peer.touched, false) || peer.kept;
    peer.out.clear();
    peer.congested = peer.kept = false;
    peer.end_reason.clear();
    if (is_control(peer)) {
      view = 0;
      run(self_fencing.on_closed(now));  // first: RegisterNode precedes what the handler sends now
      if (said) handler.on_control_reset(why);
    } else if (said) {
      handler.on_peer_reset(peer.node, why);
    }
  }

  void erase(Peer& peer) {
    queues.forget(peer);
    peers.erase(peer);
  }

  /// Ends a dead node for ever: on_node_dead(), and no message from or to it any more. Of very
  /// many deaths the oldest are forgotten.
  void end_for_ever(NodeId node, const std::string& why) {
    if (!peers.note_death(node)) return;
    if (Peer* peer = find(node)) {
      if (peer->member()) transport->revoke(node);
      erase(*peer);
    }
    silence.forget(node);
    tell_silence();
    handler.on_node_dead(node, why);
  }

  // Out.

  /// The peer for a message. Null if the message cannot be sent; on_peer_reset() then follows from
  /// poll(), unless the id is this node's or control's.
  Peer* addressee(NodeId to) {
    // Other nodes' messages contain ids too: a wrong one must not end this node.
    if (to == options.self.id || to == peers.control().node) {
      handler.on_not_sent(std::string("a message for ") +
                          (to == peers.control().node ? "control" : "this node itself") +
                          ", which takes none of that kind, is not sent");
      return nullptr;
    }
    if (Peer* peer = find(to)) return peer;
    const bool is_dead = peers.is_dead(to);
    if (!is_dead && peers.may_wait_for_more()) return &peers.add(to, now + options.unknown_for);
    if (notices.empty() || notices.back().first != to)
      notices.emplace_back(
          to, is_dead ? "node " + to.str() + " is dead" : "too many unknown nodes are waited for");
    return nullptr;
  }

  void send(Peer& peer, Protocol protocol, BlobView frame) {
    peer.touched = true;  // also if the message is dropped, so that a reset reports that
    if (!peer.end_reason.empty()) return;
    if (wire::batched_size(frame.size()) > net::kMaxPayloadSize)
      return end_later(peer, "a message of " + std::to_string(frame.size()) +
                                 " bytes for it fits no Link, which takes " +
                                 std::to_string(net::kMaxPayloadSize));
    const std::size_t most = is_control(peer) ? options.max_control_backlog : options.max_backlog;
    if (peer.out.bytes() + frame.size() > most)
      return end_later(peer, "it takes nothing: " + std::to_string(peer.out.bytes()) +
                                 " bytes wait for it" +
                                 (peer.trouble.empty() ? "" : " (" + peer.trouble + ")"));
    queues.append(peer, protocol, frame);
    ++stats.frames_sent;
  }

  /// Sends a message of SelfFencing ahead of the waiting frames, so that no backlog delays it.
  void send_urgent(Peer& peer, Protocol protocol, BlobView frame) {
    queues.append_urgent(peer, protocol, frame);
    ++stats.frames_sent;
  }

  void pump(Peer& peer) {
    while (!peer.out.empty() && transport->can_send(peer.node, peer.out.next_size())) {
      const Result<net::Ticket> sent = transport->send(peer.node, peer.out.take(), now);
      if (!sent) return end_later(peer, sent.error().message());
      ++stats.messages_sent;
    }
  }

  // SelfFencing.

  void run(const control::SelfFencing::Out& out) {
    for (const control::SelfFencingEvent& event : out) {
      if (const auto* beat = std::get_if<control::SendToControl>(&event)) {
        send_urgent(peers.control(), Protocol::to_control,
                    encode(control::ToControl(beat->message)));
      } else if (const auto* word = std::get_if<control::SendToPeer>(&event)) {
        send_word(*word);
      } else if (const auto* again = std::get_if<control::Reconnect>(&event)) {
        register_node(*again);
      } else if (const auto* exit = std::get_if<control::ExitNow>(&event)) {
        handler.exit_now(exit->why);
      }
    }
  }

  void send_word(const control::SendToPeer& word) {
    Peer* peer = find(word.node);
    if (peer == nullptr || !peer->listens()) return;
    const control::BetweenAgents message =
        std::visit([](const auto& m) { return control::BetweenAgents(m); }, word.message);
    send_urgent(*peer, Protocol::between_agents, encode(message));
  }

  void register_node(const control::Reconnect& again) {
    control::RegisterNode message;
    message.node = options.self;
    message.epoch = again.epoch;
    message.session = session;
    message.number = again.number;
    peers.control().out.clear_urgent();  // this replaces older registrations and heartbeats
    send_urgent(peers.control(), Protocol::to_control,
                encode(control::ToControl(std::move(message))));
  }

  // In.

  void take(net::TransportEvent& event) {
    if (auto* message = std::get_if<net::Message>(&event)) return on_message(*message);
    if (auto* up = std::get_if<net::PeerUp>(&event)) return on_up(up->node);
    if (auto* down = std::get_if<net::PeerDown>(&event)) return on_down(*down);
    if (auto* reset = std::get_if<net::PeerReset>(&event)) return on_reset(reset->node);
    if (auto* lost = std::get_if<net::PeerLost>(&event)) return on_lost(*lost);
    if (auto* join = std::get_if<net::JoinRequest>(&event))
      return transport->refuse_join(join->id, "nodes join at control's door");
    if (std::get_if<net::Refused>(&event) != nullptr) ++stats.refused_strangers;
  }

  void on_up(NodeId node) {
    Peer* peer = find(node);
    if (peer == nullptr) return;
    peer->down_since = peer->unreached_since = kNever;
    peer->trouble.clear();
  }

  void on_down(const net::PeerDown& down) {
    Peer* peer = find(down.node);
    if (peer == nullptr || !peer->member()) return;
    peer->down_since = now;
    peer->unreached_since = std::min(peer->unreached_since, now);
    peer->trouble = down.why;
    if (is_control(*peer)) return run(self_fencing.on_closed(now));
    if (peer->touched) make_contact(*peer);
  }

  void on_reset(NodeId node) {
    Peer* peer = find(node);
    if (peer != nullptr && peer->member())
      end_talk(*peer, "its process is another one, or has given this one up");
  }

  void on_lost(const net::PeerLost& lost) {
    Peer* peer = find(lost.node);
    if (peer == nullptr || !peer->member()) return;
    if (is_control(*peer) && lost.fenced) run(self_fencing.on_refused(lost.error.message(), now));
    keep_out(*peer);
    end_talk(*peer, lost.error.message());
  }

  void on_message(const net::Message& message) {
    Peer* peer = find(message.from);
    if (peer == nullptr || !peer->listens()) return;
    peer->touched = true;
    peer->heard = now;
    ++stats.messages_received;
    const Result<void> read =
        wire::split_batch(message.content.payload, [&](Protocol protocol, BlobView frame) {
          ++stats.frames_received;
          const Result<void> good = is_control(*peer)
                                        ? on_control_frame(protocol, frame, message.content.epoch)
                                        : on_peer_frame(*peer, protocol, frame);
          if (!good) bad(*peer, good.error());
          return peer->end_reason.empty();
        });
    if (!read) bad(*peer, read.error());
  }

  void bad(Peer& peer, const Error& error) {
    ++stats.bad_frames;
    end_later(peer, "it sent what cannot be read: " + error.message());
  }

  Result<void> on_peer_frame(Peer& peer, Protocol protocol, BlobView frame) {
    if (protocol == Protocol::peer) {
      auto message = wire::decode_peer(frame);
      if (!message) return message.error();
      handler.on_peer(peer.node, *message);
      return {};
    }
    if (protocol != Protocol::between_agents)
      return Error(Code::invalid_argument, "words for or of control from an agent");
    const Result<control::BetweenAgents> word = control::decode_between_agents(frame);
    if (!word) return word.error();
    if (std::visit([](const auto& m) { return m.node; }, *word) != peer.node)
      return Error(Code::invalid_argument, "a word in the name of another node");
    if (const auto* ask = std::get_if<control::AskControl>(&*word)) {
      run(self_fencing.on_ask(*ask, now));
    } else {
      run(self_fencing.on_answer(std::get<control::ControlAnswer>(*word), now));
    }
    return {};
  }

  Result<void> on_control_frame(Protocol protocol, BlobView frame, Epoch stamp) {
    if (protocol != Protocol::from_control)
      return Error(Code::invalid_argument, "words of an agent from control");
    Result<control::FromControl> message = control::decode_from_control(frame);
    if (!message) return message.error();
    if (auto* registered = std::get_if<control::Registered>(&*message)) {
      on_registered(*registered, stamp, *message);
    } else if (auto* answer = std::get_if<control::HeartbeatAnswer>(&*message)) {
      run(self_fencing.on_heartbeat_answer(*answer, now));
    } else if (auto* roster = std::get_if<control::Roster>(&*message)) {
      run(self_fencing.on_roster(*roster, now));
    } else if (auto* fence = std::get_if<control::Fence>(&*message)) {
      run(self_fencing.on_fence(*fence, now));
    } else if (auto* nodes = std::get_if<control::ClusterNodes>(&*message)) {
      on_nodes(*nodes);
    } else if (auto* gone = std::get_if<control::NodeIsDead>(&*message)) {
      if (gone->node == options.self.id) {
        run(self_fencing.on_fence({gone->epoch, gone->why}, now));
      } else {
        end_for_ever(gone->node, gone->why);
      }
    } else {
      handler.on_control(*message);
    }
    return {};
  }

  void on_registered(const control::Registered& registered, Epoch stamp,
                     control::FromControl& message) {
    run(self_fencing.on_registered(registered, now));
    const bool taken = registered.session == session && registered.epoch == self_fencing.epoch() &&
                       registered.control_epoch == self_fencing.control_epoch();
    if (!taken || self_fencing.has_exited()) return;
    transport->set_epoch(self_fencing.epoch());
    if (stamp >= registered.control_epoch) {  // refuse an older control process from now on
      control_stamp = registered.control_epoch;
      transport->set_min_epoch(peers.control().node, control_stamp);
    }
    handler.on_control(message);
  }

  void on_nodes(const control::ClusterNodes& nodes) {
    if (nodes.version <= view) return;
    view = nodes.version;
    const bool is_all = nodes.rows.size() < wire::kMaxRows;  // a full list may lack members
    if (is_all) peers.all_absent(now);
    for (const auto& [key, row] :
         peers.newest_rows(nodes, options.self.id, transport->public_key()))
      on_row(*row, key);
    silence.suspect(peers.suspects(nodes, options.self.id));
    handler.on_nodes(nodes);
    tell_silence();
  }

  void tell_silence() {
    for (const Silence::Change& change : silence.take_changes())
      handler.on_silent(change.node, change.silent);
  }

  void on_row(const control::ClusterRow& row, const net::PublicKey& key) {
    const NodeId node = row.description.id;
    if (peers.is_dead(node)) return;
    if (const NodeId former = peers.take_key(key, node))
      end_for_ever(former, "node " + node.str() + " has its key now");
    Peer* peer = find(node);
    if (peer == nullptr) peer = &peers.add(node, now + options.unknown_for);
    peer->absent_since = kNever;
    const bool same = peer->key == key && peer->door == row.description.address;
    const bool has_another = peer->key != key;
    peers.set_key(*peer, key);
    if (peer->member() && has_another) return drop(*peer, "it has another key now");
    peer->door = row.description.address;
    if (peer->state == Peer::State::unknown || (peer->member() && !same)) admit(*peer);
  }

  // Time.

  void tick() {
    run(self_fencing.on_tick(now));
    std::vector<NodeId> strangers, absent;
    for (auto& [node, peer] : peers) {
      if (peer.state == Peer::State::unknown && now >= peer.until) strangers.push_back(node);
      if (peer.state == Peer::State::dropped && now >= peer.until) admit(peer);
      if (is_control(peer)) continue;
      const net::Link* link = transport->link(node);
      silence.link(node, link != nullptr ? link->due_since() : kNever, now);
      if (peer.member() && peer.kept && now - peer.heard >= options.touch_every) ask(peer);
      if (peer.member() && peer.touched && peer.down_since != kNever &&
          now - peer.down_since >= options.unreachable_for)
        end_later(peer, "it could not be reached for " + seconds(options.unreachable_for) + ": " +
                            peer.trouble);
      if (peer.absent_since != kNever && now - peer.absent_since >= options.absent_for &&
          self_fencing.hears_control(now))
        absent.push_back(node);
    }
    for (const NodeId node : strangers) {
      const bool said = find(node)->touched || find(node)->kept;
      silence.forget(node);
      erase(*find(node));
      if (said) handler.on_peer_reset(node, "control knows no node " + node.str());
    }
    for (const NodeId node : absent)
      end_for_ever(node, "control has declared it dead, and lists it no more");
    tell_silence();
  }

  void poll() {
    for (const auto& [node, why] : std::exchange(notices, {})) handler.on_peer_reset(node, why);
    for (const NodeId node : queues.take_relieved()) handler.on_can_send(node);
    events.clear();
    transport->poll(now, events);
    for (net::TransportEvent& event : events) take(event);
    events.clear();
    if (now >= self_fencing.next_tick()) tick();
    for (const NodeId node : peers.take_ending()) {
      Peer* peer = find(node);
      if (peer != nullptr && !peer->end_reason.empty()) drop(*peer, std::string(peer->end_reason));
    }
  }
};

Network::Network(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Network::~Network() = default;

Result<std::unique_ptr<Network>> Network::open(NetworkOptions options, Handler& handler, Time now) {
  auto impl = std::make_unique<Impl>(std::move(options), handler, now);
  if (const Result<void> opened = impl->open(); !opened) return opened.error();
  return std::unique_ptr<Network>(new Network(std::move(impl)));
}

void Network::send(NodeId to, const wire::PeerMessage& message, BlobView payload) {
  if (Peer* peer = impl_->addressee(to))
    impl_->send(*peer, Protocol::peer, impl_->writer.encode(message, payload));
}

std::optional<Error> Network::send_control(const control::ToControl& message) {
  const Blob frame = encode(message);
  if (wire::batched_size(frame.size()) > net::kMaxPayloadSize)
    return Error(Code::invalid_argument, "a message for control of " +
                                             std::to_string(frame.size()) +
                                             " bytes is not sent: it takes " +
                                             std::to_string(net::kMaxPayloadSize) + " at most");
  // Parts of it come from programs unchecked. Control drops a node whose message it cannot decode.
  if (const auto read = control::decode_to_control(frame); !read)
    return Error(
        Code::invalid_argument,
        "a message for control is not sent, which would refuse it: " + read.error().message());
  impl_->send(impl_->peers.control(), Protocol::to_control, frame);
  return std::nullopt;
}

void Network::drop(NodeId node, const std::string& why) {
  if (auto* peer = impl_->find(node)) impl_->end_later(*peer, why);
}

bool Network::is_dead(NodeId node) const {
  return impl_->peers.is_dead(node);
}

bool Network::can_send(NodeId to) const {
  const Peer* peer = impl_->find(to);
  return peer == nullptr || !peer->congested;
}

void Network::keep_in_touch(NodeId node, bool on) {
  Peer* peer = on ? impl_->addressee(node) : impl_->find(node);
  if (peer != nullptr) peer->kept = on;
}

std::vector<NodeId> Network::out_of_reach(Time now, std::size_t most) const {
  return impl_->peers.out_of_reach(now, impl_->options.out_of_reach_after, most);
}

void Network::flush(Time now) {
  impl_->now = now;
  impl_->queues.flush([this](Peer& peer) { impl_->pump(peer); });
}

int Network::fd() const noexcept {
  return impl_->transport->fd();
}

void Network::poll(Time now) {
  impl_->now = now;
  impl_->poll();
}

Time Network::next_deadline() const {
  const Impl& impl = *impl_;
  if (impl.queues.unflushed() || !impl.notices.empty() || impl.queues.has_relieved() ||
      impl.peers.has_ending())
    return Time{};
  return std::min(impl.transport->next_deadline(), impl.self_fencing.next_tick());
}

void Network::on_slept(Time now) {
  impl_->now = now;
  impl_->run(impl_->self_fencing.on_slept(now));
}
bool Network::may_serve(Time now) const {
  return impl_->self_fencing.may_serve(now);
}
Time Network::serves_until() const noexcept {
  return impl_->self_fencing.serves_until();
}
bool Network::hears_control(Time now) const {
  return impl_->self_fencing.hears_control(now);
}
bool Network::has_roster() const noexcept {
  return impl_->self_fencing.has_roster();
}
Epoch Network::epoch() const noexcept {
  return impl_->self_fencing.epoch();
}
Epoch Network::control_epoch() const noexcept {
  return impl_->self_fencing.control_epoch();
}
const control::NodeDescription& Network::self() const noexcept {
  return impl_->options.self;
}
const std::string& Network::door() const noexcept {
  return impl_->transport->door();
}
bool Network::delivered(NodeId to) const {
  const Peer* peer = impl_->find(to);
  if (peer == nullptr) return true;
  const net::Link* link = impl_->transport->link(to);
  return peer->out.empty() && (link == nullptr || link->unacknowledged() == 0);
}
NetworkStats Network::stats() const noexcept {
  return impl_->stats;
}

std::string host_of(const std::string& address) {
  const auto begin = address.find("//");
  const auto end = address.rfind(':');
  if (begin == std::string::npos || end == std::string::npos || end < begin + 2) return "127.0.0.1";
  return address.substr(begin + 2, end - begin - 2);
}

}  // namespace troupe::agent
