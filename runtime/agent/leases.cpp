#include "troupe/runtime/agent/leases.hpp"

#include "troupe/runtime/agent/resource_demand.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <algorithm>

namespace troupe::agent {
namespace {

using wire::Cases;

/// Marks keys of the agent's own lease requests for find_process(); the other bits are the job's
/// number. A key of the agent without this bit is the life of an actor.
constexpr std::uint64_t kForLineage = std::uint64_t{1} << 63;

bool is_for_lineage(ProcessIndex owner, LeaseKey key) {
  return owner == kSelf && (key.value & kForLineage) != 0;
}

}  // namespace

void Leases::carry_out(scheduling::LeaseEvent& event, Time now) {
  now_ = now;
  std::visit(
      Cases{[&](scheduling::StartWorker& e) { below_.processes.start_worker(e.dedicated, e.job); },
            [&](scheduling::StopWorker& e) { below_.processes.end_worker(e.worker); },
            [&](scheduling::Granted& e) { on_granted(e, now); },
            [&](scheduling::Refused& e) { on_refused(e); },
            [&](scheduling::ReclaimLease& e) {
              if (below_.remote.is_proxy_process(e.owner))
                below_.remote.reclaim_here(e.owner, e.lease);
              else
                reclaim(e.owner, e.lease);
            },
            [&](scheduling::AskWorker& e) {
              // The agent's own leases are never silent.
              if (!below_.out.is_alive(e.worker) || e.owner == kSelf) return;
              told_[e.worker].asked_about.insert(e.owner);
              below_.out.send(e.worker, wire::LeaseReclaim{e.lease, e.owner}, {});
            },
            [&](scheduling::Spilled& e) {
              if (const auto job = below_.processes.job_of(e.owner))
                below_.remote.spilled(e.owner, e.key, e.node, wire_demand(e.demand), job->first,
                                      e.no_faster);
            },
            [&](scheduling::LeaseLost& e) {  // a local owner gets PeerDied
              below_.remote.lease_lost(e.lease);
            }},
      event);
}

void Leases::on_granted(const scheduling::Granted& grant, Time now) {
  // The worker gets this before its first call under the lease: no caller knows of the lease yet.
  const bool serves = below_.out.is_alive(grant.worker);
  if (serves) tell(grant);
  if (is_for_lineage(grant.owner, grant.key)) return serve_lineage(grant, now);
  if (grant.owner == kSelf && !serves) return below_.actors.worker_ended_early(grant.key.value);
  if (grant.owner == kSelf) {
    waiting_lives_.erase(grant.key.value);
    actor_leases_[grant.key.value] = grant.lease;
    return below_.actors.worker_ready(grant.key.value, grant.worker, grant.gpus);
  }
  if (!serves)  // the worker is dying; its burial tells the lease table next
    return below_.remote.request_again(grant.owner, grant.key);
  if (below_.remote.is_proxy_process(grant.owner))
    return below_.remote.granted_here(grant.owner, grant.key, grant.lease, grant.worker,
                                      grant.gpus);
  // The owner is gone: it died, or it is a proxy process whose request was withdrawn meanwhile.
  if (!below_.out.is_alive(grant.owner)) return below_.table.returned(grant.lease, now);
  below_.processes.connect(grant.owner, grant.worker);
  granted(grant.owner, grant.key, grant.lease, grant.worker, grant.gpus);
}

/// Tells the worker what its lease reserves, unless that is what it was told last. A worker that
/// may hand back the owner's calls is told, too.
void Leases::tell(const scheduling::Granted& grant) {
  Told& told = told_[grant.worker];
  wire::ResourceDemand demand = wire_demand(grant.demand);
  const bool was_asked = told.asked_about.erase(grant.owner) != 0;
  if (!has_gpus_ && !was_asked && told.leased == demand) return;
  below_.out.send(grant.worker,
                  wire::LeaseGranted{0, 0, grant.owner, grant.gpus, demand, has_gpus_}, {});
  told.leased = std::move(demand);
}

void Leases::on_refused(const scheduling::Refused& refused) {
  if (is_for_lineage(refused.owner, refused.key))
    below_.lineage.job_over(JobNumber::of(refused.key.value & ~kForLineage), refused.why);
  else if (refused.owner == kSelf)
    below_.actors.no_worker(refused.key.value, Error(Code::infeasible, refused.why));
  else if (below_.remote.is_proxy_process(refused.owner))
    below_.remote.refused_here(refused.owner, refused.key, refused.why);
  else
    below_.out.send(refused.owner, wire::LeaseRefused{refused.key, refused.why}, {});
}

// --- processes of this node

void Leases::on_request(ProcessIndex from, JobNumber job, const wire::RequestLease& message,
                        Time now) {
  // The backlog includes leases that other nodes were asked for.
  const std::uint32_t elsewhere = below_.remote.outstanding(from, message.key);
  const std::uint32_t here = message.backlog - std::min(message.backlog, elsewhere);
  scheduling::ResourceDemand demand = demand_of(message.demand);
  if (message.near) demand.locality.emplace_back(message.near, message.near_bytes);
  below_.table.request(from, message.key, demand, here, now,
                       {.spilled = false, .dedicated = false, .job = job});
  if (message.backlog == 0) below_.remote.withdrawn(from, message.key);
}

void Leases::on_returned(ProcessIndex from, LeaseId lease, Time now) {
  if (below_.remote.lease_returned(from, lease)) return;
  if (below_.table.holder_of(lease) == from || !below_.table.is_under(from, lease))
    below_.table.returned(lease, now);
  else if (below_.table.not_in_use(from, lease, now))
    below_.remote.lease_lost(lease);
}

// --- actors

void Leases::need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand,
                         JobNumber job, Time now) {
  waiting_lives_[life] = job;
  below_.table.request(kSelf, LeaseKey::of(life), demand, 1, now,
                       {.spilled = false, .dedicated = true, .job = job});
}

