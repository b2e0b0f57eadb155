#include "troupe/runtime/agent/reference_table.hpp"

#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {

using internal::lost;
using internal::no_owner;

// --- values

void ReferenceTable::hold_inner(const wire::Value& value) {
  wire::for_each_ref(value, [&](ObjectId inner) { hold(inner, kSelf, +1); });
}

void ReferenceTable::promote(ProcessIndex from, ObjectId object, const wire::Value& value,
                             BlobView payload) {
  hold_inner(value);
  Record& record = records_[object];
  if (record.known) return drop_inner(value);
  record.known = true;
  record.producer = from;
  count(object, record, from, +1);
  if (value.kind != wire::Value::Kind::pending) set_value(object, record, value, payload);
}

void ReferenceTable::fulfil(ObjectId object, const wire::Value& value, BlobView payload) {
  hold_inner(value);
  const auto found = records_.find(object);
  if (found == records_.end()) return let_go(value);  // no holder was left
  // The object has another value by now. Drop only the refs inside: `value` may name the same
  // location as that value, which must not be freed.
  if (found->second.ready || found->second.owner != kSelf) return drop_inner(value);
  set_value(object, found->second, value, payload);
}

void ReferenceTable::set_value(ObjectId object, Record& record, const wire::Value& value,
                               BlobView payload) {
  record.value = value;
  record.payload.clear();
  if (value.kind == wire::Value::Kind::inline_bytes) {
    const BlobView bytes = payload.subspan(value.payload_offset, value.payload_size);
    record.payload.assign(bytes.begin(), bytes.end());
    record.value.payload_offset = 0;
  }
  if (value.kind == wire::Value::Kind::remote && record.owner == kSelf) {
    drop_inner(value);
    record.value =
        lost("the bytes of the object are at another node, which its owner does not know");
  }
  record.ready = true;
  want_copies(object, record);
  answer_waiting(object, record);
}

bool ReferenceTable::has_remote_holders(const Record& record) const {
  return copies_ && record.owner == kSelf && record.ready && !record.actor &&
         record.value.kind != wire::Value::Kind::remote &&
         (record.reachable ||
          std::any_of(record.holders.begin(), record.holders.end(), [this](const auto& holder) {
            return holder.second > 0 && nodes_.count(holder.first) != 0;
          }));
}

/// Reports wants_copy() for the object and for every object that its value names, at any depth. A
/// copy holds the names only, so a node that reads it after this node's death needs copies of
/// those as well.
void ReferenceTable::want_copies(ObjectId object, const Record& record) {
  if (!has_remote_holders(record)) return;
  std::vector<std::pair<ObjectId, const Record*>> left{{object, &record}};
  while (!left.empty()) {
    const auto next = left.back();
    left.pop_back();
    out_.wants_copy(next.first);
    wire::for_each_ref(next.second->value, [&](ObjectId inner) {
      const auto found = records_.find(inner);
      if (found == records_.end() || std::exchange(found->second.reachable, true)) return;
      if (has_remote_holders(found->second)) left.emplace_back(inner, &found->second);
    });
  }
}

void ReferenceTable::may_be_found(ObjectId object) {
  const auto found = records_.find(object);
  if (found == records_.end()) return;
  found->second.reachable = true;
  want_copies(object, found->second);
}

ReferenceTable::HeldValue ReferenceTable::held_here(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.ready) return {};
  return {&found->second.value, found->second.payload};
}

bool ReferenceTable::outlives_owner(ObjectId object) const {
  return copies_ || wire::has_copies(object);
}

ReferenceTable::Record& ReferenceTable::record_of(ObjectId object) {
  const auto [at, fresh] = records_.try_emplace(object);
  if (fresh && wire::has_copies(object)) out_.met(object);
  return at->second;
}

ReferenceTable::HeldValue ReferenceTable::held_remotely(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || !has_remote_holders(found->second)) return {};
  return {&found->second.value, found->second.payload};
}

void ReferenceTable::answer_waiting(ObjectId object, Record& record) {
  const std::vector<Waiting> waiting = std::exchange(record.waiting, {});
  for (const Waiting& who : waiting) {
    // An object of this node whose bytes are elsewhere is answered only after they were pulled.
    if (record.value.kind == wire::Value::Kind::remote && (who.fetch || record.owner == kSelf))
      record.waiting.push_back(who);
    else
      answer(object, record, who);
  }
  if (record.waiting.empty() || record.pulling) return;
  record.pulling = true;
  out_.pull(record.owner, object, record.value.remote_bytes);
}

