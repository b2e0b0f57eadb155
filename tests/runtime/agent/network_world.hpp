/// A small cluster for tests of Network, on 127.0.0.1 and in one thread. It has networks that
/// record their effects, and a control that a bare Transport plays.
///
///     FakeControl control;
///     Agent a(control), b(control);
///     drive({&control, &a, &b}, 5s, [&] { return b.network->epoch() != 0; });
#pragma once

#include "troupe/runtime/agent/network.hpp"
#include "troupe/runtime/wire/batch.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace troupe::agent::test {

using namespace std::chrono_literals;

inline Blob text(const std::string& s) {
  const auto* at = reinterpret_cast<const std::byte*>(s.data());
  return Blob(at, at + s.size());
}
inline std::string text(BlobView b) {
  return std::string(reinterpret_cast<const char*>(b.data()), b.size());
}
inline net::CurveKeys copy(const net::CurveKeys& keys) {
  return {keys.public_key, keys.secret_key.copy()};
}

/// An object that the event loop of drive() runs.
struct Driven {
  virtual ~Driven() = default;
  virtual void pass(Time now) = 0;
  virtual int fd() const = 0;
  virtual Time due() const = 0;
};

/// Runs all of them as one event loop until `done` or the limit; sleeps only in poll(2).
inline bool drive(const std::vector<Driven*>& all, Duration limit,
                  const std::function<bool()>& done) {
  const Time end = steady_now() + limit;
  while (true) {
    for (Driven* one : all) one->pass(steady_now());
    if (done()) return true;
    const Time now = steady_now();
    if (now >= end) return false;
    Time due = end;
    std::vector<pollfd> fds;
    for (Driven* one : all) {
      due = std::min(due, one->due());
      fds.push_back({one->fd(), POLLIN, 0});
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(due - now, Duration{}));
    ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
  }
}

/// A bare Transport that sends and receives batches of messages.
struct Speaker : Driven {
  NodeId node = NodeId::random();
  net::CurveKeys keys = net::CurveKeys::generate().value();
  std::unique_ptr<net::Transport> transport;
  std::map<NodeId, Blob> batches;

  void open(const std::string& listen = "tcp://127.0.0.1:*") {
    net::TransportOptions options;
    options.keys = copy(keys);
    options.listen = listen;
    transport = net::Transport::open(std::move(options)).value();
  }
  void say(NodeId to, wire::Protocol protocol, BlobView frame) {
    wire::append_frame(batches[to], protocol, frame);
  }
  virtual void heard(NodeId from, const net::Delivered& content) = 0;
  virtual void on_event(const net::TransportEvent&) {}
  void pass(Time now) override {
    std::vector<net::TransportEvent> events;
    transport->poll(now, events);
    for (const net::TransportEvent& event : events) {
      if (const auto* message = std::get_if<net::Message>(&event))
        heard(message->from, message->content);
      else
        on_event(event);
    }
    for (auto& [to, batch] : std::exchange(batches, {}))
      EXPECT_TRUE(transport->link(to) == nullptr || transport->send(to, std::move(batch), now));
  }
  int fd() const override { return transport->fd(); }
  Time due() const override { return transport->next_deadline(); }
};

/// A stand-in for control: gives epochs, answers heartbeats, and tells every member of all
/// others.
struct FakeControl : Speaker {
  Epoch epoch = 7;
  bool answers = true;  ///< whether it answers heartbeats
  bool lists = true;    ///< whether it tells members of each other
  std::uint64_t version = 0, roster_version = 0;
  std::map<NodeId, control::RegisterNode> members;
  std::map<NodeId, Epoch> epochs;
  NodeId beside;
  std::set<NodeId> not_voting;
  std::map<NodeId, std::vector<control::ToControl>> got;  ///< without heartbeats and registrations
  std::map<NodeId, std::string> order;  ///< R: registration, H: heartbeat, else a letter
  std::map<NodeId, int> beats;

