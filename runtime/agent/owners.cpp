#include "troupe/runtime/agent/owners.hpp"

#include "troupe/runtime/wire/values.hpp"

namespace troupe::agent {

ProcessIndex Owners::index_of(NodeId node) {
  const ProcessIndex index = remote_.index_of(node);
  references_.add_node(index);
  return index;
}

NodeId Owners::name_of(ProcessIndex owner, ObjectId object, NodeId otherwise) const {
  if (const auto node = remote_.node_of(owner)) return *node;
  const auto lost = lost_.find(owner);
  return wire::has_copies(object) && lost != lost_.end() ? lost->second : otherwise;
}

NodeId Owners::owner_of(ObjectId object) const {
  const auto owner = references_.owner_of(object);
  return owner ? remote_.node_of(*owner).value_or(NodeId{}) : self_;
}

NodeId Owners::node_behind(ProcessIndex owner) const {
  if (owner == kSelf) return self_;
  const auto lost = lost_.find(owner);
  return lost != lost_.end() ? lost->second : remote_.node_of(owner).value_or(NodeId{});
}

wire::PeerReady Owners::answer_of(ObjectId object, const wire::Value& value) const {
  wire::PeerReady ready{object, value, {}};
  wire::for_each_ref(value, [&](ObjectId id) {
    const auto owner = references_.owner_of(id);
    ready.refs.push_back({id, owner ? name_of(*owner, id, {}) : self_});
  });
  if (value.kind == wire::Value::Kind::shared) {
    ready.value.kind = wire::Value::Kind::remote;
    ready.value.remote_bytes = value.location.length;
  }
  return ready;
}

bool Owners::take_value(ProcessIndex owner, ProcessIndex by, const wire::PeerReady& ready,
                        BlobView payload) {
  wire::Value value = ready.value;
  if (value.kind == wire::Value::Kind::remote) {  // its refs are listed in the message only
    if (ready.refs.size() > wire::kMaxRefs) return false;
    for (const wire::OwnedRef& ref : ready.refs) value.refs.push_back(ref.object);
  }
  for (const wire::OwnedRef& ref : ready.refs)
    references_.import_from(ref.object, index_of_owner(ref.owner), by);
  references_.ready_from_owner(owner, ready.object, value, payload);
  return true;
}

void Owners::node_lost(NodeId node, const ErrorInfo& why) {
  const ProcessIndex index = index_of(node);
  lost_[index] = node;
  if (const auto forgotten = references_.node_died(index, Error(ErrorInfo(why)))) {
    lost_.erase(*forgotten);
    remote_.forget_node(*forgotten);
  }
}

}  // namespace troupe::agent