/// Sends ready(). Counts the refs inside for the receiver first, before it can learn of them.
void ReferenceTable::answer(ObjectId object, Record& record, const Waiting& to) {
  if (is_dead(to.process)) return;
  if (record.value.kind == wire::Value::Kind::remote) {
    wire::Value known = record.value;
    known.refs.clear();
    return out_.ready(to.process, object, known, {});
  }
  wire::for_each_ref(record.value, [&](ObjectId inner) {
    if (!ends_here(inner, to.process)) hold(inner, to.process, +1);
  });
  out_.ready(to.process, object, record.value, record.payload);
}

/// Whether a ref that goes to this node needs no count here. Either the receiver owns the object
/// and reads this node's release later than the ref, or the owner is dead.
bool ReferenceTable::ends_here(ObjectId object, ProcessIndex to) const {
  const auto owner = owner_of(object);
  if (!owner || nodes_.count(to) == 0 || TROUPE_MUTANT("references.counts_the_owner")) return false;
  return *owner == to || (is_dead(*owner) && !stays_counted(object)) ||
         TROUPE_MUTANT("references.lets_go_at_export");
}

/// Whether the receiver of a ref stays counted even when the owner is dead, until the receiver
/// reports that it has the ref.
bool ReferenceTable::stays_counted(ObjectId object) {
  return wire::has_copies(object) && !TROUPE_MUTANT("references.forgets_copied_in_flight");
}

void ReferenceTable::tell_as(ObjectId object, ObjectId name, ProcessIndex node) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.ready ||
      found->second.value.kind == wire::Value::Kind::remote)
    return answer_error(name, node, lost("the node has no copy of the object"));
  answer(name, found->second, {node, false});
}

void ReferenceTable::answer_error(ObjectId object, ProcessIndex process, const wire::Value& error) {
  if (!is_dead(process)) out_.ready(process, object, error, {});
}

/// Whether the asker is the node that this table has as the owner. Both have then lost the real
/// owner and would wait for each other.
bool ReferenceTable::takes_us_for_owner(const Record& record, ProcessIndex asker) {
  return asker != kSelf && record.owner == asker;
}

void ReferenceTable::await(ObjectId object, ProcessIndex process, bool fetch) {
  if (is_dead(process)) return;
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.known) {
    early_.push_back({object, {process, fetch}});
    return;
  }
  Record& record = found->second;
  if (!record.ready && takes_us_for_owner(record, process))
    return answer_error(object, process, no_owner());
  record.waiting.push_back({process, fetch});
  if (record.ready) return answer_waiting(object, record);
  if (record.owner == kSelf || record.asked) return;
  record.asked = true;
  out_.peer_await(record.owner, object);
}

void ReferenceTable::settle_early() {
  for (const Early& early : std::exchange(early_, {})) {
    const auto found = records_.find(early.object);
    if (found != records_.end() && found->second.known)
      await(early.object, early.who.process, early.who.fetch);
    else if (early.aged)
      answer_error(early.object, early.who.process, lost("the object is not known to its owner"));
    else
      early_.push_back({early.object, early.who, true});
  }
}

const wire::Value* ReferenceTable::value_of(ObjectId object) const {
  const auto found = records_.find(object);
  return found == records_.end() || !found->second.ready ? nullptr : &found->second.value;
}

void ReferenceTable::each(const std::function<void(const Seen&)>& look_at) const {
  for (const auto& [object, record] : records_)
    if (record.known && !record.actor)
      look_at({object, record.value, record.ready, record.owner, record.producer, record.holders});
}

// --- counts

void ReferenceTable::stands_for(ObjectId lifetime, ActorId actor, ProcessIndex creator) {
  Record& record = records_[lifetime];
  record.known = true;
  record.actor = actor;
  count(lifetime, record, creator, +1);
}

void ReferenceTable::hold(ObjectId object, ProcessIndex process, std::int32_t delta,
                          ProcessIndex by) {
  note_passing(object, process, by, delta);
  if (delta > 0 && is_dead(process)) return;
  count(object, record_of(object), process, delta);
}

void ReferenceTable::count(ObjectId object, Record& record, ProcessIndex process,
                           std::int64_t delta) {
  if (!is_dead(process)) {
    std::int64_t& holder = record.holders[process];
    holder += delta;
    if (holder == 0) {
      record.holders.erase(process);
      if (const auto held = held_by_.find(process); held != held_by_.end())
        held->second.erase(object);
    } else {
      held_by_[process].insert(object);
      const bool is_new = holder > 0 && holder <= delta;
      if (copies_ && is_new && nodes_.count(process) != 0) want_copies(object, record);
    }
  }
  touch(object, record);
}

/// Notes that the object's counts have changed: it must stay without holders for one whole pass
/// before settle() frees it.
void ReferenceTable::touch(ObjectId object, Record& record) {
  record.aged = false;
  if (record.holders.empty())
    candidates_.insert(object);
  else
    candidates_.erase(object);
}

