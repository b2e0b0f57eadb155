#include "troupe/runtime/agent/owners.hpp"

#include <utility>

namespace troupe::agent {

void OwnerTable::escape(ProcessIndex from, ObjectId object, const wire::Value& value,
                        BlobView payload) {
  Record& record = records_[object];
  if (record.known) return;
  record.known = true;
  record.producer = from;
  count(object, record, from, +1);
  if (value.kind != wire::Value::Kind::pending) set_value(object, record, value, payload);
}

void OwnerTable::fulfil(ObjectId object, const wire::Value& value, BlobView payload) {
  const auto found = records_.find(object);
  if (found == records_.end()) {
    // Everybody has let go of it: what it brought is let go as well.
    Record gone;
    gone.value = value;
    drop_inner(gone);
    if (value.kind == wire::Value::Kind::shared) out_.free(value.location);
    return;
  }
  if (found->second.ready) {
    Record late;  // it ended otherwise meanwhile
    late.value = value;
    drop_inner(late);
    return;
  }
  set_value(object, found->second, value, payload);
}

void OwnerTable::set_value(ObjectId object, Record& record, const wire::Value& value,
                           BlobView payload) {
  record.value = value;
  record.payload.clear();
  if (value.kind == wire::Value::Kind::inline_bytes) {
    const BlobView bytes = payload.subspan(value.payload_offset, value.payload_size);
    record.payload.assign(bytes.begin(), bytes.end());
    record.value.payload_offset = 0;
  }
  record.ready = true;
  const std::vector<ProcessIndex> waiting = std::exchange(record.waiting, {});
  for (const ProcessIndex process : waiting) answer(object, record, process);
}

/// The refs inside are counted for the receiver before it can learn of them.
void OwnerTable::answer(ObjectId object, Record& record, ProcessIndex process) {
  for (const ObjectId inner : record.value.refs) hold(inner, process, +1);
  if (record.value.kind == wire::Value::Kind::forwarded) hold(record.value.forward, process, +1);
  out_.ready(process, object, record.value, record.payload);
}

void OwnerTable::await(ObjectId object, ProcessIndex process) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.known) {
    early_.push_back({object, process});
    return;
  }
  if (found->second.ready)
    answer(object, found->second, process);
  else
    found->second.waiting.push_back(process);
}

void OwnerTable::answer_lost(ObjectId object, ProcessIndex process) {
  wire::Value lost;
  lost.kind = wire::Value::Kind::error;
  ErrorInfo info;
  info.code = Code::object_lost;
  info.message = "the object is not known to its owner";
  lost.error = std::make_shared<const ErrorInfo>(std::move(info));
  out_.ready(process, object, lost, {});
}

void OwnerTable::settle_early() {
  for (const Early& early : std::exchange(early_, {})) {
    const auto found = records_.find(early.object);
    if (found != records_.end() && found->second.known)
      await(early.object, early.process);
    else if (early.aged)
      answer_lost(early.object, early.process);
    else
      early_.push_back({early.object, early.process, true});
  }
}

void OwnerTable::stands_for(ObjectId lifetime, ActorId actor, ProcessIndex creator) {
  Record& record = records_[lifetime];
  record.known = true;
  record.actor = actor;
  count(lifetime, record, creator, +1);
}

void OwnerTable::hold(ObjectId object, ProcessIndex process, std::int32_t delta) {
  if (delta > 0 && dead_.count(process) != 0) return;
  count(object, records_[object], process, delta);
}

void OwnerTable::count(ObjectId object, Record& record, ProcessIndex process, std::int64_t delta) {
  if (dead_.count(process) != 0) {
    if (record.total == 0) candidates_.insert(object);
    return;
  }
  std::int64_t& holder = record.holders[process];
  holder += delta;
  record.total += delta;
  if (holder == 0) {
    record.holders.erase(process);
    if (const auto held = held_by_.find(process); held != held_by_.end())
      held->second.erase(object);
  } else {
    held_by_[process].insert(object);
  }
  record.aged = false;
  if (record.total == 0)
    candidates_.insert(object);
  else
    candidates_.erase(object);
}

void OwnerTable::process_died(ProcessIndex process, const Error& reason) {
  const std::set<ObjectId> held = std::exchange(held_by_[process], {});
  held_by_.erase(process);
  for (const ObjectId object : held) {
    const auto found = records_.find(object);
    if (found == records_.end()) continue;
    Record& record = found->second;
    const auto holder = record.holders.find(process);
    if (holder == record.holders.end()) continue;
    record.total -= holder->second;
    record.holders.erase(holder);
    record.aged = false;
    if (record.total == 0)
      candidates_.insert(object);
    else
      candidates_.erase(object);  // it had dropped what is still to be counted for it
  }
  dead_.insert(process);
  ErrorInfo info;
  info.code = Code::object_lost;
  info.outcome = Outcome::unknown;
  info.message = "the process that was to compute it died";
  info.cause = reason.shared_info();
  wire::Value lost;
  lost.kind = wire::Value::Kind::error;
  lost.error = std::make_shared<const ErrorInfo>(std::move(info));
  for (auto& [object, record] : records_)
    if (record.known && !record.ready && !record.actor && record.producer == process)
      set_value(object, record, lost, {});
}

bool OwnerTable::settle() {
  settle_early();
  std::vector<ObjectId> due;
  for (const ObjectId object : candidates_) {
    Record& record = records_.at(object);
    if (record.aged)
      due.push_back(object);
    else
      record.aged = true;
  }
  for (const ObjectId object : due) {
    const auto found = records_.find(object);
    if (found == records_.end() || found->second.total != 0) continue;
    candidates_.erase(object);
    const Record record = std::move(found->second);
    records_.erase(found);
    for (const ProcessIndex process : record.waiting) answer_lost(object, process);
    if (record.actor) out_.unreferenced(record.actor);
    if (record.ready && record.value.kind == wire::Value::Kind::shared)
      out_.free(record.value.location);
    drop_inner(record);
  }
  return !candidates_.empty() || !early_.empty();
}

void OwnerTable::drop_inner(const Record& record) {
  for (const ObjectId inner : record.value.refs) hold(inner, kSelf, -1);
  if (record.value.kind == wire::Value::Kind::forwarded) hold(record.value.forward, kSelf, -1);
}

const wire::Value* OwnerTable::value_of(ObjectId object) const {
  const auto found = records_.find(object);
  return found == records_.end() || !found->second.ready ? nullptr : &found->second.value;
}

std::int64_t OwnerTable::total_holds() const {
  std::int64_t total = 0;
  for (const auto& [object, record] : records_) total += record.total;
  return total;
}

}  // namespace troupe::agent
