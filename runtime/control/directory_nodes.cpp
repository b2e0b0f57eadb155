/// The part of Directory that hears from nodes: what each hosts, and which died or registered again.
#include "troupe/runtime/control/directory.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <algorithm>

namespace troupe::control {

Directory::Out Directory::on_node_dead(NodeId node, Epoch epoch, const std::string& why, Time now) {
  Out out;
  const Error cause(Code::worker_died, "its node " + node.str() + " died: " + why,
                    Outcome::unknown);
  std::vector<ActorId> ids;
  for (auto& [id, actor] : actors_) {
    actor.watchers.erase(node);
    if (actor.node == node && actor.epoch == epoch && actor.state != ActorState::dead)
      ids.push_back(id);
  }
  unknown_.node_gone(node);
  for (const ActorId id : ids) {
    Actor& actor = actors_.at(id);
    const bool lived = actor.state == ActorState::alive || actor.only_ended;
    fail(actor, cause.message(), cause, lived, out, now);
  }
  // The dead node needs no answers, and no other process could use the actors that it asked for.
  refuse(deferred_.take_if([node](const SpawnActor& spawn, bool waits_for_name) {
    return waits_for_name && spawn.from == node;
  }),
         cause, out);
  deferred_.node_gone(node);
  on_reset(node);
  on_registered(node, 0);  // a dead node repeats no spawns
  registrations_.erase(node);
  node_spoke({node, epoch, control_epoch_, {}}, {}, {}, out);
  stop_awaiting(node, epoch, out, now);
  answer_waiting(out, now);
  look_at_ending_jobs(out);
  return out;
}

Directory::Out Directory::on_node_hosts(const NodeHosts& message, Time now) {
  Out out;
  const NodeId node = message.node;
  const Epoch epoch = message.epoch;
  if (message.control_epoch != control_epoch_ && !TROUPE_MUTANT("directory.hosts_of_old_control"))
    return out;
  std::set<ActorId> there, ended;
  for (const HostedActor& actor : message.actors) {
    there.insert(actor.spec.id);
    if (actor.ended) ended.insert(actor.spec.id);
    adopt(actor, node, epoch, out, now);
  }
  // An ActorGone may have been lost with the earlier connection.
  std::vector<ActorId> lost;
  for (const auto& [id, actor] : actors_)
    if (actor.state == ActorState::alive && actor.node == node && actor.epoch == epoch &&
        there.count(id) == 0)
      lost.push_back(id);
  const Error without(Code::worker_died, "its node registered again without it", Outcome::unknown);
  for (const ActorId id : lost) fail(actors_.at(id), without.message(), without, true, out, now);
  node_spoke(message, std::move(there), std::move(ended), out);
  stop_awaiting(node, epoch, out, now);
  answer_waiting(out, now);
  look_at_ending_jobs(out);
  return out;
}

/// Takes one life of NodeHosts into the table, or stops it if the actor is dead or has a later
/// life.
void Directory::adopt(const HostedActor& hosted, NodeId node, Epoch epoch, Out& out, Time now) {
  const ActorId id = hosted.spec.id;
  if (Tombstone* const killed = tombstones_.find(id)) {
    Tombstone& tombstone = *killed;
    if (hosted.ended) tombstone.reporters.insert(node);
    if (hosted.incarnation >= tombstone.life && (!hosted.ended || tombstone.life != 0)) {
      tombstone.node = hosted.ended ? NodeId{} : node;
      tombstone.epoch = epoch;
      tombstone.life = hosted.incarnation;
    }
    const char* why = tombstone.gracefully ? kUnheld : kKilled;
    if (!hosted.ended)
      out.after_sync.emplace_back(
          StopActorAt{node, epoch, id, hosted.incarnation, tombstone.gracefully, why, true});
    if (actors_.count(id) != 0) return;
    Actor& actor = actors_[id];
    actor.spec = std::make_shared<const ActorSpec>(hosted.spec);
    actor.incarnation = hosted.incarnation;
    take_unknown(actor);
    mark_dead(actor, why, std::nullopt, out);
    return;
  }
  const auto at = actors_.find(id);
  if (at != actors_.end()) {
    Actor& known = at->second;
    if (hosted.ended && known.state != ActorState::dead) known.reporters.insert(node);
    const bool same = known.incarnation == hosted.incarnation && known.node == node;
    if (same && known.state != ActorState::dead) {  // the node has only registered again
      known.started_once = known.started_once || hosted.worker != 0;
      if (!hosted.ended && known.killed_life >= known.incarnation)
        stop(known, kKilled, out, Stop::may_restart);  // the first StopActorAt may be lost
      return;
    }
    if (known.state == ActorState::dead || known.incarnation >= hosted.incarnation) {
      if (!hosted.ended)
        out.after_sync.emplace_back(StopActorAt{node, epoch, id, hosted.incarnation, false,
                                                "control knows it as dead or living elsewhere",
                                                known.state == ActorState::dead});
      return;
    }
    if (!known.only_ended) stop(known, "a later life of it was found", out, Stop::may_restart);
  }
  Actor& actor = actors_[id];
  forget_due(actor);
  actor.spec = std::make_shared<const ActorSpec>(hosted.spec);
  const bool lived = hosted.worker != 0;  // else it is being made
  actor.started_once = lived || hosted.restarts != 0;
  actor.only_ended = hosted.ended;
  if (hosted.ended) actor.reporters.insert(node);
  actor.end.reset();
  actor.state = lived && !hosted.ended ? ActorState::alive
                : actor.started_once   ? ActorState::restarting
                                       : ActorState::placing;
  actor.incarnation = hosted.incarnation;
  actor.node = node;
  actor.epoch = epoch;
  actor.worker = hosted.worker;
  actor.restarts.assign(std::min<std::size_t>(hosted.restarts, 1000), now);
  actor.pace = {};
  actor.pace.begins();
  if (lived) actor.pace.lives(now);
  actor.trouble.reset();
  const UnknownActors::Asked asked = take_unknown(actor);
  tell(actor, out);
  const std::uint64_t killed_life =
      std::max(std::exchange(actor.killed_life, 0), asked.killed_life);
  if (asked.killed)
    out.append(on_kill(id, false, now));
  else if (hosted.ended)
    actor.killed_life = killed_life;
  else if (killed_life >= hosted.incarnation)
    out.append(on_kill(id, true, now, killed_life));
}

/// Ends the wait for a node. After the last one resolve_unclaimed() runs.
void Directory::stop_awaiting(NodeId node, Epoch epoch, Out& out, Time now) {
  if (awaited_.erase({node, epoch}) != 0 && awaited_.empty()) resolve_unclaimed(out, now);
}

Directory::Out Directory::start() {
  Out out;
  if (awaited_.empty()) resolve_unclaimed(out, Time{});  // the time matters only for ended lives
  return out;
}

/// Runs when no node is awaited: an actor that no node hosts is lost. Detached actors begin a new
/// life, ends that waited are judged, and names of unknown actors are free again.
void Directory::resolve_unclaimed(Out& out, Time now) {
  tombstones_.drop_unneeded(out.writes);
  for (auto& [id, actor] : actors_) {
    if (actor.state != ActorState::pending) continue;
    if (const auto end = std::exchange(actor.end, std::nullopt)) {
      fail(actor, end->first, end->second, true, out, now);
      continue;
    }
    actor.started_once = true;  // it may have had a life that no node remembers
    place(actor, out);
  }
  for (auto name = names_.begin(); name != names_.end();) {
    if (actors_.count(name->second) != 0) {
      ++name;
      continue;
    }
    drop_name(name->first, out.writes);
    name = names_.erase(name);
  }
}

/// Drops the node as reporter and maker of actors that its complete NodeHosts shows it is not.
/// `there`: the actors in the message; `ended`: those of them with a life that ended there. A
/// NodeHosts of an earlier registration than the last says nothing about repeated spawns.
void Directory::node_spoke(const NodeHosts& message, std::set<ActorId> there,
                           std::set<ActorId> ended, Out& out) {
  const auto last = registrations_.find(message.node);
  const bool has_asked = last == registrations_.end() || message.number >= last->second;
  const SpokenHosts hosts{message.node, message.epoch, std::move(there), std::move(ended),
                          has_asked};
  for (auto& [id, actor] : actors_) {
    if (hosts.ended.count(id) == 0) actor.reporters.erase(hosts.node);
    if (has_asked && actor.maker.spoke(hosts.node)) actor.maker = {};
  }
  tombstones_.node_spoke(hosts, awaits_nodes(), out.writes);
  free_names(out);
}

void Directory::on_registered(NodeId node, std::uint64_t number) {
  registrations_[node] = number;
  for (auto& [id, actor] : actors_)
    if (actor.maker.node == node) actor.maker.asked = false;
  tombstones_.on_registered(node);
}

void Directory::on_reset(NodeId node) {
  tombstones_.on_reset(node);
}

}  // namespace troupe::control
