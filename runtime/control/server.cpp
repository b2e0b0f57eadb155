#include "troupe/runtime/control/server.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/control/file_store.hpp"
#include "troupe/runtime/control/internal/disk_thread.hpp"
#include "troupe/runtime/control/internal/prober.hpp"
#include "troupe/runtime/control/join.hpp"
#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/rocks_store.hpp"
#include "troupe/runtime/wire/batch.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <set>

namespace troupe::control {

using wire::Protocol;

namespace {

constexpr Duration kLastWrites = std::chrono::seconds(1);
constexpr int kMostPolls = 256;  // polls of the transport in one pass

/// The frames that wait for a node, in batches.
struct Outbox {
  Blob open;                ///< the batch that takes further frames
  std::deque<Blob> closed;  ///< the full batches before it
  std::size_t bytes = 0;    ///< of all batches

  void append(BlobView frame, std::size_t batch) {
    const std::size_t size = wire::batched_size(frame.size());
    if (!open.empty() && open.size() + size > batch) close();
    wire::append_frame(open, Protocol::from_control, frame);
    bytes += size;
  }
  void close() {
    if (!open.empty()) closed.push_back(std::exchange(open, {}));
  }
  Blob take() {
    Blob batch = std::move(closed.front());
    closed.pop_front();
    bytes -= batch.size();
    return batch;
  }
};

Result<std::unique_ptr<Store>> open_store(const std::string& folder) {
  if (is_store_file(folder)) return open_file_store(folder, {});
  if (folder.empty()) return open_memory_store(std::make_shared<MemoryDisk>(), {});
  return open_rocks_store(folder, {});
}

}  // namespace

struct Server::Impl : Service::Out {
  ServerOptions options;
  std::unique_ptr<net::Transport> transport;
  std::unique_ptr<Store> store;
  std::unique_ptr<Service> service;
  std::unique_ptr<internal::DiskThread> disk;
  internal::Prober prober;
  std::map<NodeId, std::string> keys;  ///< of every node that may connect
  std::map<NodeId, Outbox> outboxes;
  std::set<NodeId> waiting;  ///< whose outbox is not empty
  std::map<std::uint64_t, net::PublicKey> joins;
  std::vector<net::TransportEvent> events;
  std::vector<internal::ProbeAnswer> answers;
  Time now{};
  bool ending = false;  ///< the nodes were told that the cluster ends
  ServerStats stats;

  explicit Impl(ServerOptions given)
      : options(std::move(given)), prober(options.probe_timeout), now(steady_now()) {}

  Result<void> open() {
    net::TransportOptions with;
    with.keys = std::move(options.keys);
    with.listen = options.listen;
    with.build_id = options.build_id;
    with.link = options.link;
    with.reconnect_grace = options.reconnect_grace;
    auto opened = net::Transport::open(std::move(with));
    if (!opened) return opened.error();
    transport = std::move(*opened);
    auto stored = open_store(options.data_folder);
    if (!stored) return stored.error();
    store = std::move(*stored);
    transport->set_epoch(store->epoch());
    for (const net::PeerInfo& peer : options.admitted) admit_key(peer.node, peer.key);
    auto recovered = Service::open(*store, options.service, *this, now);
    if (!recovered) return recovered.error();
    service = std::move(*recovered);
    for (const net::PublicKey& key : options.join_keys)
      if (!service->is_spent(key.str())) admit_join(key);
    disk = std::make_unique<internal::DiskThread>(*store);
    return {};
  }

  /// Logs an event that others can cause at will: the first one, and then each time that their
  /// number has doubled. A malicious peer cannot fill the disk with log lines.
  void say_some(std::uint64_t& so_far, const std::string& line) {
    if (std::has_single_bit(++so_far)) say(line + " (" + std::to_string(so_far) + " so far)");
  }

  // Service::Out.

  void send(NodeId to, const FromControl& message) override {
    const Blob frame = encode(message);
    if (fits(frame)) return send_frame(to, frame);
    if (const auto instead = shortened(message)) return send_frame(to, encode(*instead));
    send_frame(to, frame);  // it logs that the message is too large
  }

  static bool fits(BlobView frame) {
    return wire::batched_size(frame.size()) <= net::kMaxPayloadSize;
  }