void ReferenceTable::drop_counts(ProcessIndex process) {
  const std::set<ObjectId> held = std::exchange(held_by_[process], {});
  held_by_.erase(process);
  for (const ObjectId object : held) {
    const auto found = records_.find(object);
    if (found == records_.end()) continue;
    found->second.holders.erase(process);
    touch(object, found->second);
  }
}

void ReferenceTable::note_passing(ObjectId object, ProcessIndex to, ProcessIndex by,
                                  std::int64_t delta) {
  if (by == kSelf || nodes_.count(to) == 0 || is_dead(by)) return;
  auto& passing = passing_[by];
  const auto entry = passing.try_emplace({to, object}, 0).first;
  if ((entry->second += delta) == 0) passing.erase(entry);
}

void ReferenceTable::return_unsent(ProcessIndex by) {
  const auto found = passing_.find(by);
  if (found == passing_.end()) return;
  for (const auto& [ref, unsent] : found->second)
    if (unsent > 0 && !TROUPE_MUTANT("references.unsent_stays"))
      count(ref.second, records_[ref.second], ref.first, -unsent);
  passing_.erase(found);
}

void ReferenceTable::process_died(ProcessIndex process, const Error& reason) {
  return_unsent(process);
  drop_counts(process);
  const wire::Value end = lost("the process that was to compute it died", &reason);
  dead_[process] = nullptr;
  std::erase_if(early_, [process](const Early& early) { return early.who.process == process; });
  for (auto& [object, record] : records_) {
    std::erase_if(record.waiting, [process](const Waiting& who) { return who.process == process; });
    if (record.owner == kSelf && record.producer == process) record.producer_ended = true;
    if (!record.known || record.owner != kSelf || record.ready || record.actor ||
        record.producer != process)
      continue;
    if (record.kept && !TROUPE_MUTANT("references.orphans_once"))
      out_.orphaned(object, record.lost);
    else
      set_value(object, record, end, {});
  }
}

bool ReferenceTable::settle() {
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
    // The release of an earlier object in this loop may have changed this one.
    if (found == records_.end() || candidates_.count(object) == 0 || !found->second.aged) continue;
    candidates_.erase(object);
    const Record record = std::move(found->second);
    records_.erase(found);
    if (record.owner != kSelf && --imported_[record.owner] == 0) imported_.erase(record.owner);
    release(object, record);
  }
  return !candidates_.empty() || !early_.empty();
}

/// Frees what an erased record held. Processes that still wait have released the object too. They
/// get an error only if this node owned it. An imported object may live on elsewhere and arrive
/// again with a new await, which a late "lost" would seem to answer.
void ReferenceTable::release(ObjectId object, const Record& record) {
  if (record.owner == kSelf || TROUPE_MUTANT("references.says_lost_of_imported"))
    for (const Waiting& who : record.waiting)
      answer_error(object, who.process, lost("the object is not known to its owner"));
  if (record.actor) out_.unreferenced(record.actor);
  if (copies_ && record.owner == kSelf) out_.copy_over(object);
  if (wire::has_copies(object) && record.owner == kSelf) out_.copies_over(object);
  if (record.ready) let_go(record.value);
  if (record.has_lineage && !record.producer_ended) out_.lineage_over(record.producer, object);
  if (record.kept) out_.lineage_over(kSelf, object);
  if (record.owner != kSelf && !is_dead(record.owner))
    out_.peer_hold(record.owner, object, kSelf, -1);
}

void ReferenceTable::drop_inner(const wire::Value& value) {
  wire::for_each_ref(value, [&](ObjectId inner) { hold(inner, kSelf, -1); });
}

void ReferenceTable::let_go(const wire::Value& value) {
  drop_inner(value);
  if (value.kind == wire::Value::Kind::shared) out_.free(value.location);
}

bool ReferenceTable::is_made(ObjectId object) const {
  const auto found = records_.find(object);
  return found != records_.end() && found->second.known;
}

bool ReferenceTable::is_anothers(ObjectId object, ProcessIndex who) const {
  const auto found = records_.find(object);
  return found != records_.end() && found->second.known && found->second.owner == kSelf &&
         (found->second.producer != who || found->second.actor);
}

std::int64_t ReferenceTable::total_holds() const {
  std::int64_t total = 0;
  for (const auto& [object, record] : records_)
    for (const auto& [process, holds] : record.holders) total += holds;
  return total;
}

std::int64_t ReferenceTable::unsent(ProcessIndex by) const {
  std::int64_t total = 0;
  if (const auto found = passing_.find(by); found != passing_.end())
    for (const auto& [ref, count] : found->second) total += count;
  return total;
}

std::int64_t ReferenceTable::unsent(ProcessIndex by, ProcessIndex node, ObjectId object) const {
  const auto passing = passing_.find(by);
  if (passing == passing_.end()) return 0;
  const auto count = passing->second.find({node, object});
  return count == passing->second.end() ? 0 : count->second;
}

}  // namespace troupe::agent
