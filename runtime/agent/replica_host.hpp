/// This node's part in objects that several nodes keep or find: replicas, names and places. Carries
/// out what Replicas, NamedObjects and LocationQuery decide, on the reference table. A plain state
/// machine of the agent.
///
///     host.on_replicate(process, message, now);       // → Replicated
///     host.on_name_object(process, job, message);     // → NamedObject
///     if (host.on_message(from, message, now)) …;     // a message about replicas or places
///     host.carry_out(now);                            // each pass
///
/// Invariants: KEEPING-1 A replica that serves an object's bytes is held once for each such use;
/// its memory is not freed in between. KEEPING-2 A replica serves one object four times at most: a
/// reader that asks again has found the bytes bad. KEEPING-3 A search without a replica goes on in
/// the shared folders, or ends in an error. KEEPING-4 A process is a holder of an object that it
/// found by name before it is told. KEEPING-5 Control's answer about a name is dropped when any
/// node was lost after the question.
#pragma once

#include "troupe/runtime/agent/cluster_link.hpp"
#include "troupe/runtime/agent/control_port.hpp"
#include "troupe/runtime/agent/inquiries.hpp"
#include "troupe/runtime/agent/location_query.hpp"
#include "troupe/runtime/agent/named_objects.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/replicas.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace troupe::agent {

class ReplicaHost final : private Replicas::Out, NamedObjects::Out, LocationQuery::Out {
 public:
  /// What this part needs of the store and the transfers. An implementation must not call back.
  class Store {
   public:
    virtual ~Store() = default;
    /// Fetches the bytes of a replica. Answered by Replicas::pulled() or pull_failed().
    virtual void pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) = 0;
    /// Goes on with a search in the shared folders: for bytes if they are given, else for a value.
    /// Returns false if there are no such folders.
    virtual bool look_in_folders(ProcessIndex owner, ObjectId object,
                                 std::optional<std::uint64_t> bytes) = 0;
    virtual bool is_on_disk(const wire::Location& at) const = 0;
  };
  /// The parts below this one.
  struct Below {
    ReferenceTable& references;
    Owners& owners;
    const ClusterLink& cluster;
    Inquiries& inquiries;
    ControlPort& control;
    Outgoing& out;
    Store& store;
  };
  ReplicaHost(NodeId self, const Below& below);
  /// This node is one of a cluster. Precondition: nothing else was called yet.
  void join();

  Replicas& replicas() noexcept { return replicas_; }
  const Replicas& replicas() const noexcept { return replicas_; }
  NamedObjects& names() noexcept { return names_; }
  LocationQuery& places() noexcept { return places_; }
  const LocationQuery& places() const noexcept { return places_; }

  // --- from processes of this node
  void on_replicate(ProcessIndex from, const wire::Replicate& message, Time now);
  void on_name_object(ProcessIndex from, JobId job, const wire::NameObject& message);

  // --- from other nodes and control
  /// Returns false for a message that is about neither replicas nor places.
  bool on_message(NodeId from, const wire::PeerMessage& message, Time now);
  /// Handles PeerReady: the value of an object of that node, or of a replica that it keeps. A
  /// replica's value counts as the owner's. Returns false if the value has too many refs.
  bool on_ready(NodeId from, const wire::PeerReady& ready, BlobView payload);
  void on_named_object(const control::FromControl& message, const control::NamedObject& reply,
                       Time now);
  /// Forgets questions about names: Replicas asks again.
  void forget_name_questions() { name_questions_.clear(); }

  // --- bytes
  /// Returns the object whose bytes answer a pull of `object`. A replica that this node does not
  /// keep is pulled by its keeper: this node is the owner and sends the object's own bytes.
  ObjectId served(ObjectId object) const;
  /// Returns true, and the location is not freed, if it belongs to a replica that is lent to an
  /// object: then one use of the replica ends.
  bool gave_back_lent(const wire::Location& location);
  /// Returns what this node knows of the object's bytes, after following recompute targets.
  wire::PeerPlace place_of(ObjectId object) override;

  void carry_out(Time now);

 private:
  /// A replica that this node keeps and whose bytes also serve as those of the object itself. Each
  /// such use holds the replica once.
  struct Lent {
    ObjectId copy;
    int uses = 0, times = 0;  ///< now; in all
  };
  // Replicas::Out
  void send(NodeId to, const wire::PeerMessage& message) override;
  ProcessIndex index_of(NodeId node) override { return below_.owners.index_of(node); }
  std::vector<Replicas::Candidate> other_nodes() override;
  void replicated(ProcessIndex process, const wire::Replicated& answer) override;
  void found_here(ProcessIndex owner, ObjectId object) override;
  void lend(ObjectId object) override;
  void pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) override;
  void not_found(ProcessIndex owner, ObjectId object, std::optional<std::uint64_t> bytes) override;
  void ask_name_of(ObjectId object) override;
  // NamedObjects::Out and LocationQuery::Out
  void hold_named(ObjectId object, std::int32_t delta) override;
  void to_control(const control::NameObject& message) override;
  void answer(ProcessIndex process, const wire::NamedObject& answer,
              const control::ObjectName& what) override;
  std::vector<NodeId> nodes_to_ask() override;
  void ask_place(NodeId node, const wire::PeerLocate& message) override;
  void located(ProcessIndex process, const wire::Located& answer) override;

  const NodeId self_;
  const Below below_;
  bool in_cluster_ = false;
  Replicas replicas_;
  NamedObjects names_;
  LocationQuery places_;
  std::map<std::uint64_t, ObjectId> name_questions_;  ///< of ask_name_of(), by request
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, Lent> lent_;  ///< by location
  std::vector<ObjectId> returned_;  ///< one hold of each ends at carry_out()
};

}  // namespace troupe::agent
