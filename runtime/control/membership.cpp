#include "troupe/runtime/control/membership.hpp"

#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/internal/amounts.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::control {
namespace {

constexpr std::uint8_t kNodeFormat = 1;
/// Of a node's record with the time that it has to leave.
constexpr std::uint8_t kDrainFormat = 2;
constexpr const char* kNodePrefix = "node/";
constexpr const char* kVotersPrefix = "voters/";
constexpr const char* kTombstonePrefix = "buried/";
constexpr const char* kNodeEpochKey = "epoch/node";

/// Returns a key of fixed width, so that byte order is the order of the numbers.
std::string numbered(const char* prefix, std::uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%016llx", prefix, static_cast<unsigned long long>(number));
  return text;
}

std::string encode(const NodeRecord& record) {
  const NodeDescription& node = record.description;
  RecordWriter out(kDrainFormat);
  out.id(node.id).id(record.session).u64(record.epoch).boolean(record.draining);
  out.i64(record.drain_within.count()).i64(record.drain_by.time_since_epoch().count());
  out.bytes(node.name).bytes(node.address).bytes(node.public_key).boolean(node.beside_control);
  internal::write_amounts(node.resources, node.labels, out);
  return out.take();
}

bool decode(std::string_view bytes, NodeRecord& record) {
  RecordReader in(bytes);
  NodeDescription& node = record.description;
  node.id = in.id<NodeId>();
  record.session = in.id<SessionId>();
  record.epoch = in.u64();
  record.draining = in.boolean();
  if (in.version() == kDrainFormat) {
    record.drain_within = Duration(in.i64());
    record.drain_by = Time(Duration(in.i64()));
  }
  node.name = in.bytes();
  node.address = in.bytes();
  node.public_key = in.bytes();
  node.beside_control = in.boolean();
  internal::read_amounts(in, node.resources, node.labels);
  return in.ok() && (in.version() == kNodeFormat || in.version() == kDrainFormat);
}

/// A live node has registered again this long after control's start. A node that has not may have
/// died with the earlier control: control probes it.
constexpr Duration kRegistersWithin = std::chrono::seconds(1);

}  // namespace

Membership::Membership(MembershipOptions options, Epoch control_epoch, Time now)
    : options_(options), control_epoch_(control_epoch), last_tick_(now), all_heard_since_(now) {
  roster_.version = control_epoch << 32;
}

Result<Membership> Membership::recover(Store& store, MembershipOptions options, Time now) {
  Membership members(options, store.epoch(), now);
  bool readable = true;
  auto read = store.scan(kNodePrefix, [&](std::string_view, std::string_view value) {
    Node node;
    node.heard = now;
    readable = readable && decode(value, node.record);
    node.roster_sent = members.roster_.version;  // it may hold any roster of earlier controls
    members.last_epoch_ = std::max(members.last_epoch_, node.record.epoch);
    members.nodes_.emplace(node.record.description.id, std::move(node));
  });
  if (!read) return read.error();
  read = store.scan(kVotersPrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    VoterList list;
    const std::uint64_t version = in.u64();
    list.beside_control = in.id<NodeId>();
    for (auto n = in.count(16); n > 0; --n) list.voters.push_back(in.id<NodeId>());
    readable = readable && in.ok();
    members.voter_lists_[version] = std::move(list);
  });
  if (!read) return read.error();
  read = store.scan(kTombstonePrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    Dead dead{in.id<NodeId>(), in.id<SessionId>(), {}};
    const Epoch epoch = in.u64();
    dead.public_key = in.bytes();
    readable = readable && in.ok() && in.version() == kNodeFormat;
    members.tombstones_[epoch] = std::move(dead);
  });
  if (!read) return read.error();
  const auto epoch = store.get(kNodeEpochKey);
  if (!epoch) return epoch.error();
  if (*epoch) {
    RecordReader in{std::string_view(**epoch)};
    members.last_epoch_ = std::max(members.last_epoch_, in.u64());
    readable = readable && in.ok();
  }
  if (!readable)
    return Error(
        Code::invalid_argument,
        "a record of a node, a death or of voters cannot be read: it was written by a newer "
        "build");
  if (!members.voter_lists_.empty()) {
    members.roster_.voters = members.voter_lists_.rbegin()->second.voters;
    members.roster_.beside_control = members.voter_lists_.rbegin()->second.beside_control;
  }
  return members;
}

