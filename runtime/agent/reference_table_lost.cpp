/// ReferenceTable: values that were known and are lost, and the question to their makers for new
/// ones.
#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {

using internal::error_value;
using internal::lost;
using internal::no_owner;

namespace {

/// Whether a value leads to the bytes that are said to be lost.
bool leads_to(const wire::Value& value, ObjectId object, ObjectId lost) {
  switch (value.kind) {
    case wire::Value::Kind::forwarded: return value.forward == lost;
    case wire::Value::Kind::shared:
    case wire::Value::Kind::remote: return object == lost;
    case wire::Value::Kind::pending:
    case wire::Value::Kind::inline_bytes:
    case wire::Value::Kind::error: return false;
  }
  return false;
}

}  // namespace

void ReferenceTable::rebuild(ObjectId object, ProcessIndex process, ObjectId lost_one) {
  const auto found = records_.find(object);
  const bool known = found != records_.end() && found->second.known;
  if (!known || !found->second.ready || !leads_to(found->second.value, object, lost_one))
    return await(object, process);  // it is being rebuilt, or was rebuilt
  Record& record = found->second;
  if (is_dead(process)) return;
  if (takes_us_for_owner(record, process)) return answer_error(object, process, no_owner());
  const bool is_here = record.value.kind == wire::Value::Kind::shared;
  if (is_here && is_good_ && is_good_(record.value.location))
    return await(object, process);  // it missed earlier bytes, which these have replaced
  // The node takes this node for the owner, and the bytes have never been here.
  if (record.value.kind == wire::Value::Kind::remote && nodes_.count(process) != 0)
    return await(object, process);
  // Bytes that are here and bad have a twin elsewhere: a copy, or those of a living owner. Without
  // one only the maker can help, unless it is the maker that asks.
  const bool has_twin = outlives_owner(object) || (record.owner != kSelf && !is_dead(record.owner));
  if (is_here && !has_twin && record.producer == process && !record.kept)
    return answer_error(object, process, lost("whoever made it cannot make it again"));
  record.waiting.push_back({process, true});
  record.lost = lost_one;
  if (record.again) return;
  if (is_here && has_twin) return pull_again(object, record);
  make_again(object, record);
}

/// Drops the value, whose bytes are nowhere, and asks for a new one: the owner of an imported
/// object, the maker, or a process in the maker's place. Without any of these the object ends in
/// an error.
void ReferenceTable::make_again(ObjectId object, Record& record) {
  const ObjectId lost_one = record.lost;
  if (copies_ && record.owner == kSelf) out_.copy_over(object);
  drop_value(record);
  if (record.owner != kSelf && is_dead(record.owner))
    set_value(object, record, error_value(dead_.at(record.owner)), {});
  else if (record.owner != kSelf)
    out_.peer_rebuild(record.owner, object, lost_one);
  else if (record.producer_ended && record.kept)
    out_.orphaned(object, lost_one);
  else if (record.producer_ended && !TROUPE_MUTANT("references.asks_the_dead"))
    set_value(object, record,
              lost("the process that made it has ended, and no call is kept that could make it "
                   "again: it was put, is the result of an actor's method, or its task may not "
                   "run twice"),
              {});
  else
    out_.rebuild(record.producer, object, lost_one);
}

/// Frees bytes that cannot be read and pulls them from the owner or a copy. The refs inside stay
/// counted, since the copy that arrives has the same ones.
void ReferenceTable::pull_again(ObjectId object, Record& record) {
  record.value.remote_bytes = record.value.location.length;
  out_.free(std::exchange(record.value.location, {}));
  record.value.kind = wire::Value::Kind::remote;
  record.again = record.pulling = true;
  out_.pull(record.owner, object, record.value.remote_bytes);
}

void ReferenceTable::rebuilt(ProcessIndex from, ObjectId object, const wire::Value& value,
                             BlobView payload) {
  hold_inner(value);
  const auto found = records_.find(object);
  if (found == records_.end()) return let_go(value);
  Record& record = found->second;
  if (record.owner != kSelf || record.producer != from) return drop_inner(value);
  if (copies_ && record.ready) out_.copy_over(object);
  if (record.ready) drop_value(record);
  set_value(object, record, value, payload);
}

void ReferenceTable::keeps_lineage(ProcessIndex from, ObjectId object) {
  const auto found = records_.find(object);
  if (found != records_.end() && found->second.producer == from)
    found->second.has_lineage = true;
  else if (!is_dead(from))
    out_.lineage_over(from, object);
}

bool ReferenceTable::made_by_kept_call(ProcessIndex from, ObjectId object) {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.owner != kSelf || found->second.producer != from)
    return false;
  return found->second.kept = true;
}

bool ReferenceTable::entrust(ObjectId object, ProcessIndex process) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.kept || !found->second.producer_ended) return false;
  found->second.producer = process;
  found->second.producer_ended = is_dead(process);
  return found->second.has_lineage = true;
}

std::optional<ProcessIndex> ReferenceTable::maker_of(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.producer_ended) return std::nullopt;
  return found->second.producer;
}

void ReferenceTable::gone(ObjectId object, const Error& why) {
  const auto found = records_.find(object);
  if (found != records_.end() && !found->second.ready)
    set_value(object, found->second, error_value(why.shared_info()), {});
}

/// Makes the value unknown, and frees it.
void ReferenceTable::drop_value(Record& record) {
  record.ready = false;
  record.pulling = record.again = false;
  record.payload.clear();
  const wire::Value value = std::exchange(record.value, {});
  if (!TROUPE_MUTANT("references.keeps_lost_value")) let_go(value);
}

}  // namespace troupe::agent
