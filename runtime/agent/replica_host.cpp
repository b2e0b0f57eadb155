#include "troupe/runtime/agent/replica_host.hpp"

#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::agent {
namespace {

/// How often a replica serves one object. A reader that asks again has found the bytes bad.
constexpr int kLentAtMost = 4;

}  // namespace

ReplicaHost::ReplicaHost(NodeId self, const Below& below)
    : self_(self),
      below_(below),
      replicas_(below.references, *this, {.names = true}),
      names_(*this),
      places_(*this) {
  names_.start(self);
  places_.start(self);
}

void ReplicaHost::join() {
  in_cluster_ = true;
  replicas_.start(self_);
}

// --- replicas

void ReplicaHost::on_replicate(ProcessIndex from, const wire::Replicate& message, Time now) {
  const wire::Value* value = below_.references.value_of(message.object);
  std::optional<Error> error;
  if (!wire::has_copies(message.object) || message.copies < 2 || value == nullptr)
    error = Error(Code::invalid_argument, "there is nothing of which copies could be made");
  else if (!in_cluster_)
    error = Error(Code::infeasible, std::to_string(message.copies) +
                                        " nodes were to have a copy, and there is one: this is a "
                                        "private node (--troupe-nodes N, or join a cluster)");
  if (error) return replicated(from, wire::Replicated{message.request, error->shared_info()});
  replicas_.want(from, message, now);
}

bool ReplicaHost::on_message(NodeId from, const wire::PeerMessage& message, Time now) {
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
  else if (const auto* locate = std::get_if<wire::PeerLocate>(&message))
    below_.out.send(from, places_.answer_to(*locate), {});
  else if (const auto* located = std::get_if<wire::PeerLocated>(&message))
    places_.answered(from, *located);
  else
    return false;
  return true;
}

bool ReplicaHost::on_ready(NodeId from, const wire::PeerReady& ready, BlobView payload) {
  const ProcessIndex index = index_of(from);
  const bool found = ready.value.kind != wire::Value::Kind::error;
  const ProcessIndex owner = replicas_.answered(from, ready.object, found).value_or(index);
  return below_.owners.take_value(owner, index, ready, payload);
}

ObjectId ReplicaHost::served(ObjectId object) const {
  return wire::is_copy(object) && below_.references.value_of(object) == nullptr
             ? wire::original_of(object)
             : object;
}

void ReplicaHost::carry_out(Time now) {
  for (const ObjectId copy : std::exchange(returned_, {})) below_.references.hold(copy, kSelf, -1);
  replicas_.carry_out(now);
}

// --- Replicas::Out

void ReplicaHost::send(NodeId to, const wire::PeerMessage& message) {
  below_.out.send(to, message, {});
}

std::vector<Replicas::Candidate> ReplicaHost::other_nodes() {
  std::vector<Replicas::Candidate> others;
  for (const control::ClusterRow& row : below_.cluster.rows()) {
    const NodeId node = row.description.id;
    if (node == self_ || !below_.cluster.knows(node)) continue;
    const std::uint64_t used = std::min(row.report.store_used, row.report.store_capacity);
    others.push_back({node, row.report.store_capacity - used, !row.suspect && !row.draining});
  }
  return others;
}

void ReplicaHost::replicated(ProcessIndex process, const wire::Replicated& answer) {
  below_.out.send(process, answer, {});
}

void ReplicaHost::found_here(ProcessIndex owner, ObjectId object) {
  const ReferenceTable::HeldValue copy = below_.references.held_here(wire::copy_of(object));
  if (copy.value == nullptr) return not_found(owner, object, {});  // it was reported lost
  const Blob payload(copy.payload.begin(), copy.payload.end());
  (void)below_.owners.take_value(owner, kSelf, below_.owners.answer_of(object, *copy.value),
                                 payload);
}

/// Serves the object with the bytes of the replica that this node keeps: the object's record gets
/// the replica's location, and the agent holds the replica as long as that is used.
void ReplicaHost::lend(ObjectId object) {
  const ObjectId copy = wire::copy_of(object);
  const wire::Value* value = below_.references.value_of(copy);
  const bool good = value != nullptr && value->kind == wire::Value::Kind::shared;
  const wire::Location at = good ? value->location : wire::Location{};
  Lent* lent = good ? &lent_[{at.segment, at.slot, at.generation}] : nullptr;
  if (lent == nullptr || ++lent->times > kLentAtMost)
    return below_.references.pull_failed(object,
                                         Error(Code::object_lost, "this node's copy is bad"));
  lent->copy = copy;
  ++lent->uses;
  below_.references.hold(copy, kSelf, +1);
  below_.references.pulled(object, at);
}