void Membership::write_node(const Node& node, Out& out) const {
  out.writes.put(kNodePrefix + node.record.description.id.str(), encode(node.record));
}

// --- registration ------------------------------------------------------------------------------

Membership::Out Membership::on_register(const RegisterNode& message, Time now) {
  Out out;
  notice_lateness(now);
  const NodeId id = message.node.id;
  const auto at = nodes_.find(id);
  if (message.epoch == 0)
    if (const auto dead = epoch_of_dead(id, message.session)) {
      if (at == nodes_.end()) out.after_sync.emplace_back(FenceProcess{id, *dead});
      return out;  // else another process has taken its place, and must not be fenced
    }
  if (at == nodes_.end()) {
    if (message.epoch != 0)
      refence(id, message.epoch, out);
    else
      add_node(message, out, now);
    return out;
  }
  Node& node = at->second;
  const bool same_process = message.epoch == 0 ? message.session == node.record.session
                                               : message.epoch == node.record.epoch;
  if (same_process) {
    if (node.record.description != message.node) {
      node.record.description = message.node;
      write_node(node, out);
    }
    node.record.session = message.session;
    welcome(node, message.number, true, out, now);
  } else if (message.epoch == 0) {
    declare_dead(id, "a new process has registered in its place", out, now);
    add_node(message, out, now);
  } else {
    refence(id, message.epoch, out);
  }
  return out;
}

void Membership::add_node(const RegisterNode& message, Out& out, Time now) {
  Node node;
  node.record.description = message.node;
  node.record.epoch = ++last_epoch_;
  node.record.session = message.session;
  out.writes.put(kNodeEpochKey, RecordWriter(kNodeFormat).u64(last_epoch_).take());
  write_node(node, out);
  const auto at = nodes_.emplace(message.node.id, std::move(node)).first;
  welcome(at->second, message.number, false, out, now);
  change_roster(out);
}

/// Answers a registration. `again`: the node is known, so it needs the present roster; a new node
/// gets it from change_roster().
void Membership::welcome(Node& node, std::uint64_t number, bool again, Out& out, Time now) {
  const NodeId id = node.record.description.id;
  node.record.registered = true;
  heard(node, out, now);
  out.after_sync.emplace_back(
      SendToAgent{id, Registered{node.record.epoch, control_epoch_, node.record.session, number}});
  out.after_sync.emplace_back(NodeUp{id, node.record.epoch, again, number});
  if (!again) return;
  if (node.record.draining) tell_to_drain(node, out, now);
  all_heard_since_ = now;
  send_roster(node, out);
}

/// Stores the node's death, so that later controls refuse its process.
void Membership::keep_tombstone(const NodeRecord& record, Out& out) {
  const NodeId id = record.description.id;
  const std::string& key = record.description.public_key;
  tombstones_[record.epoch] = {id, record.session, key};
  out.writes.put(
      numbered(kTombstonePrefix, record.epoch),
      RecordWriter(kNodeFormat).id(id).id(record.session).u64(record.epoch).bytes(key).take());
  if (tombstones_.size() <= options_.max_tombstones) return;
  out.writes.del(numbered(kTombstonePrefix, tombstones_.begin()->first));
  tombstones_.erase(tombstones_.begin());
}

std::optional<Epoch> Membership::epoch_of_dead(NodeId id, SessionId session) const {
  const auto at = std::find_if(tombstones_.begin(), tombstones_.end(), [&](const auto& entry) {
    return entry.second.node == id && entry.second.session == session;
  });
  if (at == tombstones_.end()) return std::nullopt;
  return at->first;
}

/// Answers a message of an old epoch with Fence. It may leave at once, since the end of that epoch
/// is durable already.
void Membership::refence(NodeId id, Epoch epoch, Out& out) const {
  out.at_once.emplace_back(
      SendToAgent{id, Fence{epoch, "it was silent for too long, or another took its place"}});
}

