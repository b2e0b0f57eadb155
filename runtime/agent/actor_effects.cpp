#include "troupe/runtime/agent/actor_effects.hpp"

#include "troupe/runtime/wire/cases.hpp"
#include "troupe/runtime/wire/values.hpp"

namespace troupe::agent {

using wire::Cases;

// --- from processes

void ActorEffects::on_message(Process& from, wire::NodeMessage& message, BlobView payload) {
  std::visit(Cases{[&](wire::CreateActor& m) {
                     below_.references.stands_for(m.lifetime, m.actor, from.index);
                     hold(m.creation, +1);
                     if (m.name.empty())
                       return below_.actors.create(m, payload, from.job, from.index,
                                                   below_.objects.bytes_near(m.creation));
                     named_spawns_.add({from.index, m, Blob(payload.begin(), payload.end()),
                                        from.job, below_.objects.bytes_near(m.creation), 0});
                   },
                   [&](wire::ActorCreated& m) { below_.actors.created(from.index, m); },
                   [&](wire::WatchActor& m) { below_.actors.watch(m.actor, from.index); },
                   [&](wire::KillActor& m) {
                     below_.actors.kill(m.actor, m.may_restart, from.index, from.job);
                   },
                   [&](wire::FindActor& m) { below_.actors.find(from.index, m); }, [&](auto&) {}},
             message);
}

void ActorEffects::settled() {
  for (const NamedSpawns::Spawn& spawn : named_spawns_.settled()) {
    const Process* process = below_.processes.find(spawn.process);
    if (process == nullptr)
      drop_creation(spawn.message.creation);  // nobody waits for the answer
    else
      below_.actors.create(spawn.message, spawn.payload, spawn.job, spawn.process, spawn.near);
  }
}

void ActorEffects::hold(const wire::Call& creation, std::int32_t delta) {
  for (const wire::Value& argument : creation.arguments)
    wire::for_each_ref(argument,
                       [&](ObjectId inner) { below_.references.hold(inner, kSelf, delta); });
}

// --- ActorHost::Out

void ActorEffects::need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand,
                               JobId job) {
  below_.leases.need_worker(life, demand, below_.jobs.of(job).number, steady_now());
}

void ActorEffects::start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                               const std::vector<wire::OwnedRef>& refs) {
  Process* to = below_.processes.find(worker);
  if (to == nullptr) return;
  for (const wire::OwnedRef& ref : refs) {
    if (ref.owner != below_.self)
      below_.references.import_from(ref.object, below_.owners.index_of_owner(ref.owner), kSelf);
    below_.references.hold(ref.object, worker, +1);
  }
  below_.processes.send(*to, start, payload);
}

void ActorEffects::publish(ProcessIndex watcher, const wire::ActorUpdate& update) {
  Process* to = below_.processes.find(watcher);
  if (to == nullptr) return;
  if (update.state == wire::ActorState::alive) {
    Process* worker = below_.processes.find(update.worker);
    if (worker == nullptr) return;  // it is dying: ActorGone is sent to control next
    if (worker != to) below_.processes.connect(*to, *worker);
  }
  below_.processes.send(*to, update);
}

void ActorEffects::publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                                  bool silent) {
  Process* to = below_.processes.find(watcher);
  if (to == nullptr) return;
  wire::ActorUpdate update;
  update.actor = location.actor;
  update.state = wire::ActorState::alive;
  update.incarnation = location.incarnation;
  update.worker = below_.remote.connect(watcher, location.node, location.worker, location.actor,
                                        location.incarnation);
  update.silent = silent;
  below_.processes.send(*to, update);
}

void ActorEffects::answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) {
  Process* to = below_.processes.find(process);
  if (to == nullptr) return;
  if (found.found) {
    if (owner && owner != below_.self)
      below_.references.import_from(found.lifetime, below_.owners.index_of_owner(owner), kSelf);
    below_.references.hold(found.lifetime, process, +1);
  }
  below_.processes.send(*to, found);
}

}  // namespace troupe::agent
