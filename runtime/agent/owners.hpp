/// Which node owns an object, as nodes name it to each other, and the values that they send. Keeps
/// the ids of nodes that are lost. A plain state machine of the agent.
///
///     wire::PeerReady answer = owners.answer_of(object, value);      // at the owner, or at a copy
///     owners.take_value(owners.index_of(from), by, answer, payload); // at the node that asked
///     owners.node_lost(node, error);                                 // → references.node_died()
///
/// Invariants: OWNER-1 A ref that leaves this node is named with its owner. An owner out of reach
/// is named for an object with copies only, since the receiver finds these by the owner's id.
/// OWNER-2 No location in memory is in a value that leaves. OWNER-3 Each ref inside a value that
/// comes is imported before the value is given to the reference table.
#pragma once

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/agent/remote.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <map>

namespace troupe::agent {

class Owners {
 public:
  Owners(NodeId self, ReferenceTable& references, RemoteTable& remote)
      : self_(self), references_(references), remote_(remote) {}

  /// Returns the index of the node as a holder or owner of refs. The first call makes it.
  ProcessIndex index_of(NodeId node);
  /// Returns the same for an owner; kSelf: this node, or none is named.
  ProcessIndex index_of_owner(NodeId owner) {
    return owner == self_ || !owner ? kSelf : index_of(owner);
  }
  /// Returns the node to name as the owner of a ref that leaves this node; `otherwise` if there is
  /// none to name.
  NodeId name_of(ProcessIndex owner, ObjectId object, NodeId otherwise) const;
  /// Returns the owner of an object; zero: it is lost.
  NodeId owner_of(ObjectId object) const;
  /// Returns the id under which the owner's copies are found. The owner may also be alive while its
  /// bytes cannot be had. Returns zero for a node that is forgotten since many others have died: no
  /// copy is found then.
  NodeId node_behind(ProcessIndex owner) const;
  bool is_lost(ProcessIndex owner) const { return lost_.count(owner) != 0; }

  /// Returns the PeerReady that gives this node's value to another node: refs with their owners,
  /// and the size of a large value instead of its location.
  wire::PeerReady answer_of(ObjectId object, const wire::Value& value) const;
  /// Imports a ref for which the node `from` has counted this one.
  void take_in(NodeId from, const wire::OwnedRef& ref) {
    references_.import_from(ref.object, index_of_owner(ref.owner), index_of(from));
  }
  /// Takes the value of an imported object, as its owner or a copy says it. `by` counted this node
  /// for the refs inside; kSelf: no node did. Returns false, and changes nothing, if there are too
  /// many refs.
  bool take_value(ProcessIndex owner, ProcessIndex by, const wire::PeerReady& ready,
                  BlobView payload);
  /// Reports a node's death or reset. While the reference table hears of it, is_lost() is true: the
  /// table then looks for copies.
  void node_lost(NodeId node, const ErrorInfo& why);

 private:
  const NodeId self_;
  ReferenceTable& references_;
  RemoteTable& remote_;
  std::map<ProcessIndex, NodeId> lost_;  ///< by index then; copies are found by the id
};

}  // namespace troupe::agent