// --- signs of life -----------------------------------------------------------------------------

void Membership::heard(Node& node, Out& out, Time now) {
  const NodeId id = node.record.description.id;
  node.heard = patient(now);
  node.closed_since.reset();
  if (node.record.state == NodeState::suspect) {
    node.record.state = NodeState::up;
    out.at_once.emplace_back(NodeHeard{id, node.record.epoch});
  }
  if (node.fencing) {
    node.fencing.reset();
    change_roster(out);
  }
}

Membership::Out Membership::on_heartbeat(const Heartbeat& message, Time now) {
  Out out;
  notice_lateness(now);
  const auto at = nodes_.find(message.node);
  if (at == nodes_.end() || at->second.record.epoch != message.epoch) {
    refence(message.node, message.epoch, out);
    return out;
  }
  Node& node = at->second;
  heard(node, out, now);
  if (message.roster <= roster_.version && message.roster > node.roster_applied) {
    node.roster_applied = message.roster;
    node.roster_low = std::max(node.roster_low, message.roster);
  }
  out.at_once.emplace_back(
      SendToAgent{message.node, HeartbeatAnswer{control_epoch_, message.sequence}});
  if (node.record.registered && node.roster_applied < roster_.version) send_roster(node, out);
  return out;
}

Membership::Out Membership::on_leaving(const Leaving& message, Time now) {
  Out out;
  if (is_current(message.node, message.epoch)) declare_dead(message.node, kHasLeft, out, now);
  return out;
}

Membership::Out Membership::on_closed(NodeId id, Time now) {
  Out out;
  notice_lateness(now);
  const auto at = nodes_.find(id);
  if (at == nodes_.end() || at->second.closed_since) return out;
  closed(at->second, now);
  examine(id, out, now);
  return out;
}

void Membership::closed(Node& node, Time now) {
  node.closed_since = node.next_probe = now;
  node.probe_wait = options_.probe_again;
}

Membership::Out Membership::on_probe(NodeId id, Epoch epoch, bool gone, Time now) {
  Out out;
  const auto at = nodes_.find(id);
  if (gone && is_current(id, epoch) && at->second.closed_since)
    declare_dead(id, "its process is gone", out, now);
  return out;
}

Membership::Out Membership::drain(NodeId id, Duration within, Time now) {
  Out out;
  const auto at = nodes_.find(id);
  if (at == nodes_.end()) return out;
  NodeRecord& record = at->second.record;
  const bool drained = std::exchange(record.draining, true);
  record.drain_within = within;
  record.drain_by = deadline_after(now, within);
  write_node(at->second, out);
  tell_to_drain(at->second, out, now);
  if (!drained) out.after_sync.emplace_back(NodeDraining{id, record.epoch});
  return out;
}

/// Tells the node the time that it has left. A clock that began anew with the host gives it no more
/// than it had.
void Membership::tell_to_drain(const Node& node, Out& out, Time now) {
  const NodeRecord& record = node.record;
  out.after_sync.emplace_back(
      SendToAgent{record.description.id,
                  DrainNode{std::min(record.drain_within, time_left(record.drain_by, now))}});
}

// --- deadlines ---------------------------------------------------------------------------------

/// Adds control's own lateness to `lateness_`. Runs before any use of how long a node was silent.
void Membership::notice_lateness(Time now) {
  const Duration late = now - last_tick_ - options_.tick;
  if (late <= options_.tick) return;
  lateness_ += late;
  last_tick_ += late;
  all_heard_since_ = now;
  if (late >= options_.regularly && std::exchange(judged_, false))
    judges_from_ = patient(now) + options_.regularly;
}

Membership::Out Membership::on_tick(Time now) {
  Out out;
  notice_lateness(now);
  last_tick_ = now;
  next_probe_ = Time::max();
  std::vector<NodeId> ids;
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  for (const NodeId id : ids)
    if (nodes_.count(id) != 0) examine(id, out, now);
  judged_ = judged_ || patient(now) >= judges_from_;
  prune_voter_lists(out);
  for (auto at = dead_since_.begin(); at != dead_since_.end();)
    at = patient(now) - at->second >= options_.carried_on ? dead_since_.erase(at) : std::next(at);
  return out;
}

