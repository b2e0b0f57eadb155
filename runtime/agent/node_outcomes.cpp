/// Node's carrying out of what LeaseTable, ReferenceTable and ActorHost decide.
#include "troupe/runtime/agent/node.hpp"

#include <utility>

namespace troupe::agent {

// --- leases

void Node::carry_out_leases() {
  for (auto events = leases_.take_events(); !events.empty(); events = leases_.take_events())
    for (auto& event : events) leasing_.carry_out(event, steady_now());
}

std::optional<std::pair<JobId, JobNumber>> Node::job_of(ProcessIndex process) {
  const Process* one = processes_.find(process);
  if (one == nullptr) return std::nullopt;
  return std::pair(one->job, one->job_number);
}

void Node::send_notices() {
  for (const objectstore::Notice& notice : host_->take_notices()) {
    for (auto& [index, process] : processes_) {
      switch (notice.kind) {
        case objectstore::Notice::Kind::recycle:
          if (process->introduced && process->store_index == notice.process)
            processes_.send(*process, wire::Recycle{notice.slot, notice.generation});
          break;
        case objectstore::Notice::Kind::forget_extent:
          processes_.send(*process, wire::Forget{false, notice.extent.value});
          break;
        case objectstore::Notice::Kind::forget_segment:
          processes_.send(*process, wire::Forget{true, notice.process});
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
  processes_.send(process, wire::Ready{object, value, holder}, payload);
}

void Node::rebuild(ProcessIndex maker, ObjectId object, ObjectId lost) {
  processes_.send(maker, wire::Rebuild{object, lost}, {});
}

void Node::peer_rebuild(ProcessIndex owner, ObjectId object, ObjectId lost) {
  if (const auto node = remote_.node_of(owner))
    network_->send(*node, wire::PeerRebuild{object, lost});
}

void Node::lineage_over(ProcessIndex maker, ObjectId object) {
  if (maker == kSelf) return lineage_cache_.released(object);
  processes_.send(maker, wire::Lineage{object}, {});
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
  Process* to = processes_.find(worker);
  if (to == nullptr) return;
  for (const wire::OwnedRef& ref : refs) {
    if (ref.owner != id_)
      references_.import_from(ref.object, owners_.index_of_owner(ref.owner), kSelf);
    references_.hold(ref.object, worker, +1);
  }
  processes_.send(*to, start, payload);
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
  Process* process = processes_.find(worker);
  if (process == nullptr) return;
  process->leaving = true;
  processes_.send(*process, wire::Shutdown{"no longer needed"});
}

void Node::kill_worker(ProcessIndex worker) {
  if (Process* process = processes_.find(worker)) processes_.kill(*process);
}

void Node::publish(ProcessIndex watcher, const wire::ActorUpdate& update) {
  Process* to = processes_.find(watcher);
  if (to == nullptr) return;
  if (update.state == wire::ActorState::alive) {
    Process* worker = processes_.find(update.worker);
    if (worker == nullptr) return;  // it is dying: ActorGone is sent to control next
    if (worker != to) processes_.connect(*to, *worker);
  }
  processes_.send(*to, update);
}

void Node::publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                          bool silent) {
  Process* to = processes_.find(watcher);
  if (to == nullptr) return;
  wire::ActorUpdate update;
  update.actor = location.actor;
  update.state = wire::ActorState::alive;
  update.incarnation = location.incarnation;
  update.worker = remote_.connect(watcher, location.node, location.worker, location.actor,
                                  location.incarnation);
  update.silent = silent;
  processes_.send(*to, update);
}

void Node::answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) {
  Process* to = processes_.find(process);
  if (to == nullptr) return;
  if (found.found) {
    if (owner && owner != id_)
      references_.import_from(found.lifetime, owners_.index_of_owner(owner), kSelf);
    references_.hold(found.lifetime, process, +1);
  }
  processes_.send(*to, found);
}

}  // namespace troupe::agent
