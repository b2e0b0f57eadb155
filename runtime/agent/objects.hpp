/// Carries out what the reference table decides about objects: values to processes and nodes,
/// fetches, copies, frees. Hands on what processes say about their memory in the store.
///
///     objects.on_store(process, message);        // NeedExtent, Adopt, Free, NeedReader, …
///     objects.pass_begins(); … objects.pass_ended(read_all);     // around the reading of rings
///     objects.carry_out_deferred();              // frees and readers that may be served now
///     objects.send_notices();                    // each pass, after frees
///
/// Invariants: OBJECT-1 Nothing is freed before all that a free may follow has been read, nor while
/// the ring of an ending process is unread. OBJECT-2 A reader of memory that is not there yet asks
/// in three more passes, and gets the memory or an error. OBJECT-3 An object that belongs to a
/// process is freed once: by that process's death, or by the table. OBJECT-4 What only the owner's
/// node knows is asked of that node, or of copies when it is lost.
#pragma once

#include "troupe/objectstore/host.hpp"
#include "troupe/runtime/agent/actors.hpp"
#include "troupe/runtime/agent/deferred_frees.hpp"
#include "troupe/runtime/agent/extents.hpp"
#include "troupe/runtime/agent/folder_copies.hpp"
#include "troupe/runtime/agent/in_flight_refs.hpp"
#include "troupe/runtime/agent/lineage_cache.hpp"
#include "troupe/runtime/agent/memory_watch.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/agent/replica_host.hpp"
#include "troupe/runtime/agent/transfers.hpp"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class Objects final : public ReferenceTable::Out,
                      public Transfers::Out,
                      public ReplicaHost::Store,
                      public Extents::Out {
 public:
  /// The parts below this one. `transfers`: null on a private node.
  struct Below {
    NodeId self;
    NodeEvents& events;
    const AgentOptions& options;
    objectstore::Host& host;
    ReferenceTable& references;
    RemoteTable& remote;
    Owners& owners;
    ActorHost& actors;
    LineageCache& lineage;
    ReplicaHost& replica_host;
    FolderCopies& copies;
    Extents& extents;
    MemoryWatch& memory;
    Processes& processes;
    const std::unique_ptr<Transfers>& transfers;
    Outgoing& out;
  };
  explicit Objects(const Below& below) : below_(below) {}
  InFlightRefs& in_flight_refs() noexcept { return in_flight_refs_; }

  // --- from processes
  void on_store(Process& from, wire::NodeMessage& message);
  void on_hold(const Process& from, const wire::Hold& message) {
    below_.references.hold(message.object, message.process, message.delta, from.index);
    const InFlightRefs::Frame frame{message.frame, message.waiting};
    if (message.delta > 0)
      in_flight_refs_.counted(from.index, message.process, frame, message.object);
    else
      in_flight_refs_.taken_back(from.index, message.process, frame, message.object);
  }
  void on_arrived(ProcessIndex from, const wire::Arrived& message) {
    undo(from, in_flight_refs_.arrived(from, message.peer, message.frames));
  }
  /// Notes that the reference table, not a process, frees what the value names from here on.
  void counted(const wire::Value& value) {
    if (value.kind == wire::Value::Kind::shared) in_flight_refs_.owned(value.location);
  }
  /// Frees what belonged to a process that has ended, and takes back what it had counted for
  /// `peers`, its processes with a channel.
  void process_died(ProcessIndex index, const std::set<ProcessIndex>& peers);
  /// Returns the nodes that have large arguments of the call, with their bytes, as far as known.
  ActorHost::BytesByNode bytes_near(const wire::Call& call) const;

  // --- the loop
  void pass_begins() noexcept { frees_.pass_begins(); }
  void pass_ended(bool read_all) noexcept { frees_.pass_ended(read_all); }
  bool has_frees() const noexcept { return !frees_.empty(); }
  bool has_readers() const noexcept { return !readers_.empty(); }
  /// Frees objects and answers readers, now that everything that was ready has been read.
  void carry_out_deferred();
  /// Tells processes which slots, extents and segments are free again.
  void send_notices();

  // --- ReferenceTable::Out
  void ready(ProcessIndex process, ObjectId object, const wire::Value& value,
             BlobView payload) override;
  void free(const wire::Location& location) override;
  void unreferenced(ActorId actor) override { below_.actors.unreferenced(actor); }
  void peer_hold(ProcessIndex to, ObjectId object, ProcessIndex holder,
                 std::int32_t delta) override;
  void peer_await(ProcessIndex owner, ObjectId object) override;
  void pull(ProcessIndex owner, ObjectId object, std::uint64_t bytes) override;
  void rebuild(ProcessIndex maker, ObjectId object, ObjectId lost) override {
    below_.processes.send(maker, wire::Rebuild{object, lost}, {});
  }
  void peer_rebuild(ProcessIndex owner, ObjectId object, ObjectId lost) override {
    if (const auto node = below_.remote.node_of(owner))
      below_.out.send(*node, wire::PeerRebuild{object, lost}, {});
  }
  void lineage_over(ProcessIndex maker, ObjectId object) override {
    if (maker == kSelf) return below_.lineage.released(object);
    below_.processes.send(maker, wire::Lineage{object}, {});
  }
  void wants_copy(ObjectId object) override { below_.copies.wants(object, steady_now()); }
  void copy_over(ObjectId object) override { below_.copies.over(object); }
  void copies_over(ObjectId object) override { below_.replica_host.replicas().over(object); }
  void met(ObjectId object) override { below_.replica_host.replicas().met(object); }
  void orphaned(ObjectId object, ObjectId lost) override { below_.lineage.orphaned(object, lost); }

  // --- Transfers::Out
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload) override {
    below_.out.send(to, message, payload);
  }
  std::optional<Transfers::Held> find(ObjectId object) override;
  void done(ObjectId object, NodeId from, const wire::Location& location) override;
  void failed(ObjectId object, NodeId from, const Error& error) override;
  void short_of_memory(std::uint64_t bytes) override {
    below_.extents.short_of_memory(bytes, steady_now());
  }

  // --- ReplicaHost::Store
  void pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) override {
    below_.transfers->pull(from, copy, bytes, steady_now());
  }
  bool look_in_folders(ProcessIndex owner, ObjectId object,
                       std::optional<std::uint64_t> bytes) override;
  bool is_on_disk(const wire::Location& at) const override;

  // --- Extents::Out
  void send_with(ProcessIndex to, const wire::NodeMessage& message,
                 std::vector<int> descriptors) override {
    below_.processes.send_with(to, message, std::move(descriptors));
  }
  void press() override;
  void memory_answer(const std::optional<Error>& why) override;
  void restored(NodeId from, const wire::PullRequest& request) override {
    below_.transfers->on_message(from, request, {}, steady_now());
  }

 private:
  struct ReaderRequest {
    ProcessIndex process;
    wire::NeedReader request;
    int tries = 0;
  };
  void on_adopt(Process& from, const wire::Adopt& message);
  void undo(ProcessIndex process, const InFlightRefs::Undone& undone);
  bool give_reader(Process& to, const wire::NeedReader& request, bool last_try);

  const Below below_;
  InFlightRefs in_flight_refs_;
  /// Locations to free and, below, requests of readers. Rings are read in any order: either may be
  /// read before a message of another process that it follows (an Adopt, an ExtentMapped). Both are
  /// therefore carried out when everything that was ready has been read.
  DeferredFrees frees_;
  std::vector<ReaderRequest> readers_;
};

}  // namespace troupe::agent
