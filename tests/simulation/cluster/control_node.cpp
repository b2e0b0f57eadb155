/// Simulated control: the real Service with the loop of control/server.cpp played around it, and
/// the faults of its disk.
#include "tests/simulation/cluster/control_node.hpp"

#include "tests/simulation/cluster/cluster.hpp"
#include "troupe/runtime/wire/batch.hpp"

#include <algorithm>

namespace troupe::sim::cluster {
namespace {

using namespace std::chrono_literals;
using wire::Protocol;

constexpr std::uint64_t kTurn = 1, kDisk = 2, kProbe = 1000;
constexpr std::size_t kBatch = 256 << 10;
constexpr std::int64_t kDay = 86'400'000'000'000;

control::StoreOptions store_options() {
  control::StoreOptions options;
  options.identity = SessionId{1, 1};
  return options;
}

}  // namespace

bool ControlDisk::inject(sim::Fault fault, Random& random) {
  switch (fault) {
    case sim::Fault::slow_disk:
      latency = std::chrono::milliseconds(20 + random.below(3000));
      return true;
    case sim::Fault::disk_full:
      memory->set_free_space(Bytes{random.chance(0.7) ? 40ull << 20 : 20ull << 20});
      return true;
    case sim::Fault::torn_write: return end_commit(random, 2);
    case sim::Fault::lost_unsynced: return end_commit(random, 0);
    default: return false;  // bits flip in a copy: see ControlNode::flip_in_copy
  }
}

/// Ends the commit that a dead process left behind. `how`: 0 nothing of it reaches the disk, 1
/// all of it, 2 a part.
bool ControlDisk::end_commit(Random& random, int how) {
  if (!store) return false;
  const std::unique_ptr<control::Store> dying = std::move(store);
  if (how == 2) memory->crash_after(1 + static_cast<int>(random.below(3)));
  if (how != 0) (void)dying->commit(group, control::Need::essential);
  memory->restart();
  return true;
}

/// The machine runs on, so the commit either ends or has not begun.
void ControlDisk::on_process_death() {
  Random random(memory->durable_steps());
  (void)end_commit(random, static_cast<int>(random.below(2)));
}

void ControlDisk::heal() {
  latency = 1ms;
  memory->set_free_space(Bytes{1ull << 40});
}

/// Their ids are the highest, so the order of ids differs from the order of writing.
void ControlDisk::write_ended_jobs(std::size_t count) {
  const auto opened = control::open_memory_store(memory, store_options()).value();
  control::Jobs jobs({});
  const auto write = [&](const control::Jobs::Out& out) {
    (void)opened->commit({&out.writes, 1}, control::Need::essential);
  };
  for (std::size_t n = 1; n <= count; ++n) {
    control::StartJob start;
    start.job.id = JobId{~std::uint64_t{0}, n};
    write(jobs.on_start(start));
    write(jobs.on_finish(start.job.id, static_cast<std::int64_t>(n)));
  }
}

ControlNode::ControlNode(Cluster& cluster, NodeId id) : cluster_(cluster), id_(id) {
  Wire::self = id;
}

/// Leaves the commit in progress to ControlDisk, which decides how much of it reaches the disk.
ControlNode::~ControlNode() {
  ++cluster_.truth.control_deaths;
  service_.reset();
  if (!committing_) return;
  cluster_.truth.mark(Mark::commit_torn);
  cluster_.disk->store = std::move(store_);
  cluster_.disk->group = std::move(group_);
}

void ControlNode::on_start(sim::Env<Packet>& env) {
  env_ = &env;
  if (env.incarnation() > 0 && env.random().chance(cluster_.fault_rate(0.9))) flip_in_copy(env);
  auto opened = control::open_memory_store(cluster_.disk->memory, store_options());
  if (!opened) {
    if (opened.error().code() != Code::no_space)
      cluster_.truth.fail("a healthy store does not open: " + opened.error().message());
    env.exit();
    env_ = nullptr;
    return;
  }
  store_ = std::move(*opened);
  if (env.incarnation() > 0) cluster_.truth.mark(Mark::control_restart);
  net::TransportOptions with;
  with.keys.public_key = key_of(id_);
  with.build_id = "sim";
  with.link = cluster_.link_options();
  {
    const WireScope scope(*this);
    transport_ = net::Transport::open(std::move(with)).value();
  }
  transport_->set_epoch(store_->epoch());
  control::ServiceOptions service;
  service.directory.pace.first = cluster_.plan.restarts_apart;
  if (cluster_.plan.old_jobs != 0) {
    service.jobs.ended_kept = cluster_.plan.old_jobs;
    service.wall_clock = [this] { return 10 * kDay + env_->wall_clock(); };
  }
  auto recovered = control::Service::open(*store_, service, *this, env.now());
  env.check(recovered.ok(), "control cannot recover from its own store");
  if (recovered) service_ = std::move(*recovered);
  cluster_.check_acknowledged(*service_, false);
  arm(1ms);
  env_ = nullptr;
}

/// Flips one bit in a copy of the disk. The copy must either refuse to open, or open without a
/// loss of acknowledged writes and with the same epoch. Writes that no mark acknowledged when
/// power failed may be missing.
void ControlNode::flip_in_copy(sim::Env<Packet>& env) {
  control::Recovery recovery;
  Epoch epoch = 0;
  const auto contents = [&](const control::MemoryDisk& disk, bool& opens) {
    std::map<std::string, std::string> found;
    auto copy =
        control::open_memory_store(std::make_shared<control::MemoryDisk>(disk), store_options());
    opens = copy.ok();
    if (!copy) return found;
    recovery = (*copy)->recovery();
    epoch = (*copy)->epoch();
    const auto scanned = (*copy)->scan(
        "", [&](std::string_view key, std::string_view value) { found.emplace(key, value); });
    env.check(scanned.ok(), "a store that opens cannot be read");
    return found;
  };
  control::MemoryDisk rotten = *cluster_.disk->memory;
  rotten.set_free_space(Bytes{1ull << 40});
  bool opens = false;
  const auto right = contents(rotten, opens);
  const std::uint64_t acknowledged = recovery.commits - recovery.unacknowledged;
  const bool all = recovery.unacknowledged == 0;
  const Epoch next = epoch;
  if (!opens || !rotten.flip_bit()) return;
  cluster_.truth.mark(Mark::bit_flip);
  const auto read = contents(rotten, opens);
  env.check(!opens || read == right || (!all && recovery.commits >= acknowledged),
            "a store with a flipped bit opens and has lost something");
  env.check(!opens || !all || epoch == next, "a store with a flipped bit opens with another epoch");
}

void ControlNode::transmit(Packet packet) {
  const auto to = static_cast<sim::NodeIndex>(packet.to.low);
  env_->send(to, std::move(packet));
}

void ControlNode::arm(Duration after) {
  const Time at = env_->now() + std::max<Duration>(after, 5us);
  if (pass_at_ && *pass_at_ <= at) return;
  pass_at_ = at;
  env_->set_timer(kTurn, at);
}

void ControlNode::on_message(sim::Env<Packet>& env, sim::NodeIndex, Packet packet) {
  if (service_ == nullptr) return;
  env_ = &env;
  if (packet.kind == Packet::Kind::join) {
    if (keys_.count(packet.from) != 0) {
      joins_[++last_join_] = packet.from;
      joined(last_join_, {});
    } else {
      control::NodeDescription node;
      node.id = packet.from;
      node.name = "n" + std::to_string(packet.from.low);
      node.address = "tcp://sim:" + std::to_string(packet.from.low);
      node.public_key = key_of(packet.from).str();
      joins_[++last_join_] = packet.from;
      service_->on_join(last_join_, packet.from.str(), node, env.now());
    }
  } else if (port != nullptr) {
    port->on_packet(packet, env.now());
  }
  arm(Duration(1'000 + env.random().below(50'000)));
  env_ = nullptr;
}