/// Acts on how long a node has been silent: suspects it, probes its door, fences it and, when it
/// can serve no more, declares it dead (which erases the node).
void Membership::examine(NodeId id, Out& out, Time now) {
  Node& node = nodes_.at(id);
  const Duration silent = patient(now) - node.heard;
  // A process may end while its connection is down already. No close follows then, so the silence
  // must start the probes.
  if (!node.closed_since &&
      (silent >= options_.suspect_after || (!node.record.registered && silent >= kRegistersWithin)))
    closed(node, now);
  if (silent >= options_.regularly || node.closed_since) all_heard_since_ = now;
  if (node.record.state == NodeState::up &&
      (silent >= options_.suspect_after || node.closed_since)) {
    node.record.state = NodeState::suspect;
    out.at_once.emplace_back(NodeSuspect{id, node.record.epoch});
  }
  if (node.closed_since && now >= node.next_probe) {
    node.next_probe = now + node.probe_wait;
    node.probe_wait = std::min(2 * node.probe_wait, options_.probe_interval);
    out.at_once.emplace_back(
        Probe{id, node.record.epoch, node.record.session, node.record.description.address});
  }
  if (node.closed_since) next_probe_ = std::min(next_probe_, node.next_probe);
  if (patient(now) < judges_from_) return;
  if (silent >= options_.fence_after && !node.fencing) begin_fencing(node, out, now);
  if (!node.fencing) return;
  if (!majority_promised(node, now)) {
    node.fencing->majority_since.reset();
  } else if (!node.fencing->majority_since) {
    node.fencing->majority_since = patient(now);
  }
  const bool nobody_carries_it =
      node.fencing->majority_since &&
      patient(now) - *node.fencing->majority_since >= options_.answers_run_out;
  if (silent >= options_.dead_after &&
      (nobody_carries_it || TROUPE_MUTANT("membership.no_majority_needed")))
    declare_dead(id, "it was silent for 10 s", out, now);
  else if (silent >= options_.carried_on)
    declare_dead(id, "it was silent for 65 s, and most of the cluster with it", out, now);
}

void Membership::begin_fencing(Node& node, Out& out, Time) {
  node.fencing = Fencing{};
  change_roster(out);
  node.fencing->version = roster_.version;
}

/// Returns whether this voter can no longer carry the fenced node: it has applied a roster that
/// names the node, or it is dead and its last answers have expired.
bool Membership::promised(NodeId voter, const Node& fenced, Time now) const {
  if (voter == fenced.record.description.id) return false;
  const auto at = nodes_.find(voter);
  if (at != nodes_.end()) return at->second.roster_applied >= fenced.fencing->version;
  // The latest death of this voter. A death that is no longer recorded was over carried_on ago.
  const auto next = dead_since_.upper_bound({voter, ~Epoch{0}});
  if (next == dead_since_.begin() || std::prev(next)->first.first != voter) return true;
  return patient(now) - std::prev(next)->second >= options_.answers_run_out;
}

bool Membership::is_majority(const VoterList& list, const Node& fenced, Time now) const {
  std::size_t count = 0;
  for (const NodeId voter : list.voters) count += promised(voter, fenced, now) ? 1u : 0u;
  const std::size_t all = list.voters.size();
  return 2 * count > all ||
         (2 * count == all && list.beside_control && promised(list.beside_control, fenced, now));
}

/// Returns whether a majority has promised in every voter list that the fenced node may hold.
bool Membership::majority_promised(const Node& fenced, Time now) const {
  if (fenced.roster_sent == 0) return true;
  auto from = voter_lists_.upper_bound(fenced.roster_low);
  if (from != voter_lists_.begin()) --from;
  for (auto at = from; at != voter_lists_.end() && at->first <= fenced.roster_sent; ++at)
    if (!is_majority(at->second, fenced, now)) return false;
  return true;
}

