/// Node's carrying out of what LeaseTable, ReferenceTable and ActorHost decide.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/agent/resource_demand.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <csignal>
#include <utility>

namespace troupe::agent {

using wire::Cases;

// --- leases

void Node::carry_out_leases() {
  for (auto events = leases_.take_events(); !events.empty(); events = leases_.take_events())
    for (auto& event : events)
      std::visit(Cases{[&](scheduling::StartWorker& e) { start_worker(e.dedicated, e.job); },
                       [&](scheduling::StopWorker& e) { end_worker(e.worker); },
                       [&](scheduling::Granted& e) { on_granted(e); },
                       [&](scheduling::Refused& e) { on_refused(e); },
                       [&](scheduling::ReclaimLease& e) {
                         if (remote_.is_proxy_process(e.owner))
                           remote_.reclaim_here(e.owner, e.lease);
                         else
                           reclaim(e.owner, e.lease);
                       },
                       [&](scheduling::AskWorker& e) {
                         if (Process* worker = find(e.worker); worker != nullptr) ask(*worker, e);
                       },
                       [&](scheduling::Spilled& e) {
                         Process* owner = find(e.owner);
                         if (owner != nullptr)
                           remote_.spilled(e.owner, e.key, e.node, wire_demand(e.demand),
                                           owner->job);
                       },
                       [&](scheduling::LeaseLost& e) {  // a local owner gets PeerDied
                         remote_.lease_lost(e.lease);
                       }},
                 event);
}

void Node::on_granted(const scheduling::Granted& grant) {
  // The worker gets this before its first call under the lease: no caller knows of the lease yet.
  Process* worker = find(grant.worker);
  if (worker != nullptr) tell_lease(*worker, grant);
  if (grant.owner == kSelf && (grant.key.value & kForLineage) != 0) return serve_lineage(grant);
  if (grant.owner == kSelf && worker == nullptr) return actors_.worker_ended_early(grant.key.value);
  if (grant.owner == kSelf) {
    waiting_lives_.erase(grant.key.value);
    actor_leases_[grant.key.value] = grant.lease;
    return actors_.worker_ready(grant.key.value, grant.worker, grant.gpus);
  }
  if (worker == nullptr)  // the worker is dying; bury() tells the lease table next
    return remote_.request_again(grant.owner, grant.key);
  if (remote_.is_proxy_process(grant.owner))
    return remote_.granted_here(grant.owner, grant.key, grant.lease, grant.worker, grant.gpus);
  Process* owner = find(grant.owner);
  // The owner is gone: it died, or it is a proxy process whose request was withdrawn meanwhile.
  if (owner == nullptr) return leases_.returned(grant.lease, steady_now());
  connect(*owner, *worker);
  send(*owner, wire::LeaseGranted{grant.key, grant.lease, grant.worker, grant.gpus});
}

/// Asks the worker for a lease whose owner is silent. The agent's own leases are never silent.
void Node::ask(Process& worker, const scheduling::AskWorker& question) {
  if (question.owner == kSelf) return;
  worker.asked_about.insert(question.owner);
  send(worker, wire::LeaseReclaim{question.lease, question.owner});
}

/// Takes a lease back from its owner, or from its worker in the place of an owner that is silent.
void Node::on_lease_returned(const Process& from, LeaseId lease) {
  if (remote_.lease_returned(from.index, lease)) return;
  const Time now = steady_now();
  if (leases_.holder_of(lease) == from.index || !leases_.is_under(from.index, lease))
    leases_.returned(lease, now);
  else if (leases_.not_in_use(from.index, lease, now))
    remote_.lease_lost(lease);
}

/// Tells the worker what its lease reserves, unless that is what it was told last. On a node with
/// GPUs it is told each time, since the devices may differ. A worker that may hand back the owner's
/// calls is told, too.
void Node::tell_lease(Process& worker, const scheduling::Granted& grant) {
  wire::ResourceDemand demand = wire_demand(grant.demand);
  const bool has_devices = options_.gpus > 0;
  const bool was_asked = worker.asked_about.erase(grant.owner) != 0;
  if (!has_devices && !was_asked && worker.leased == demand) return;
  send(worker, wire::LeaseGranted{0, 0, grant.owner, grant.gpus, demand, has_devices});
  worker.leased = std::move(demand);
}

void Node::on_refused(const scheduling::Refused& refused) {
  if (refused.owner == kSelf && (refused.key.value & kForLineage) != 0)
    lineage_cache_.job_over(JobNumber::of(refused.key.value & ~kForLineage), refused.why);
  else if (refused.owner == kSelf)
    actors_.no_worker(refused.key.value, Error(Code::infeasible, refused.why));
  else if (remote_.is_proxy_process(refused.owner))
    remote_.refused_here(refused.owner, refused.key, refused.why);
  else if (Process* owner = find(refused.owner))
    send(*owner, wire::LeaseRefused{refused.key, refused.why});
}

void Node::send_notices() {
  for (const objectstore::Notice& notice : host_->take_notices()) {
    for (auto& [index, process] : processes_) {
      switch (notice.kind) {
        case objectstore::Notice::Kind::recycle:
          if (process->introduced && process->store_index == notice.process)
            send(*process, wire::Recycle{notice.slot, notice.generation});
          break;
        case objectstore::Notice::Kind::forget_extent:
          send(*process, wire::Forget{false, notice.extent.value});
          break;
        case objectstore::Notice::Kind::forget_segment:
          send(*process, wire::Forget{true, notice.process});
          break;
      }
    }
  }
}

// --- ReferenceTable::Out

void Node::ready(ProcessIndex process, ObjectId object, const wire::Value& value,
                 BlobView payload) {
  if (process == kSelf) return replica_host_.replicas().arrived(object, value);
  if (const auto node = remote_.node_of(process))
    return network_->send(*node, owners_.answer_of(object, value), payload);
  NodeId holder;
  if (value.kind == wire::Value::Kind::remote)
    if (const auto owner = references_.owner_of(object))
      holder = remote_.node_of(*owner).value_or(NodeId{});
  if (Process* to = find(process)) send(*to, wire::Ready{object, value, holder}, payload);
}

void Node::rebuild(ProcessIndex maker, ObjectId object, ObjectId lost) {
  if (Process* to = find(maker)) send(*to, wire::Rebuild{object, lost});
}

void Node::peer_rebuild(ProcessIndex owner, ObjectId object, ObjectId lost) {
  if (const auto node = remote_.node_of(owner))
    network_->send(*node, wire::PeerRebuild{object, lost});
}

void Node::lineage_over(ProcessIndex maker, ObjectId object) {
  if (maker == kSelf) return lineage_cache_.released(object);
  if (Process* to = find(maker)) send(*to, wire::Lineage{object});
}

void Node::orphaned(ObjectId object, ObjectId lost) {
  lineage_cache_.orphaned(object, lost);
}

void Node::free(const wire::Location& location) {
  if (replica_host_.gave_back_lent(location)) return;
  in_flight_refs_.freed(location);
  frees_.add(location);
}

void Node::unreferenced(ActorId actor) {
  actors_.unreferenced(actor);
}

// --- ActorHost::Out

void Node::need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand, JobId id) {
  const JobNumber job = id ? job_of(id).number : jobs_.begin()->first;
  waiting_lives_[life] = job;
  leases_.request(kSelf, LeaseKey::of(life), demand, 1, steady_now(),
                  {.spilled = false, .dedicated = true, .job = job});
}