  /// Returns a smaller answer that fits, or an answer with an error, so that the asker never waits
  /// in vain. nullopt: the message is no such answer.
  static std::optional<FromControl> shortened(const FromControl& message) {
    if (const auto* values = std::get_if<KvReply>(&message)) {
      KvReply reply;
      reply.request = values->request;
      reply.error = Error(Code::invalid_argument,
                          "the answer is larger than a message may be: ask with a longer prefix")
                        .shared_info();
      return reply;
    }
    const auto* list = std::get_if<ListReply>(&message);
    if (list == nullptr) return std::nullopt;
    ListReply reply = *list;
    const auto halve = [&reply](auto& rows) {  // drops the last half, as Service does
      const std::size_t kept = rows.size() / 2;
      reply.left_off += static_cast<std::uint32_t>(rows.size() - kept);
      rows.resize(kept);
    };
    while (!fits(encode(FromControl(reply))) && !reply.dead_nodes.empty()) halve(reply.dead_nodes);
    while (!fits(encode(FromControl(reply))) && !(reply.nodes.empty() && reply.actors.empty() &&
                                                  reply.jobs.empty() && reply.objects.empty())) {
      halve(reply.nodes);
      halve(reply.actors);
      halve(reply.jobs);
      halve(reply.objects);
    }
    return reply;
  }

  void broadcast(const std::vector<NodeId>& to, const FromControl& message) override {
    const Blob frame = encode(message);
    for (const NodeId node : to) send_frame(node, frame);
  }

  void send_frame(NodeId to, BlobView frame) {
    if (keys.count(to) == 0) return;  // dropped or revoked
    if (!fits(frame))
      return say_some(stats.too_large, "a message of " + std::to_string(frame.size()) +
                                           " bytes for node " + to.str() +
                                           " fits no Link message and is not sent");
    Outbox& outbox = outboxes[to];
    outbox.append(frame, options.batch);
    waiting.insert(to);
  }

  void probe(const Probe& probe) override { prober.start(probe, now); }

  void admit(const NodeDescription& node) override {
    if (const auto key = net::PublicKey::parse(node.public_key)) admit_key(node.id, *key);
  }

  void admit_key(NodeId node, const net::PublicKey& key) {
    keys[node] = key.str();
    transport->admit({.node = node, .key = key, .door = {}, .role = net::Role::node});
  }

  void fence(NodeId node, Epoch least) override {
    flush(node);  // its Fence must leave before its connection is refused
    transport->set_min_epoch(node, least);
  }

  void revoke(NodeId node) override {
    transport->revoke(node);
    keys.erase(node);
    outboxes.erase(node);
    waiting.erase(node);
  }

  void say(const std::string& line) override { log_line("%s", line.c_str()); }

  void joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) override {
    if (error)
      transport->refuse_join(request, error->message);
    else
      transport->answer_join(request, encode(JoinAnswer{options.cluster, options.node}));
  }

  void admit_join(const net::PublicKey& key) {
    transport->admit_join(key, now + options.join_keys_last);
  }

  // Out.

  void flush() {
    for (const NodeId node : std::vector<NodeId>(waiting.begin(), waiting.end())) flush(node);
  }

  void flush(NodeId node) {
    const auto at = outboxes.find(node);
    if (at == outboxes.end()) return;
    Outbox& outbox = at->second;
    outbox.close();
    while (!outbox.closed.empty() && transport->can_send(node, outbox.closed.front().size())) {
      if (!transport->send(node, outbox.take(), now)) break;
      ++stats.messages_sent;
    }
    if (outbox.closed.empty()) {
      waiting.erase(node);
    } else if (outbox.bytes > options.max_backlog) {
      drop(node, std::to_string(outbox.bytes) + " bytes wait for it");
    }
  }

  /// Stops hearing the node, so that Membership declares it dead like a silent one.
  void drop(NodeId node, const std::string& why) {
    ++stats.dropped_nodes;
    say("node " + node.str() + " is dropped: " + why);
    revoke(node);
    gone_silent.push_back(node);
  }
  std::vector<NodeId> gone_silent;  ///< for on_closed(), which must not run inside Service::Out

  // In.

  void take(net::TransportEvent& event) {
    if (auto* message = std::get_if<net::Message>(&event)) return on_message(*message);
    if (auto* down = std::get_if<net::PeerDown>(&event)) return service->on_closed(down->node, now);
    if (auto* reset = std::get_if<net::PeerReset>(&event)) return on_reset(reset->node);
    if (auto* lost = std::get_if<net::PeerLost>(&event)) return on_lost(*lost);
    if (auto* join = std::get_if<net::JoinRequest>(&event)) return on_join(*join);
    if (auto* refused = std::get_if<net::Refused>(&event))
      say_some(stats.refused_strangers, "refused " + refused->address + ": " + refused->why);
  }

  void on_reset(NodeId node) {
    outboxes.erase(node);
    waiting.erase(node);
    service->on_reset(node, now);
  }

  void on_lost(const net::PeerLost& lost) {
    if (keys.count(lost.node) == 0) return;  // this server has revoked it
    drop(lost.node, "its Link is at its end: " + lost.error.message());
  }

  void on_join(const net::JoinRequest& join) {
    const Result<JoinAsk> ask = decode_join_ask(join.request);
    if (!ask) return transport->refuse_join(join.id, ask.error().message());
    service->on_join(join.id, join.one_time.str(), ask->node, now);
  }