void Membership::declare_dead(NodeId id, const std::string& why, Out& out, Time now) {
  const auto at = nodes_.find(id);
  const Epoch epoch = at->second.record.epoch;
  out.writes.del(kNodePrefix + id.str());
  keep_tombstone(at->second.record, out);
  out.after_sync.emplace_back(SendToAgent{id, Fence{epoch, why}});
  out.after_sync.emplace_back(NodeDead{id, epoch, why});
  nodes_.erase(at);
  dead_since_[{id, epoch}] = patient(now);
  change_roster(out);
}

// --- roster ------------------------------------------------------------------------------------

/// Returns the oldest members. The agent beside control is always among them.
Membership::VoterList Membership::choose_voters() const {
  std::vector<std::pair<Epoch, NodeId>> by_age;
  VoterList list;
  for (const auto& [id, node] : nodes_) {
    const bool beside = node.record.description.beside_control;
    if (beside) list.beside_control = id;
    by_age.emplace_back(beside ? 0 : node.record.epoch, id);
  }
  const std::size_t count = std::min(by_age.size(), options_.max_voters);
  std::partial_sort(by_age.begin(), by_age.begin() + static_cast<std::ptrdiff_t>(count),
                    by_age.end());
  for (std::size_t i = 0; i < count; ++i) list.voters.push_back(by_age[i].second);
  std::sort(list.voters.begin(), list.voters.end());
  return list;
}

/// Makes a new roster version, with the voters and fenced nodes as they are now, and sends it.
void Membership::change_roster(Out& out) {
  ++roster_.version;
  roster_.fenced.clear();
  for (const auto& [id, node] : nodes_)
    if (node.fencing) roster_.fenced.emplace_back(id, node.record.epoch);
  for (const auto& [life, since] : dead_since_) roster_.fenced.push_back(life);
  std::sort(roster_.fenced.begin(), roster_.fenced.end());
  VoterList list = choose_voters();
  const bool new_list =
      list.voters != roster_.voters || list.beside_control != roster_.beside_control;
  if (new_list) {
    roster_.voters = list.voters;
    roster_.beside_control = list.beside_control;
    RecordWriter record(kNodeFormat);
    record.u64(roster_.version).id(list.beside_control).u64(list.voters.size());
    for (const NodeId voter : list.voters) record.id(voter);
    out.writes.put(numbered(kVotersPrefix, roster_.version), record.take());
    voter_lists_[roster_.version] = std::move(list);
  }
  // All nodes must know the voters. Only the voters must know the fenced nodes at once; the others
  // get the roster after their next heartbeat.
  for (auto& [id, node] : nodes_) {
    const bool votes = std::binary_search(roster_.voters.begin(), roster_.voters.end(), id);
    if (node.record.registered && (new_list || votes)) send_roster(node, out);
  }
}

/// Sends the roster after the sync: a voter list must be durable before an agent can act on it.
void Membership::send_roster(Node& node, Out& out) {
  if (node.roster_low == 0 && node.roster_sent == 0) node.roster_low = roster_.version;
  node.roster_sent = roster_.version;
  out.after_sync.emplace_back(SendToAgent{node.record.description.id, roster_});
}

/// Drops the voter lists that no node can hold. The list that was in force at the lowest roster
/// version of any node stays.
void Membership::prune_voter_lists(Out& out) {
  if (voter_lists_.size() < 2) return;
  std::uint64_t low = roster_.version;
  for (const auto& [id, node] : nodes_) low = std::min(low, node.roster_low);
  auto keep = voter_lists_.upper_bound(low);
  if (keep != voter_lists_.begin()) --keep;
  for (auto at = voter_lists_.begin(); at != keep; at = voter_lists_.erase(at))
    out.writes.del(numbered(kVotersPrefix, at->first));
}

// --- observe -----------------------------------------------------------------------------------

bool Membership::is_current(NodeId id, Epoch epoch) const {
  const auto at = nodes_.find(id);
  return at != nodes_.end() && at->second.record.epoch == epoch;
}

std::optional<NodeRecord> Membership::find(NodeId id) const {
  const auto at = nodes_.find(id);
  if (at == nodes_.end()) return std::nullopt;
  return at->second.record;
}

std::vector<NodeRecord> Membership::nodes() const {
  std::vector<NodeRecord> all;
  for (const auto& [id, node] : nodes_) all.push_back(node.record);
  return all;
}

}  // namespace troupe::control
