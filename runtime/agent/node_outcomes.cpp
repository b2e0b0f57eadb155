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