  void on_message(const net::Message& message) {
    ++stats.messages_received;
    const NodeId from = message.from;
    if (keys.count(from) == 0) return;  // dropped for an earlier message
    std::optional<Error> bad;
    const Result<void> read =
        wire::split_batch(message.content.payload, [&](Protocol protocol, BlobView frame) {
          if (protocol != Protocol::to_control)
            bad = Error(Code::invalid_argument, "words that are not for control");
          else
            bad = on_frame(from, frame);
          return !bad && keys.count(from) != 0;
        });
    if (!read) bad = read.error();
    if (!bad) return;
    ++stats.bad_frames;
    drop(from, "it sent what cannot be read: " + bad->message());
  }

  /// Hands one frame to the service. Returns an error if the sender must be dropped for it.
  std::optional<Error> on_frame(NodeId from, BlobView frame) {
    const Result<ToControl> message = decode_to_control(frame);
    if (!message) {
      if (message.error().code() != Code::unavailable) return message.error();
      say_some(stats.of_later_builds, "node " + from.str() + ": " + message.error().message());
      return std::nullopt;
    }
    if (const auto* registration = std::get_if<RegisterNode>(&*message)) {
      const NodeDescription& node = registration->node;
      if (node.id != from || node.public_key != keys.at(from))
        return Error(Code::invalid_argument, "a registration in the name of another node");
    }
    service->on_message(from, *message, now);
    return std::nullopt;
  }

  // The loop.

  /// Hands in all that has arrived: messages and results of probes.
  void receive() {
    for (int i = 0; i < kMostPolls; ++i) {
      now = steady_now();
      events.clear();
      transport->poll(now, events);
      if (events.empty()) break;
      for (net::TransportEvent& event : events) take(event);
    }
    answers.clear();
    prober.poll(now, answers);
    for (const internal::ProbeAnswer& answer : answers)
      service->on_probe(answer.node, answer.epoch, answer.gone, now);
    tell_silent();
  }

  void tell_silent() {
    for (const NodeId node : std::exchange(gone_silent, {})) service->on_closed(node, now);
  }

  Result<void> advance_disk() {
    if (const auto result = disk->finish()) {
      if (!*result) return result->error();
      ++stats.commits;
      service->finish_commit(now);
    }
    if (service->has_commit()) disk->start(service->begin_commit());
    return {};
  }

  /// Tells every node that the cluster ends.
  void end_cluster() {
    if (std::exchange(ending, true)) return;
    service->end_cluster("the cluster was ended at its head");
    flush();
  }

  /// Writes what messages before the end have changed, for kLastWrites at most. The next control
  /// then does not wait for nodes that have left. Nodes that were told of the end may leave
  /// meanwhile.
  void finish() {
    const Time until = steady_now() + kLastWrites;
    receive();
    while (advance_disk() && (disk->is_busy() || (ending && service->has_listeners())) &&
           steady_now() < until) {
      pollfd entries[] = {{disk->fd(), POLLIN, 0}, {transport->fd(), POLLIN, 0}};
      wait_for(entries, std::chrono::milliseconds(10));
      receive();
      flush();
    }
  }

  /// Does one round. Messages come before the tick, so that no deadline fires for a node whose
  /// message has arrived. Writes of both then go into one commit. flush() comes last, so that all
  /// messages for a node share a batch.
  Result<void> pass() {
    receive();
    now = steady_now();
    if (service->next_tick() <= now) service->on_tick(now);
    if (auto result = advance_disk(); !result) return result;
    flush();
    tell_silent();
    return {};
  }

  /// Waits for events. Returns false when the launcher has closed its end of `until`. A byte of the
  /// launcher says that it ends the cluster.
  bool wait(int until) {
    std::vector<pollfd> entries{
        {until, POLLIN, 0}, {transport->fd(), POLLIN, 0}, {disk->fd(), POLLIN, 0}};
    prober.add_to(entries);
    const Time due =
        std::min({service->next_tick(), transport->next_deadline(), prober.next_deadline()});
    const Duration left =
        std::clamp<Duration>(due - steady_now(), Duration{}, std::chrono::seconds(1));
    wait_for(entries, left);
    if ((entries[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) return true;
    char ignored[256];
    const ssize_t n = recv(until, ignored, sizeof ignored, MSG_DONTWAIT);
    if (n > 0) end_cluster();
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(ServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (auto opened = impl->open(); !opened) return opened.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Result<void> Server::run(int until) {
  do {
    if (auto result = impl_->pass(); !result) return result;
  } while (impl_->wait(until));
  impl_->finish();
  return {};
}

const std::string& Server::door() const noexcept {
  return impl_->transport->door();
}
void Server::admit_join(const net::PublicKey& one_time) {
  impl_->now = steady_now();
  impl_->admit_join(one_time);
}
const Service& Server::service() const noexcept {
  return *impl_->service;
}
ServerStats Server::stats() const noexcept {
  return impl_->stats;
}

}  // namespace troupe::control