bool ReplicaHost::gave_back_lent(const wire::Location& location) {
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

void ReplicaHost::pull_copy(NodeId from, ObjectId copy, std::uint64_t bytes) {
  below_.store.pull_copy(from, copy, bytes);
}

/// Ends a search that found no replica: a shared folder may still have a copy.
void ReplicaHost::not_found(ProcessIndex owner, ObjectId object,
                            std::optional<std::uint64_t> bytes) {
  if (below_.store.look_in_folders(owner, object, bytes)) return;
  const wire::Value lost =
      internal::lost("the node that owned the object is gone, and no other has a copy of it");
  if (bytes) return below_.references.pull_failed(object, Error(*lost.error));
  below_.references.ready_from_owner(owner, object, lost, {});
}

/// Asks control whether the object has a name: a name keeps its object even if no node holds it.
void ReplicaHost::ask_name_of(ObjectId object) {
  control::NameObject question{
      below_.inquiries.take_number(), control::NameObject::Verb::whose, {}};
  question.what.object = object;
  name_questions_[question.request] = object;
  below_.control.send(question);
}

// --- names

void ReplicaHost::on_name_object(ProcessIndex from, JobId job, const wire::NameObject& message) {
  NamedObjects::Facts facts;
  if (message.verb == wire::NameObject::Verb::detach) {
    const wire::Value* value = below_.references.value_of(message.object);
    std::optional<Error> error;
    if (value == nullptr)
      error = Error(Code::invalid_argument, "what gets a name has no value yet");
    else if (value->kind == wire::Value::Kind::error)
      error = Error(*value->error);
    if (error)
      return below_.out.send(
          from, wire::NamedObject{message.request, false, {}, 0, "", error->shared_info()}, {});
    facts.owner = below_.owners.owner_of(message.object);
    facts.job = job;
    facts.bytes = place_of(message.object).bytes;
    below_.references.may_be_found(message.object);
  }
  names_.ask(from, message, facts);
}

void ReplicaHost::on_named_object(const control::FromControl& message,
                                  const control::NamedObject& reply, Time now) {
  if (names_.replied(reply)) return;
  if (const auto question = name_questions_.extract(reply.request)) {
    if (!reply.error) replicas_.on_name(question.mapped(), reply.done, now);
    return;
  }
  below_.inquiries.on_reply(reply.request, message);
}

void ReplicaHost::hold_named(ObjectId object, std::int32_t delta) {
  below_.references.hold(object, kSelf, delta);
}

void ReplicaHost::to_control(const control::NameObject& message) {
  below_.control.send(message);
}

void ReplicaHost::answer(ProcessIndex process, const wire::NamedObject& answer,
                         const control::ObjectName& what) {
  if (!below_.out.is_alive(process)) return;
  if (answer.object) {
    if (what.owner != self_)
      below_.references.import_from(answer.object, below_.owners.index_of_owner(what.owner), kSelf);
    below_.references.hold(answer.object, process, +1);
  }
  below_.out.send(process, answer, {});
}

// --- places

wire::PeerPlace ReplicaHost::place_of(ObjectId object) {
  const ReferenceTable& references = below_.references;
  wire::PeerPlace place;
  const wire::Value* value = references.value_of(object);
  for (int step = 0; value != nullptr && value->kind == wire::Value::Kind::forwarded &&
                     step < LocationQuery::kMostSteps;
       ++step)
    value = references.value_of(place.forward = value->forward);
  const ObjectId last = place.forward ? place.forward : object;
  // A replica that this node keeps has an object id of its own, beside that of the imported object.
  const bool elsewhere = value == nullptr || value->kind == wire::Value::Kind::remote;
  if (elsewhere && wire::has_copies(last))
    if (const wire::Value* copy = references.value_of(wire::copy_of(last))) value = copy;
  if (value == nullptr) {
    if (references.knows(last) && !references.owner_of(last))
      place.state = wire::PlaceState::pending;
    return place;
  }
  switch (value->kind) {
    case wire::Value::Kind::inline_bytes:
      place.state = wire::PlaceState::small;
      place.bytes = value->payload_size;
      place.here = true;
      break;
    case wire::Value::Kind::shared:
      place.state = wire::PlaceState::large;
      place.bytes = value->location.length;
      place.here = true;
      place.spilled = below_.store.is_on_disk(value->location);
      break;
    case wire::Value::Kind::remote:
      place.state = wire::PlaceState::large;
      place.bytes = value->remote_bytes;
      break;
    case wire::Value::Kind::error: place.state = wire::PlaceState::failed; break;
    case wire::Value::Kind::pending:
    case wire::Value::Kind::forwarded: break;
  }
  return place;
}

std::vector<NodeId> ReplicaHost::nodes_to_ask() {
  return {below_.cluster.others().begin(), below_.cluster.others().end()};
}

void ReplicaHost::ask_place(NodeId node, const wire::PeerLocate& message) {
  below_.out.send(node, message, {});
}

void ReplicaHost::located(ProcessIndex process, const wire::Located& answer) {
  below_.out.send(process, answer, {});
}

}  // namespace troupe::agent