void Leases::release_worker(std::uint64_t life, Time now) {
  waiting_lives_.erase(life);
  if (const auto lease = actor_leases_.find(life); lease != actor_leases_.end()) {
    below_.table.returned(lease->second, now);
    actor_leases_.erase(lease);
  } else {
    below_.table.request(kSelf, LeaseKey::of(life), {}, 0, now,
                         {.spilled = false, .dedicated = true});
  }
}

std::vector<std::uint64_t> Leases::waiting_lives(JobNumber job) const {
  std::vector<std::uint64_t> lives;
  for (const auto& [life, number] : waiting_lives_)
    if (number == job) lives.push_back(life);
  return lives;
}

bool Leases::has_waiting_life(JobNumber job) const {
  return std::any_of(waiting_lives_.begin(), waiting_lives_.end(),
                     [job](const auto& one) { return one.second == job; });
}

// --- calls of processes that have ended

std::optional<ProcessIndex> Leases::find_process(JobNumber job) {
  if (const auto found = below_.processes.lasting_process(job)) return found;
  scheduling::ResourceDemand demand;
  demand.placement = scheduling::Placement::node;
  demand.node = self_;
  below_.table.request(kSelf, LeaseKey::of(kForLineage | job.value), demand, 1, now_,
                       {.spilled = false, .dedicated = false, .job = job});
  return std::nullopt;
}

/// Gives the job's calls to the worker that was leased for them, and returns the lease. The lease
/// of a worker that has ended is not returned here but at its burial: returned now, the same worker
/// would be granted for the next request at once. That loop would never come to read that the
/// worker is reaped.
void Leases::serve_lineage(const scheduling::Granted& grant, Time now) {
  const JobNumber job = JobNumber::of(grant.key.value & ~kForLineage);
  if (below_.out.is_alive(grant.worker)) {
    below_.lineage.serve(job, grant.worker);
    below_.table.returned(grant.lease, now);
  } else if (const auto other = find_process(job)) {
    below_.lineage.serve(job, *other);
  }
}

// --- leases across nodes

void Leases::granted(ProcessIndex process, LeaseKey key, LeaseId lease, ProcessIndex worker,
                     const std::vector<std::int32_t>& gpus) {
  below_.out.send(process, wire::LeaseGranted{key, lease, worker, gpus}, {});
}

void Leases::reclaim(ProcessIndex process, LeaseId lease) {
  below_.out.send(process, wire::LeaseReclaim{lease}, {});
}

void Leases::job_refused(ProcessIndex process, NodeId node, const std::string& why, Time now) {
  if (const auto job = below_.processes.job_of(process))
    below_.table.job_refused(job->second, node, why, now);
}

void Leases::spill_failed(ProcessIndex process, LeaseKey key, const wire::ResourceDemand& demand,
                          std::uint32_t count, NodeId node, Time now) {
  if (const auto job = below_.processes.job_of(process))
    below_.table.spill_failed(process, key, demand_of(demand), count, now,
                              {.spilled = false, .dedicated = false, .job = job->second}, node);
}

void Leases::gave_back(NodeId node, const wire::ResourceDemand& demand, Time now) {
  below_.table.returned_there(node, demand_of(demand), now);
}

void Leases::request(ProcessIndex proxy_process, LeaseKey key, const wire::ResourceDemand& demand,
                     std::uint32_t backlog, JobId job, bool no_faster, Time now) {
  if (backlog != 0)
    if (const std::string why = below_.processes.why_none_starts(job); !why.empty())
      return below_.remote.refused_here(proxy_process, key, why, true);
  below_.table.request(proxy_process, key, demand_of(demand), backlog, now,
                       {.spilled = true,
                        .dedicated = false,
                        .job = below_.processes.number_of(job),
                        .no_faster = no_faster});
}

}  // namespace troupe::agent
