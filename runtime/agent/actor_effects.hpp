/// Carries out what ActorHost decides: workers for actors, their starts, and word to watchers. Takes
/// the messages of processes about actors.
///
///     effects.on_message(process, message, payload);     // CreateActor, WatchActor, …
///     effects.settled();                                 // after each ReferenceTable::settle()
///
/// Invariants: EFFECT-1 The refs of a creation are held from its message on, until ActorHost drops
/// it. EFFECT-2 A worker holds the refs of its actor's creation before it gets them. EFFECT-3 A
/// watcher has a channel to the actor's worker before it learns of it. EFFECT-4 A spawn with a name
/// waits until earlier releases of handles are settled.
#pragma once

#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/jobs.hpp"
#include "troupe/runtime/agent/leases.hpp"
#include "troupe/runtime/agent/named_spawns.hpp"
#include "troupe/runtime/agent/objects.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"

#include <vector>

namespace troupe::agent {

class ActorEffects final : public ActorHost::Out {
 public:
  /// The parts below this one.
  struct Below {
    NodeId self;
    ActorHost& actors;
    Leases& leases;
    Jobs& jobs;
    ReferenceTable& references;
    RemoteTable& remote;
    Owners& owners;
    const Objects& objects;
    Processes& processes;
  };
  explicit ActorEffects(const Below& below) : below_(below) {}

  void on_message(Process& from, wire::NodeMessage& message, BlobView payload);
  /// Makes the actors whose names waited for a settlement.
  void settled();
  bool pending() const noexcept { return named_spawns_.pending(); }

  // --- ActorHost::Out
  void need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand,
                   JobId job) override;
  void release_worker(std::uint64_t life) override {
    below_.leases.release_worker(life, steady_now());
  }
  void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                   const std::vector<wire::OwnedRef>& refs) override;
  void end_worker(ProcessIndex worker) override {
    if (Process* process = below_.processes.find(worker)) below_.processes.leave(*process);
  }
  void kill_worker(ProcessIndex worker) override {
    if (Process* process = below_.processes.find(worker)) below_.processes.kill(*process);
  }
  void publish(ProcessIndex watcher, const wire::ActorUpdate& update) override;
  void publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                      bool silent) override;
  void answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) override;
  NodeId owner_of(ObjectId object) override { return below_.owners.owner_of(object); }
  void drop_creation(const wire::Call& creation) override { hold(creation, -1); }

 private:
  void hold(const wire::Call& creation, std::int32_t delta);

  const Below below_;
  NamedSpawns named_spawns_;
};

}  // namespace troupe::agent