void ControlNode::on_connection(sim::Env<Packet>& env, sim::NodeIndex peer, bool up) {
  if (service_ == nullptr) return;
  env_ = &env;
  if (!up && port != nullptr) {
    port->on_closed(peer, env.now());
    arm(10us);
  }
  env_ = nullptr;
}

void ControlNode::on_timer(sim::Env<Packet>& env, std::uint64_t id) {
  if (service_ == nullptr) return;
  env_ = &env;
  if (id == kDisk) {
    const bool done = store_->commit(group_, control::Need::essential).ok();
    committing_ = false;
    if (!done) {  // no space or no disk is left: the process ends
      env.exit();
    } else {
      service_->finish_commit(env.now());
      arm(5us);
    }
  } else if (id >= kProbe) {
    const auto at = probes_.find(id - kProbe);
    if (at != probes_.end()) {
      const control::Probe probe = at->second;
      probes_.erase(at);
      service_->on_probe(probe.node, probe.epoch, cluster_.is_gone(probe.node), env.now());
      arm(5us);
    }
  } else {
    pass_at_.reset();
    pass();
  }
  env_ = nullptr;
}

/// A record of a kill must stay while anybody can report or ask for its actor. At the end no
/// agent has anything left of any actor, so a record that is still there would stay for ever.
std::string ControlNode::left_in_store() const {
  std::string text;
  for (const char* prefix : {"killed/", "actor/", "name/"}) {
    std::string first;
    (void)store_->scan(prefix, [&](std::string_view key, std::string_view) {
      if (first.empty()) first = key;
    });
    if (!first.empty()) text += " control's store keeps " + first;
  }
  return text;
}

