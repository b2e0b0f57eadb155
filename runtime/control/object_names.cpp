#include "troupe/runtime/control/object_names.hpp"

#include "troupe/runtime/control/codec.hpp"

namespace troupe::control {
namespace {

constexpr std::uint8_t kNameFormat = 1;
constexpr const char* kNamePrefix = "object/";

std::string record_of(const ObjectName& what) {
  return RecordWriter(kNameFormat)
      .bytes(what.name)
      .id(what.object)
      .id(what.owner)
      .id(what.keeper)
      .u64(what.fingerprint)
      .bytes(what.type)
      .id(what.job)
      .u64(what.bytes)
      .take();
}

ObjectName name_in(RecordReader& in) {
  ObjectName what;
  what.name = in.bytes();
  what.object = in.id<ObjectId>();
  what.owner = in.id<NodeId>();
  what.keeper = in.id<NodeId>();
  what.fingerprint = in.u64();
  what.type = in.bytes();
  what.job = in.id<JobId>();
  what.bytes = in.u64();
  return what;
}

}  // namespace

Result<ObjectNames> ObjectNames::recover(Store& store, ObjectNamesOptions options) {
  ObjectNames names(options);
  bool readable = true;
  auto read = store.scan(kNamePrefix, [&](std::string_view, std::string_view bytes) {
    RecordReader in(bytes);
    ObjectName what = name_in(in);
    readable = readable && in.ok() && in.version() == kNameFormat;
    if (readable) names.add(std::move(what));
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "the name of an object cannot be read: it was written by a newer build");
  return names;
}

void ObjectNames::add(ObjectName what) {
  by_object_.emplace(what.object, what.name);
  names_[what.name] = std::move(what);
}

bool ObjectNames::writes(const NameObject& message) const {
  const bool is_there = names_.count(message.what.name) != 0;
  return (message.verb == NameObject::Verb::detach && !is_there) ||
         (message.verb == NameObject::Verb::forget && is_there);
}

ObjectNames::Out ObjectNames::on_message(const NameObject& message, NodeId from) {
  Out out;
  NamedObject reply;
  reply.to = from;
  reply.request = message.request;
  switch (message.verb) {
    case NameObject::Verb::detach: detach(message.what, reply, out); break;
    case NameObject::Verb::find:
      if (const auto at = names_.find(message.what.name); at != names_.end()) {
        reply.done = true;
        reply.what = at->second;
      }
      break;
    case NameObject::Verb::whose: {
      const ObjectId object = message.what.object;
      const auto at = by_object_.lower_bound({object, {}});
      if (at != by_object_.end() && at->first == object) {
        reply.done = true;
        reply.what = names_.at(at->second);
      }
      break;
    }
    case NameObject::Verb::forget: forget(message.what, reply, out); break;
  }
  // The reply waits for all earlier writes: a name that could still be lost is not shown.
  out.after_sync.insert(out.after_sync.begin(), std::move(reply));
  return out;
}

void ObjectNames::detach(const ObjectName& what, NamedObject& reply, Out& out) {
  const auto at = names_.find(what.name);
  std::string why;
  Code code = Code::invalid_argument;
  if (what.name.empty() || what.name.size() > options_.max_name) {
    why = "the name of an object has 1 to " + std::to_string(options_.max_name) + " bytes";
  } else if (at != names_.end()) {
    reply.what = at->second;
    reply.done = at->second.object == what.object && at->second.keeper == what.keeper;
    if (!reply.done)
      why = "an object named '" + what.name +
            "' exists already: find it, or let go of the name first";
  } else if (names_.size() >= options_.max_names) {
    code = Code::overloaded;
    why = "the cluster has " + std::to_string(names_.size()) +
          " named objects, and takes no more: let go of some";
  } else {
    out.writes.put(kNamePrefix + what.name, record_of(what));
    add(what);
    reply.what = what;
    reply.done = true;
  }
  if (!why.empty()) reply.error = Error(code, why).shared_info();
}

void ObjectNames::forget(const ObjectName& which, NamedObject& reply, Out& out) {
  const auto at = names_.find(which.name);
  if (at == names_.end() || (which.object && which.object != at->second.object)) return;
  const ObjectName what = reply.what = names_.extract(at).mapped();
  reply.done = true;
  by_object_.erase({what.object, what.name});
  out.writes.del(kNamePrefix + what.name);
  out.after_sync.push_back(ObjectForgotten{what.keeper, what.name, what.object});
}

}  // namespace troupe::control
