/// Effects of ReferenceTable, RemoteTable and ActorHost that a test of another part is not about.
#pragma once

#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"

namespace troupe::agent {

struct QuietReferences : ReferenceTable::Out {
  void ready(ProcessIndex, ObjectId, const wire::Value&, BlobView) override {}
  void free(const wire::Location&) override {}
  void unreferenced(ActorId) override {}
};

struct QuietRemote : RemoteTable::Out {
  void send(NodeId, const wire::PeerMessage&) override {}
  bool is_alive(ProcessIndex) override { return true; }
  bool hosts(ProcessIndex, ActorId, std::uint64_t) override { return false; }
  void read(ProcessIndex) override {}
  void open_proxy(ProcessIndex, ProcessIndex, NodeId) override {}
  void close_proxy(ProcessIndex, ProcessIndex, const Death&, std::uint64_t) override {}
  std::uint64_t started(ProcessIndex, ProcessIndex) override { return 0; }
  void granted(ProcessIndex, LeaseKey, LeaseId, ProcessIndex,
               const std::vector<std::int32_t>&) override {}
  void reclaim(ProcessIndex, LeaseId) override {}
  void job_refused(ProcessIndex, NodeId, const std::string&) override {}
  void spill_failed(ProcessIndex, LeaseKey, const wire::ResourceDemand&, std::uint32_t,
                    NodeId) override {}
  void gave_back(NodeId, const wire::ResourceDemand&) override {}
  void request(ProcessIndex, LeaseKey, const wire::ResourceDemand&, std::uint32_t, JobId,
               bool) override {}
  void returned(LeaseId) override {}
  void owner_died(ProcessIndex) override {}
};

struct QuietActors : ActorHost::Out, ControlPort {
  void send(control::ToControl) override {}
  void need_worker(std::uint64_t, const scheduling::ResourceDemand&, JobId) override {}
  void release_worker(std::uint64_t) override {}
  void start_actor(ProcessIndex, const wire::StartActor&, BlobView,
                   const std::vector<wire::OwnedRef>&) override {}
  void end_worker(ProcessIndex) override {}
  void kill_worker(ProcessIndex) override {}
  void publish(ProcessIndex, const wire::ActorUpdate&) override {}
  void publish_remote(ProcessIndex, const control::ActorLocation&, bool) override {}
  void answer(ProcessIndex, const wire::FoundActor&, NodeId) override {}
  NodeId owner_of(ObjectId) override { return {}; }
  void drop_creation(const wire::Call&) override {}
};

}  // namespace troupe::agent
