/// Node's carrying out of what LeaseTable, ReferenceTable and ActorHost decide.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/os/child.hpp"

#include <csignal>
#include <utility>

namespace troupe::agent {

// --- leases

void Node::carry_out_leases() {
  for (auto events = leases_.take_events(); !events.empty(); events = leases_.take_events())
    for (auto& event : events) leasing_.carry_out(event, steady_now());
}

void Node::connect(ProcessIndex owner, ProcessIndex worker) {
  const auto a = processes_.find(owner), b = processes_.find(worker);
  if (a != processes_.end() && b != processes_.end()) connect(*a->second, *b->second);
}

std::optional<std::pair<JobId, JobNumber>> Node::job_of(ProcessIndex process) {
  const Process* one = find(process);
  if (one == nullptr) return std::nullopt;
  return std::pair(one->job, one->job_number);
}

std::optional<ProcessIndex> Node::lasting_process(JobNumber job) {
  std::optional<ProcessIndex> found;
  for (const auto& [index, process] : processes_) {
    if (process->job_number != job || !process->introduced || process->doomed) continue;
    if (process->halted || process->leaving || !process->bell) continue;
    if (process->kind == wire::ProcessKind::driver) return index;
    found = index;
  }
  return found;
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
  const JobNumber job = id ? jobs_.of(id).number : jobs_.all().begin()->first;
  leasing_.need_worker(life, demand, job, steady_now());
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