void Node::release_worker(std::uint64_t life) {
  waiting_lives_.erase(life);
  if (const auto lease = actor_leases_.find(life); lease != actor_leases_.end()) {
    leases_.returned(lease->second, steady_now());
    actor_leases_.erase(lease);
  } else {
    leases_.request(kSelf, LeaseKey::of(life), {}, 0, steady_now(),
                    {.spilled = false, .dedicated = true});
  }
}

void Node::start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                       const std::vector<wire::OwnedRef>& refs) {
  Process* to = find(worker);
  if (to == nullptr) return;
  for (const wire::OwnedRef& ref : refs) {
    if (ref.owner != id_)
      references_.import_from(ref.object, owners_.index_of_owner(ref.owner), kSelf);
    references_.hold(ref.object, worker, +1);
  }
  send(*to, start, payload);
}

void Node::hold_creation(const wire::Call& creation) {
  for (const wire::Value& argument : creation.arguments)
    wire::for_each_ref(argument, [&](ObjectId inner) { references_.hold(inner, kSelf, +1); });
}

void Node::drop_creation(const wire::Call& creation) {
  for (const wire::Value& argument : creation.arguments)
    wire::for_each_ref(argument, [&](ObjectId inner) { references_.hold(inner, kSelf, -1); });
}

void Node::end_worker(ProcessIndex worker) {
  Process* process = find(worker);
  if (process == nullptr) return;
  process->leaving = true;
  send(*process, wire::Shutdown{"no longer needed"});
}

/// Kills a worker. A worker may serve before its zygote has reported its pid; worker_forked() then
/// kills it.
void Node::kill_worker(ProcessIndex worker) {
  Process* process = find(worker);
  if (process == nullptr) return;
  process->killed = true;
  if (process->pid > 0) os::send_signal(process->pid, SIGKILL);
}

void Node::publish(ProcessIndex watcher, const wire::ActorUpdate& update) {
  Process* to = find(watcher);
  if (to == nullptr) return;
  if (update.state == wire::ActorState::alive) {
    Process* worker = find(update.worker);
    if (worker == nullptr) return;  // it is dying: ActorGone is sent to control next
    if (worker != to) connect(*to, *worker);
  }
  send(*to, update);
}

void Node::publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                          bool silent) {
  Process* to = find(watcher);
  if (to == nullptr) return;
  wire::ActorUpdate update;
  update.actor = location.actor;
  update.state = wire::ActorState::alive;
  update.incarnation = location.incarnation;
  update.worker = remote_.connect(watcher, location.node, location.worker, location.actor,
                                  location.incarnation);
  update.silent = silent;
  send(*to, update);
}

void Node::answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) {
  Process* to = find(process);
  if (to == nullptr) return;
  if (found.found) {
    if (owner && owner != id_)
      references_.import_from(found.lifetime, owners_.index_of_owner(owner), kSelf);
    references_.hold(found.lifetime, process, +1);
  }
  send(*to, found);
}

}  // namespace troupe::agent
