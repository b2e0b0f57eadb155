/// Node's part in replicas, copies of objects at other nodes: carries out what Replicas decides.
#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

/// How often a replica serves one object. A reader that asks again has found the bytes bad.
constexpr int kLentAtMost = 4;

}  // namespace

void Node::on_replicate(Process& from, const wire::Replicate& message) {
  const wire::Value* value = references_.value_of(message.object);
  std::optional<Error> error;
  if (!wire::has_copies(message.object) || message.copies < 2 || value == nullptr)
    error = Error(Code::invalid_argument, "there is nothing of which copies could be made");
  else if (!network_)
    error = Error(Code::infeasible, std::to_string(message.copies) +
                                        " nodes were to have a copy, and there is one: this is a "
                                        "private node (--troupe-nodes N, or join a cluster)");
  if (error) return send(from, wire::Replicated{message.request, error->shared_info()});
  replicas_.want(from.index, message, steady_now());
}

bool Node::on_replica_message(NodeId from, const wire::PeerMessage& message) {
  const Time now = steady_now();
  if (const auto* keep = std::get_if<wire::PeerKeep>(&message))
    replicas_.on_keep(from, *keep, now);
  else if (const auto* kept = std::get_if<wire::PeerKept>(&message))
    replicas_.on_kept(from, *kept);
  else if (const auto* find = std::get_if<wire::PeerFind>(&message))
    replicas_.on_find(from, find->object);
  else if (const auto* held = std::get_if<wire::PeerHeld>(&message))
    replicas_.on_held(from, *held);
  else if (const auto* unused = std::get_if<wire::PeerUnused>(&message))
    replicas_.on_unused(from, *unused, now);
  else if (const auto* keeping = std::get_if<wire::PeerKeeping>(&message))
    replicas_.on_keeping(from, *keeping);
  else
    return false;
  return true;
}

/// Handles PeerReady: the value of an object of that node, or of a replica that it keeps. A
/// replica's value counts as the owner's.
void Node::on_ready(NodeId from, const wire::PeerReady& ready, BlobView payload) {
  const ProcessIndex index = owners_.index_of(from);
  const bool found = ready.value.kind != wire::Value::Kind::error;
  const ProcessIndex owner = replicas_.answered(from, ready.object, found).value_or(index);
  if (!owners_.take_value(owner, index, ready, payload))
    network_->drop(from, "it sent a value with too many refs");
}

/// Returns the object whose bytes answer a pull of `object`. A replica that this node does not keep
/// is pulled by its keeper: this node is the owner and sends the bytes of the object itself.
ObjectId Node::served(ObjectId object) const {
  return wire::is_copy(object) && references_.value_of(object) == nullptr
             ? wire::original_of(object)
             : object;
}

void Node::serve_replicas() {
  for (const ObjectId copy : std::exchange(returned_, {})) references_.hold(copy, kSelf, -1);
  replicas_.carry_out(steady_now());
}

// --- ReferenceTable::Out

void Node::copies_over(ObjectId object) {
  replicas_.over(object);
}

void Node::met(ObjectId object) {
  replicas_.met(object);
}

// --- Replicas::Out

std::vector<Replicas::Candidate> Node::other_nodes() {
  std::vector<Replicas::Candidate> others;
  for (const control::ClusterRow& row : cluster_.rows()) {
    const NodeId node = row.description.id;
    if (node == id_ || !cluster_.knows(node)) continue;
    const std::uint64_t used = std::min(row.report.store_used, row.report.store_capacity);
    others.push_back({node, row.report.store_capacity - used, !row.suspect && !row.draining});
  }
  return others;
}

void Node::replicated(ProcessIndex process, const wire::Replicated& answer) {
  if (Process* to = find(process)) send(*to, answer);
}

void Node::found_here(ProcessIndex owner, ObjectId object) {
  const ReferenceTable::HeldValue copy = references_.held_here(wire::copy_of(object));
  if (copy.value == nullptr) return not_found(owner, object, {});  // it was reported lost
  const Blob payload(copy.payload.begin(), copy.payload.end());
  (void)owners_.take_value(owner, kSelf, owners_.answer_of(object, *copy.value), payload);
}

/// Serves the object with the bytes of the replica that this node keeps: the object's record gets
/// the replica's location, and the agent holds the replica as long as that is used.
void Node::lend(ObjectId object) {
  const ObjectId copy = wire::copy_of(object);
  const wire::Value* value = references_.value_of(copy);
  const bool good = value != nullptr && value->kind == wire::Value::Kind::shared;
  const wire::Location at = good ? value->location : wire::Location{};
  Lent* lent = good ? &lent_[{at.segment, at.slot, at.generation}] : nullptr;
  if (lent == nullptr || ++lent->times > kLentAtMost)
    return references_.pull_failed(object, Error(Code::object_lost, "this node's copy is bad"));
  lent->copy = copy;
  ++lent->uses;
  references_.hold(copy, kSelf, +1);
  references_.pulled(object, at);
}

/// Returns true, and the location is not freed, if it belongs to a replica that is lent to an
/// object: then one use of the replica ends.
bool Node::gave_back_lent(const wire::Location& location) {
  const auto at = lent_.find({location.segment, location.slot, location.generation});
  if (at == lent_.end()) return false;
  if (at->second.uses == 0) {  // the copy itself goes
    lent_.erase(at);
    return false;
  }
  --at->second.uses;
  returned_.push_back(at->second.copy);
  return true;
}

void Node::pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) {
  transfers_->pull(from, copy, bytes, steady_now());
}

/// Ends a search that found no replica: a shared folder may still have a copy.
void Node::not_found(ProcessIndex owner, ObjectId object, std::optional<std::uint64_t> bytes) {
  if (copies_) return bytes ? want_copy(owner, object, *bytes) : look_for_copy(owner, object);
  const wire::Value lost =
      internal::lost("the node that owned the object is gone, and no other has a copy of it");
  if (bytes) return references_.pull_failed(object, Error(*lost.error));
  references_.ready_from_owner(owner, object, lost, {});
}

}  // namespace troupe::agent
