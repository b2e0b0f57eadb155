#include "troupe/runtime/control/claims.hpp"

namespace troupe::control {

bool Claims::may_tell_of(NodeId from, ActorId actor, std::uint64_t life) const {
  const NodeId host = actors_.host_of(actor, life);
  return !host || host == from;
}

bool Claims::made(NodeId from, ActorId actor) const {
  const auto spec = actors_.spec(actor);
  return !spec || !spec->owner || spec->owner == from;
}

bool Claims::may_make(NodeId from, const SpawnActor& spawn) const {
  return made(from, spawn.spec.id);
}

bool Claims::may_kill(NodeId, const KillActor& kill) const {
  const auto spec = actors_.spec(kill.actor);
  return !spec || spec->detached || !kill.job || !spec->job || spec->job == kill.job;
}

bool Claims::may_start(NodeId from, JobId job) const {
  return may_end(from, job);
}

bool Claims::may_end(NodeId from, JobId job) const {
  const JobRecord* record = jobs_.find(job);
  return record == nullptr || record->node == from;
}

}  // namespace troupe::control