// --- Service::Out

void ControlNode::note(NodeId to, const control::FromControl& message) {
  if (const auto* reply = std::get_if<control::JobReply>(&message))
    if (const auto job = asked_jobs_.find({to, reply->request});
        job != asked_jobs_.end() && !reply->error)
      cluster_.truth.acknowledged_jobs.insert(job->second);
  if (const auto* reply = std::get_if<control::ActorReply>(&message))
    if (reply->created) cluster_.acknowledged(*service_, reply->actor);
  if (const auto* ended = std::get_if<control::JobEnded>(&message))
    cluster_.truth.ended_jobs.insert(ended->job);
}

void ControlNode::send(NodeId to, const control::FromControl& message) {
  if (std::holds_alternative<control::StopActorAt>(message)) cluster_.stop_is_told(to);
  if (std::holds_alternative<control::Registered>(message)) cluster_.taken_in(to);
  if (service_ != nullptr) note(to, message);
  if (keys_.count(to) == 0) return;
  const Blob frame = encode(message);
  Outbox& outbox = outboxes_[to];
  if (!outbox.open.empty() && outbox.open.size() + frame.size() > kBatch)
    outbox.closed.push_back(std::exchange(outbox.open, {}));
  wire::append_frame(outbox.open, Protocol::from_control, frame);
  waiting_.insert(to);
}

void ControlNode::broadcast(const std::vector<NodeId>& to, const control::FromControl& message) {
  if (const auto* dead = std::get_if<control::NodeIsDead>(&message))
    cluster_.declared_dead(dead->node);
  for (const NodeId node : to) send(node, message);
}

void ControlNode::probe(const control::Probe& probe) {
  const std::uint64_t number = ++next_probe_;
  probes_[number] = probe;
  Duration takes = 1ms + Duration(env_->random().below(20'000'000));
  if (env_->random().chance(0.1)) {
    takes += 400ms;
    cluster_.truth.mark(Mark::late_probe);
  }
  env_->set_timer(kProbe + number, env_->now() + takes);
}

void ControlNode::admit(const control::NodeDescription& node) {
  const auto key = net::PublicKey::parse(node.public_key);
  if (!key) return cluster_.truth.fail("a node is admitted without a key");
  keys_[node.id] = key->str();
  transport_->admit({.node = node.id, .key = *key, .door = {}, .role = net::Role::node});
}

