#include "troupe/runtime/agent/authority.hpp"

#include "troupe/runtime/base/error.hpp"

#include <typeinfo>

namespace troupe::agent {
namespace {

/// Returns the value inside and sets `object`; null if the message is of another kind.
template <class Message>
const wire::Value* value_of(const wire::NodeMessage& message, ObjectId& object) {
  const auto* one = std::get_if<Message>(&message);
  if (one == nullptr) return nullptr;
  object = one->object;
  return &one->value;
}

}  // namespace

bool Authority::is_own(ProcessIndex who, Own own, const wire::NodeMessage& message) const {
  switch (own) {
    case Own::anything: return true;
    case Own::lease: return facts_.may_return(who, std::get<wire::LeaseReturned>(message).lease);
    case Own::count: return facts_.may_count(who, std::get<wire::Hold>(message));
    case Own::place: return facts_.may_place(who, std::get<wire::Free>(message).location);
    case Own::actor: return facts_.may_create(who, std::get<wire::CreateActor>(message));
    case Own::value: break;
  }
  ObjectId object;
  const wire::Value* value = value_of<wire::Promote>(message, object);
  if (value == nullptr) value = value_of<wire::Fulfil>(message, object);
  if (value == nullptr) value = value_of<wire::Rebuilt>(message, object);
  if (value == nullptr || !facts_.may_make(who, object)) return false;
  return value->kind != wire::Value::Kind::shared || facts_.may_place(who, value->location);
}

std::string name_of(const wire::NodeMessage& message) {
  const std::string full =
      std::visit([](const auto& one) { return readable_type(typeid(one).name()); }, message);
  return full.substr(full.rfind(':') + 1);
}

const char* name_of(Talker who) noexcept {
  switch (who) {
    case Talker::nobody: return "process without an answer to its hello";
    case Talker::stranger: return "process that has not said hello";
    case Talker::driver: return "driver";
    case Talker::worker: return "worker";
    case Talker::observer: return "observer";
  }
  return "process";
}

}  // namespace troupe::agent
