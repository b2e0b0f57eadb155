/// The part of Directory that ends the actors of ended jobs.
#include "troupe/runtime/control/directory.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe::control {
namespace {

constexpr const char* kJobEnded = "its job has ended";

Error of_ended_job(JobId job) {
  return Error(Code::cancelled, "the actor's job " + job.str() + " has ended",
               Outcome::not_executed);
}

}  // namespace

bool Directory::belongs_to(const ActorSpec& spec, JobId job) {
  return spec.job == job && !spec.detached;
}

/// Refuses a spawn of a job that is ending; returns whether it did.
bool Directory::is_of_ending_job(const SpawnActor& message, Out& out) const {
  const ActorSpec& spec = message.spec;
  if (!ending_jobs_.has(spec.job) || spec.detached || actors_.count(spec.id) != 0) return false;
  reply_error(message, of_ended_job(spec.job), out);
  return true;
}

/// Refuses the job's spawns that wait. A detached one is refused only when it waits for a name,
/// since its caller has ended.
void Directory::refuse_spawns(JobId job, Out& out) {
  refuse(deferred_.take_if([job](const SpawnActor& spawn, bool waits_for_name) {
    return spawn.spec.job == job && (!spawn.spec.detached || waits_for_name);
  }),
         of_ended_job(job), out);
}

/// Makes the actor dead now, and kills its process if it has one.
void Directory::end_with_job(Actor& actor, Out& out) {
  actor.maker = {};  // a repeated spawn is refused, so it needs no tombstone
  stop(actor, kJobEnded, out);
  mark_dead(actor, kJobEnded, std::nullopt, out);
}

std::set<ActorId> Directory::actors_of(JobId job) const {
  std::set<ActorId> left;
  for (const auto& [id, actor] : actors_)
    if (belongs_to(*actor.spec, job) && !is_over(id, actor)) left.insert(id);
  return left;
}

/// Returns whether the actor is dead and control has heard that its process has ended.
bool Directory::is_over(ActorId id, const Actor& actor) const {
  return actor.state == ActorState::dead && !tombstones_.may_live(id);
}

Directory::Out Directory::on_job_ending(JobId job, Time now) {
  Out out;
  if (ending_jobs_.has(job)) return out;
  refuse_spawns(job, out);
  ending_jobs_.begin(job, actors_of(job), now);
  look_at_ending_job(job, out);
  return out;
}

/// Answers JobIdle if none of the job's actors is left and no node is awaited.
void Directory::look_at_ending_job(JobId job, Out& out) {
  if (!ending_jobs_.left(job).empty() || !awaited_.empty()) return;
  ending_jobs_.forget(job);
  out.after_sync.emplace_back(JobIdle{job});
}

void Directory::look_at_ending_jobs(Out& out) {
  for (const auto& [job, left] : ending_jobs_.all()) {
    ending_jobs_.left(job) = actors_of(job);
    look_at_ending_job(job, out);
  }
}

/// Takes the actor off its ending job if it is over. Runs after every change that may end an actor.
void Directory::may_be_over(ActorId id, Out& out) {
  if (ending_jobs_.empty()) return;
  const auto at = actors_.find(id);
  if (at == actors_.end() || !is_over(id, at->second)) return;
  const JobId job = at->second.spec->job;
  if (!ending_jobs_.has(job) || ending_jobs_.left(job).erase(id) == 0) return;
  look_at_ending_job(job, out);
}

void Directory::end_jobs(Out& out, Time now) {
  for (const auto& [job, left] : ending_jobs_.all()) {
    bool ends = false;
    for (const ActorId id : left) {
      ends = ends || tombstones_.may_live(id);
      if (actors_.count(id) == 0) ending_jobs_.left(job).erase(id);  // forgotten: dead_kept
    }
    const EndingJobs::Next next = ending_jobs_.look(job, ends, now);
    if (next == EndingJobs::Next::wait) continue;
    const bool kills = next == EndingJobs::Next::kill_all;
    for (const ActorId id : left) {
      const auto at = actors_.find(id);
      if (at != actors_.end() && at->second.state != ActorState::dead) {
        if (kills)
          end_with_job(at->second, out);
        else
          end(at->second, Stop::gracefully, out);
      } else if (const Tombstone* told = tombstones_.find(id);
                 kills && told != nullptr && told->node) {
        out.after_sync.emplace_back(
            StopActorAt{told->node, told->epoch, id, told->life, false, kJobEnded, true});
      }
    }
    if (!kills || !ending_jobs_.has(job)) continue;
    ending_jobs_.forget(job);
    out.after_sync.emplace_back(JobIdle{job});
  }
}

Directory::Out Directory::on_job_ended(JobId job) {
  Out out;
  ending_jobs_.forget(job);
  refuse_spawns(job, out);
  std::vector<ActorId> ids;
  for (const auto& [id, actor] : actors_)
    if (belongs_to(*actor.spec, job) && actor.state != ActorState::dead) ids.push_back(id);
  for (const ActorId id : ids) end_with_job(actors_.at(id), out);
  return out;
}

}  // namespace troupe::control
