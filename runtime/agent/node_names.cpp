/// Node's questions about names and places of objects and about waits, from processes and other
/// nodes. Carries out what NamedObjects and LocationQuery decide.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/agent/wait_reasons.hpp"
#include "troupe/runtime/wire/values.hpp"

namespace troupe::agent {

// --- names

void Node::on_name_object(Process& from, const wire::NameObject& message) {
  NamedObjects::Facts facts;
  if (message.verb == wire::NameObject::Verb::detach) {
    const wire::Value* value = references_.value_of(message.object);
    std::optional<Error> error;
    if (value == nullptr)
      error = Error(Code::invalid_argument, "what gets a name has no value yet");
    else if (value->kind == wire::Value::Kind::error)
      error = Error(*value->error);
    if (error)
      return send(from, wire::NamedObject{message.request, false, {}, 0, "", error->shared_info()});
    facts.owner = owners_.owner_of(message.object);
    facts.job = from.job;
    facts.bytes = place_of(message.object).bytes;
    references_.may_be_found(message.object);
  }
  named_.ask(from.index, message, facts);
}

void Node::hold_named(ObjectId object, std::int32_t delta) {
  references_.hold(object, kSelf, delta);
}

void Node::to_control(const control::NameObject& message) {
  if (control_)
    control_->send(message);
  else
    say_to_control(message);
}

void Node::answer(ProcessIndex process, const wire::NamedObject& answer,
                  const control::ObjectName& what) {
  Process* to = find(process);
  if (to == nullptr) return;
  if (answer.object) {
    if (what.owner != id_)
      references_.import_from(answer.object, owners_.index_of_owner(what.owner), kSelf);
    references_.hold(answer.object, process, +1);
  }
  send(*to, answer);
}

/// Asks control whether the object has a name: a name keeps its object even if no node holds it.
void Node::ask_name_of(ObjectId object) {
  control::NameObject question{inquiries_.take_number(), control::NameObject::Verb::whose, {}};
  question.what.object = object;
  name_questions_[question.request] = object;
  say_to_control(question);
}

void Node::on_named_object(control::FromControl& message, const control::NamedObject& reply) {
  if (named_.replied(reply)) return;
  if (const auto question = name_questions_.extract(reply.request)) {
    if (!reply.error) replicas_.on_name(question.mapped(), reply.done, steady_now());
    return;
  }
  inquiries_.on_reply(reply.request, message);
}

// --- waits

void Node::on_explain(Process& from, const wire::Explain& message) {
  const WaitReasons reasons(leases_, actors_, remote_);
  const std::string why =
      message.actor ? reasons.of_actor(message.actor) : reasons.of_lease(from.index, message.key);
  send(from, wire::Explained{message.request, why});
}

// --- places

void Node::on_locate(const Process& from, const wire::Locate& message) {
  location_query_.ask(from.index, message, steady_now());
}

/// Returns what this node knows of the object's bytes, after following recompute targets.
wire::PeerPlace Node::place_of(ObjectId object) {
  wire::PeerPlace place;
  const wire::Value* value = references_.value_of(object);
  for (int step = 0; value != nullptr && value->kind == wire::Value::Kind::forwarded &&
                     step < LocationQuery::kMostSteps;
       ++step)
    value = references_.value_of(place.forward = value->forward);
  const ObjectId last = place.forward ? place.forward : object;
  // A replica that this node keeps has an object id of its own, beside that of the imported object.
  const bool elsewhere = value == nullptr || value->kind == wire::Value::Kind::remote;
  if (elsewhere && wire::has_copies(last))
    if (const wire::Value* copy = references_.value_of(wire::copy_of(last))) value = copy;
  if (value == nullptr) {
    if (references_.knows(last) && !references_.owner_of(last))
      place.state = wire::PlaceState::pending;
    return place;
  }
  switch (value->kind) {
    case wire::Value::Kind::inline_bytes:
      place.state = wire::PlaceState::small;
      place.bytes = value->payload_size;
      place.here = true;
      break;
    case wire::Value::Kind::shared: {
      place.state = wire::PlaceState::large;
      place.bytes = value->location.length;
      place.here = true;
      const auto seen =
          spiller_ ? spiller_->look(wire::store_location(value->location)) : std::nullopt;
      place.spilled = seen && seen->on_disk;
      break;
    }
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

std::vector<NodeId> Node::nodes_to_ask() {
  return {cluster_.others().begin(), cluster_.others().end()};
}

void Node::ask_place(NodeId node, const wire::PeerLocate& message) {
  network_->send(node, message);
}

void Node::located(ProcessIndex process, const wire::Located& answer) {
  if (Process* to = find(process)) send(*to, answer);
}

}  // namespace troupe::agent