  FakeControl() { open(); }
  /// Replaces the process by a new one, which remembers only the epochs.
  void restart() {
    const std::string door = transport->door();
    transport.reset();
    open(door);
    ++epoch;
    version = roster_version = 0;
    members.clear();
    batches.clear();
    order.clear();
    got.clear();
  }
  void admit(NodeId who, const net::PublicKey& key) {
    transport->admit({.node = who, .key = key, .door = ""});
  }
  void tell(NodeId to, const control::FromControl& message) {
    say(to, wire::Protocol::from_control, encode(message));
  }
  control::ClusterNodes nodes() {
    control::ClusterNodes view;
    view.version = (epoch << 32) + ++version;
    for (const auto& [id, member] : members) {
      control::ClusterRow row;
      row.description = member.node;
      row.epoch = epochs[id];
      row.report.view.id = id;
      row.report.view.name = member.node.name;
      view.rows.push_back(std::move(row));
    }
    return view;
  }
  void tell_nodes() {
    const control::ClusterNodes view = nodes();
    for (const auto& [id, member] : members) tell(id, view);
  }
  void tell_roster() {
    control::Roster roster;
    roster.version = (epoch << 32) + ++roster_version;
    for (const auto& [id, member] : members)
      if (not_voting.count(id) == 0) roster.voters.push_back(id);
    roster.beside_control = beside;
    for (const auto& [id, member] : members) tell(id, roster);
  }
  void declare_dead(NodeId who) {
    members.erase(who);
    for (const auto& [id, member] : members)
      tell(id, control::NodeIsDead{who, epochs[who], "test"});
    tell_nodes();
  }
  void heard(NodeId from, const net::Delivered& content) override {
    ASSERT_TRUE(wire::split_batch(content.payload, [&](wire::Protocol protocol, BlobView frame) {
      EXPECT_EQ(protocol, wire::Protocol::to_control);
      take(from, control::decode_to_control(frame).value());
      return true;
    }));
  }
  void take(NodeId from, const control::ToControl& message) {
    if (const auto* registration = std::get_if<control::RegisterNode>(&message)) {
      order[from] += 'R';
      on_register(from, *registration);
    } else if (const auto* beat = std::get_if<control::Heartbeat>(&message)) {
      order[from] += 'H';
      ++beats[from];
      if (answers) tell(from, control::HeartbeatAnswer{epoch, beat->sequence});
    } else {
      order[from] += 'x';
      got[from].push_back(message);
    }
  }
  void on_register(NodeId from, const control::RegisterNode& message) {
    if (!answers) return;
    Epoch& given = epochs[from];
    if (given == 0) given = epochs.size();
    members[from] = message;
    tell(from, control::Registered{given, epoch, message.session, message.number});
    if (!lists) return;
    tell_roster();
    tell_nodes();
  }
};

/// A Network, and its recorded effects.
struct Agent : Driven, Network::Handler {
  NodeId node = NodeId::random();
  net::CurveKeys keys = net::CurveKeys::generate().value();
  std::unique_ptr<Network> network;
  std::vector<std::pair<NodeId, std::string>> got;  ///< payloads
  std::uint64_t frames = 0;
  bool keep = true;  ///< whether to record payloads in `got`
  std::vector<control::FromControl> from_control;
  std::vector<std::pair<NodeId, std::string>> resets, deaths;
  std::vector<std::string> control_resets, exits;
  std::vector<NodeId> relieved;
  std::set<NodeId> known;
  std::function<void(NodeId, const wire::PeerMessage&, BlobView)> on_frame;
  std::function<void()> when_control_resets;

  explicit Agent(FakeControl& control, NetworkOptions options = {}) { open(control, options); }
  void open(FakeControl& control, NetworkOptions& options) {
    control.admit(node, keys.public_key);
    options.self.id = node;
    options.self.name = "n" + node.str().substr(0, 4);
    options.keys = copy(keys);
    options.control = {control.node, control.keys.public_key, control.transport->door()};
    network = Network::open(std::move(options), *this, steady_now()).value();
  }

  void say(NodeId to, const std::string& words) {
    network->send(to, wire::PullData{1, 0, words.size()}, text(words));
  }
  std::string reset_of(NodeId who) const {
    for (const auto& [id, why] : resets)
      if (id == who) return why;
    return {};
  }

  void pass(Time now) override {
    network->poll(now);
    network->flush(now);
  }
  int fd() const override { return network->fd(); }
  Time due() const override { return network->next_deadline(); }

  void on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& message) override {
    ++frames;
    if (on_frame) on_frame(from, message.message, message.payload);
    if (keep) got.emplace_back(from, text(message.payload));
  }
  void on_control(control::FromControl& message) override { from_control.push_back(message); }
  void on_peer_reset(NodeId who, const std::string& why) override { resets.emplace_back(who, why); }
  void on_control_reset(const std::string& why) override {
    control_resets.push_back(why);
    if (when_control_resets) when_control_resets();
  }
  void on_nodes(const control::ClusterNodes& nodes) override {
    known.clear();
    for (const control::ClusterRow& row : nodes.rows) known.insert(row.description.id);
  }
  void on_node_dead(NodeId who, const std::string& why) override { deaths.emplace_back(who, why); }
  void on_can_send(NodeId who) override { relieved.push_back(who); }
  void exit_now(const std::string& why) override { exits.push_back(why); }
};

/// Drives all until a and b know each other.
inline bool meet(FakeControl& control, Agent& a, Agent& b) {
  return drive({&control, &a, &b}, 5s,
               [&] { return a.known.count(b.node) && b.known.count(a.node); });
}

}  // namespace troupe::agent::test