void ControlNode::fence(NodeId node, Epoch least) {
  flush(node);
  transport_->set_min_epoch(node, least);
}

void ControlNode::revoke(NodeId node) {
  transport_->revoke(node);
  keys_.erase(node);
  outboxes_.erase(node);
  waiting_.erase(node);
}

void ControlNode::joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) {
  const auto at = joins_.find(request);
  if (at == joins_.end()) return;
  const NodeId node = at->second;
  joins_.erase(at);
  if (error) return;  // the node asks again
  Packet packet;
  packet.kind = Packet::Kind::joined;
  packet.from = id_;
  packet.to = node;
  transmit(std::move(packet));
}

// --- the loop

void ControlNode::flush(NodeId node) {
  const auto at = outboxes_.find(node);
  if (at == outboxes_.end()) return;
  Outbox& outbox = at->second;
  if (!outbox.open.empty()) outbox.closed.push_back(std::exchange(outbox.open, {}));
  while (!outbox.closed.empty() && transport_->can_send(node, outbox.closed.front().size())) {
    // Link refuses messages at random (TROUPE_BUGGIFY). Nothing is lost: the next pass sends it.
    if (!transport_->send(node, Blob(outbox.closed.front()), env_->now())) break;
    outbox.closed.pop_front();
  }
  if (outbox.closed.empty()) waiting_.erase(node);
}

void ControlNode::drop(NodeId node) {
  revoke(node);
  gone_silent_.push_back(node);
}

void ControlNode::take(net::TransportEvent& event) {
  const Time now = env_->now();
  if (auto* message = std::get_if<net::Message>(&event)) {
    const NodeId from = message->from;
    const auto read =
        wire::split_batch(message->content.payload, [&](Protocol protocol, BlobView frame) {
          env_->check(protocol == Protocol::to_control, "words for another than control");
          on_frame(from, frame);
          return keys_.count(from) != 0;
        });
    env_->check(read.ok(), "an agent's batch cannot be read");
  } else if (auto* down = std::get_if<net::PeerDown>(&event)) {
    service_->on_closed(down->node, now);
  } else if (auto* reset = std::get_if<net::PeerReset>(&event)) {
    outboxes_.erase(reset->node);
    waiting_.erase(reset->node);
    service_->on_reset(reset->node, now);
  } else if (auto* lost = std::get_if<net::PeerLost>(&event)) {
    if (keys_.count(lost->node) != 0) drop(lost->node);
  }
}

void ControlNode::on_frame(NodeId from, BlobView frame) {
  const auto message = control::decode_to_control(frame);
  env_->check(message.ok(), "an agent's words cannot be read");
  if (!message) return;
  if (const auto* start = std::get_if<control::StartJob>(&*message))
    asked_jobs_[{from, start->request}] = start->job.id;
  service_->on_message(from, *message, env_->now());
  if (const auto* spawn = std::get_if<control::SpawnActor>(&*message);
      spawn && spawn->again && spawn->spec.detached && service_->actors().awaits_nodes())
    cluster_.spawn_waits(from);
}

void ControlNode::pass() {
  const Time now = env_->now();
  std::vector<net::TransportEvent> events;
  transport_->poll(now, events);
  for (net::TransportEvent& event : events) take(event);
  if (service_->next_tick() <= now) service_->on_tick(now);
  if (!committing_ && service_->has_commit()) {
    group_ = service_->begin_commit();
    committing_ = true;
    env_->set_timer(kDisk, now + cluster_.disk->latency);
    cluster_.commit_begins(cluster_.disk->latency);
  }
  for (const NodeId node : std::vector<NodeId>(waiting_.begin(), waiting_.end())) flush(node);
  for (const NodeId node : std::exchange(gone_silent_, {})) service_->on_closed(node, now);
  const Time due = std::min(service_->next_tick(), transport_->next_deadline());
  arm(std::clamp<Duration>(due - now, 20us, 1s));
}

}  // namespace troupe::sim::cluster
