#include "troupe/runtime/agent/actor_kills.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {

std::uint64_t ActorKills::kill(const Kill& kill, bool may_restart, std::uint64_t newest,
                               std::uint64_t& next_request) {
  const ActorId actor = kill.actor;
  std::uint64_t request = 0;
  if (jobs_[actor].insert(kill.job).second && kill.job) asked_[request = ++next_request] = kill;
  if (!may_restart) {
    ends_.insert(actor);
    lives_.erase(actor);
    control_.send(control::KillActor{actor, false, 0, kill.job, request});
    return 0;
  }
  // The life is named: sent again to another control, the kill must not end the life that followed.
  std::uint64_t& life = lives_[actor];
  life = std::max(life, newest);
  if (life != 0) {
    control_.send(control::KillActor{actor, true, life, kill.job, request});
  } else if (kill.killer != 0) {
    killers_[actor].push_back(kill.killer);
  }
  return life;
}

std::vector<ProcessIndex> ActorKills::heard_of(ActorId actor, std::uint64_t life) {
  const auto killed = lives_.find(actor);
  if (killed == lives_.end() || life <= killed->second) return {};
  if (std::exchange(killed->second, life) != 0) {
    lives_.erase(killed);
    if (ends_.count(actor) == 0) forget_jobs(actor);
    return {};
  }
  say(actor, true, life);
  auto killers = killers_.extract(actor);
  return killers ? std::move(killers.mapped()) : std::vector<ProcessIndex>();
}

ActorKills::Kill ActorKills::refused(std::uint64_t request) {
  const Kill kill = asked_.extract(request).mapped();
  const auto jobs = jobs_.find(kill.actor);
  if (jobs == jobs_.end()) return kill;
  jobs->second.erase(kill.job);
  if (!jobs->second.empty()) return kill;
  jobs_.erase(jobs);
  ends_.erase(kill.actor);
  lives_.erase(kill.actor);
  killers_.erase(kill.actor);
  return kill;
}

void ActorKills::forget_jobs(ActorId actor) {
  jobs_.erase(actor);
  std::erase_if(asked_, [actor](const auto& one) { return one.second.actor == actor; });
}

void ActorKills::forget(ActorId actor) {
  ends_.erase(actor);
  lives_.erase(actor);
  forget_jobs(actor);
  killers_.erase(actor);
}

void ActorKills::say_ends_again() {
  for (const ActorId actor : ends_) say(actor, false, 0);
}

void ActorKills::say_lives_again() {
  for (const auto& [actor, life] : lives_)
    if (life != 0) say(actor, true, life);
}

/// Sends the kill again, once in the name of each job that killed.
void ActorKills::say(ActorId actor, bool may_restart, std::uint64_t life) {
  for (const JobId job : jobs_[actor]) {
    const auto waiting = std::find_if(asked_.begin(), asked_.end(), [&](const auto& one) {
      return one.second.actor == actor && one.second.job == job;
    });
    const std::uint64_t request = waiting == asked_.end() ? 0 : waiting->first;
    control_.send(control::KillActor{actor, may_restart, life, job, request});
  }
}

}  // namespace troupe::agent
