#include "troupe/runtime/agent/owners.hpp"

#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

wire::Value error_value(std::shared_ptr<const ErrorInfo> info) {
  wire::Value value;
  value.kind = wire::Value::Kind::error;
  value.error = std::move(info);
  return value;
}

wire::Value lost(std::string message, const Error* cause = nullptr) {
  ErrorInfo info;
  info.code = Code::object_lost;
  info.message = std::move(message);
  if (cause != nullptr) {
    info.cause = cause->shared_info();
    info.origin.node = cause->where().node;
  }
  return error_value(std::make_shared<const ErrorInfo>(std::move(info)));
}

}  // namespace

// --- values
// -----------------------------------------------------------------------------------------------------

void OwnerTable::hold_inner(const wire::Value& value) {
  wire::for_each_ref(value, [&](ObjectId inner) { hold(inner, kSelf, +1); });
}

void OwnerTable::escape(ProcessIndex from, ObjectId object, const wire::Value& value,
                        BlobView payload) {
  hold_inner(value);
  Record& record = records_[object];
  if (record.known) return drop_inner(value);
  record.known = true;
  record.producer = from;
  count(object, record, from, +1);
  if (value.kind != wire::Value::Kind::pending) set_value(object, record, value, payload);
}

void OwnerTable::fulfil(ObjectId object, const wire::Value& value, BlobView payload) {
  hold_inner(value);
  const auto found = records_.find(object);
  if (found == records_.end()) return let_go(value);  // everybody has let go of it
  // Another value: it ended otherwise meanwhile, and the location may be that of the first.
  if (found->second.ready || found->second.owner != kSelf) return drop_inner(value);
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
  if (value.kind == wire::Value::Kind::remote && record.owner == kSelf) {
    drop_inner(value);
    record.value =
        lost("the bytes of the object are at another node, which its owner does not know");
  }
  record.ready = true;
  want_copies(object, record);
  answer_waiting(object, record);
}

bool OwnerTable::is_abroad(const Record& record) const {
  return copies_ && record.owner == kSelf && record.ready && !record.actor &&
         record.value.kind != wire::Value::Kind::remote &&
         (record.reachable ||
          std::any_of(record.holders.begin(), record.holders.end(), [this](const auto& holder) {
            return holder.second > 0 && nodes_.count(holder.first) != 0;
          }));
}

/// Of what its value names, however deep, too: who reads the copy once we are gone finds just the
/// names.
void OwnerTable::want_copies(ObjectId object, const Record& record) {
  if (!is_abroad(record)) return;
  std::vector<std::pair<ObjectId, const Record*>> left{{object, &record}};
  while (!left.empty()) {
    const auto next = left.back();
    left.pop_back();
    out_.wants_copy(next.first);
    wire::for_each_ref(next.second->value, [&](ObjectId inner) {
      const auto found = records_.find(inner);
      if (found == records_.end() || std::exchange(found->second.reachable, true)) return;
      if (is_abroad(found->second)) left.emplace_back(inner, &found->second);
    });
  }
}

OwnerTable::Abroad OwnerTable::held_here(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.ready) return {};
  return {&found->second.value, found->second.payload};
}

bool OwnerTable::outlives_owner(ObjectId object) const {
  return copies_ || wire::has_copies(object);
}

OwnerTable::Record& OwnerTable::record_of(ObjectId object) {
  const auto [at, fresh] = records_.try_emplace(object);
  if (fresh && wire::has_copies(object)) out_.met(object);
  return at->second;
}

OwnerTable::Abroad OwnerTable::held_abroad(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || !is_abroad(found->second)) return {};
  return {&found->second.value, found->second.payload};
}

void OwnerTable::answer_waiting(ObjectId object, Record& record) {
  const std::vector<Waiting> waiting = std::exchange(record.waiting, {});
  for (const Waiting& who : waiting) {
    // Nobody is told of bytes of ours that are not here.
    if (record.value.kind == wire::Value::Kind::remote && (who.fetch || record.owner == kSelf))
      record.waiting.push_back(who);
    else
      answer(object, record, who);
  }
  if (record.waiting.empty() || record.pulling) return;
  record.pulling = true;
  out_.pull(record.owner, object, record.value.remote_bytes);
}

/// The refs inside are counted for the receiver before it can learn of them.
void OwnerTable::answer(ObjectId object, Record& record, const Waiting& to) {
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

/// Whether a ref that goes to this node needs no count of ours: it goes to its owner, which reads
/// our release later, or its owner is dead.
bool OwnerTable::ends_here(ObjectId object, ProcessIndex to) const {
  const auto owner = owner_of(object);
  if (!owner || nodes_.count(to) == 0 || TROUPE_MUTANT("owners.counts_the_owner")) return false;
  return *owner == to || (is_dead(*owner) && !stays_counted(object)) ||
         TROUPE_MUTANT("owners.lets_go_at_departure");
}

/// Also when its owner is dead: until the receiver says that it has the ref.
bool OwnerTable::stays_counted(ObjectId object) {
  return wire::has_copies(object) && !TROUPE_MUTANT("owners.forgets_copied_in_flight");
}

void OwnerTable::tell_as(ObjectId object, ObjectId name, ProcessIndex node) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.ready ||
      found->second.value.kind == wire::Value::Kind::remote)
    return answer_error(name, node, lost("the node has no copy of the object"));
  answer(name, found->second, {node, false});
}

void OwnerTable::answer_error(ObjectId object, ProcessIndex process, const wire::Value& error) {
  if (!is_dead(process)) out_.ready(process, object, error, {});
}

void OwnerTable::await(ObjectId object, ProcessIndex process, bool fetch) {
  if (is_dead(process)) return;
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.known) {
    early_.push_back({object, {process, fetch}});
    return;
  }
  Record& record = found->second;
  record.waiting.push_back({process, fetch});
  if (record.ready) return answer_waiting(object, record);
  if (record.owner == kSelf || record.asked) return;
  record.asked = true;
  out_.peer_await(record.owner, object);
}

void OwnerTable::settle_early() {
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

const wire::Value* OwnerTable::value_of(ObjectId object) const {
  const auto found = records_.find(object);
  return found == records_.end() || !found->second.ready ? nullptr : &found->second.value;
}

// --- lost values
// -----------------------------------------------------------------------------------------------------

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

void OwnerTable::rebuild(ObjectId object, ProcessIndex process, ObjectId lost_one) {
  const auto found = records_.find(object);
  const bool known = found != records_.end() && found->second.known;
  if (!known || !found->second.ready || !leads_to(found->second.value, object, lost_one))
    return await(object, process);  // it is being rebuilt, or was
  Record& record = found->second;
  if (is_dead(process) || (record.owner != kSelf && nodes_.count(process) != 0)) return;
  const bool is_here = record.value.kind == wire::Value::Kind::shared;
  if (is_here && is_good_ && is_good_(record.value.location))
    return await(object, process);  // the bytes that it means were here before these
  const bool has_twin = outlives_owner(object) || (record.owner != kSelf && !is_dead(record.owner));
  if (is_here && !has_twin && record.producer == process && !record.kept)
    return answer_error(object, process, lost("whoever made it cannot make it again"));
  record.waiting.push_back({process, true});
  record.lost = lost_one;
  if (record.again) return;
  if (is_here && has_twin) return pull_again(object, record);
  make_again(object, record);
}

/// What is known of its value leads to bytes that are nowhere.
void OwnerTable::make_again(ObjectId object, Record& record) {
  const ObjectId lost_one = record.lost;
  if (copies_ && record.owner == kSelf) out_.copy_over(object);
  drop_value(record);
  if (record.owner != kSelf && is_dead(record.owner))
    set_value(object, record, error_value(dead_.at(record.owner)), {});
  else if (record.owner != kSelf)
    out_.peer_rebuild(record.owner, object, lost_one);
  else if (is_dead(record.producer) && record.kept)
    out_.orphaned(object, lost_one);
  else if (is_dead(record.producer) && !TROUPE_MUTANT("owners.asks_the_dead"))
    set_value(object, record,
              lost("the process that made it has ended, and no call is kept that could make it "
                   "again: it was put, is the result of an actor's method, or its task may not "
                   "run twice"),
              {});
  else
    out_.rebuild(record.producer, object, lost_one);
}

/// The refs inside stay as they are: those of the copy that comes are the same.
void OwnerTable::pull_again(ObjectId object, Record& record) {
  record.value.remote_bytes = record.value.location.length;
  out_.free(std::exchange(record.value.location, {}));
  record.value.kind = wire::Value::Kind::remote;
  record.again = record.pulling = true;
  out_.pull(record.owner, object, record.value.remote_bytes);
}

void OwnerTable::rebuilt(ProcessIndex from, ObjectId object, const wire::Value& value,
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

void OwnerTable::keeps_lineage(ProcessIndex from, ObjectId object) {
  const auto found = records_.find(object);
  if (found != records_.end() && found->second.producer == from)
    found->second.has_lineage = true;
  else if (!is_dead(from))
    out_.lineage_over(from, object);
}

bool OwnerTable::made_by_kept_call(ProcessIndex from, ObjectId object) {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.owner != kSelf || found->second.producer != from)
    return false;
  return found->second.kept = true;
}

bool OwnerTable::entrust(ObjectId object, ProcessIndex process) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.kept || !is_dead(found->second.producer))
    return false;
  found->second.producer = process;
  return found->second.has_lineage = true;
}

std::optional<ProcessIndex> OwnerTable::maker_of(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || is_dead(found->second.producer)) return std::nullopt;
  return found->second.producer;
}

void OwnerTable::gone(ObjectId object, const Error& why) {
  const auto found = records_.find(object);
  if (found != records_.end() && !found->second.ready)
    set_value(object, found->second, error_value(why.shared_info()), {});
}

/// Nobody knows the value any more.
void OwnerTable::drop_value(Record& record) {
  record.ready = false;
  record.pulling = record.again = false;
  record.payload.clear();
  const wire::Value value = std::exchange(record.value, {});
  if (!TROUPE_MUTANT("owners.keeps_lost_value")) let_go(value);
}

// --- counts
// -----------------------------------------------------------------------------------------------------

void OwnerTable::stands_for(ObjectId lifetime, ActorId actor, ProcessIndex creator) {
  Record& record = records_[lifetime];
  record.known = true;
  record.actor = actor;
  count(lifetime, record, creator, +1);
}

void OwnerTable::hold(ObjectId object, ProcessIndex process, std::int32_t delta, ProcessIndex by) {
  note_passing(object, process, by, delta);
  if (delta > 0 && is_dead(process)) return;
  count(object, record_of(object), process, delta);
}

void OwnerTable::count(ObjectId object, Record& record, ProcessIndex process, std::int64_t delta) {
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

/// Its counts have changed.
void OwnerTable::touch(ObjectId object, Record& record) {
  record.aged = false;
  if (record.holders.empty())
    candidates_.insert(object);
  else
    candidates_.erase(object);
}

void OwnerTable::drop_counts(ProcessIndex process) {
  const std::set<ObjectId> held = std::exchange(held_by_[process], {});
  held_by_.erase(process);
  for (const ObjectId object : held) {
    const auto found = records_.find(object);
    if (found == records_.end()) continue;
    found->second.holders.erase(process);
    touch(object, found->second);
  }
}

void OwnerTable::note_passing(ObjectId object, ProcessIndex to, ProcessIndex by,
                              std::int64_t delta) {
  if (by == kSelf || nodes_.count(to) == 0 || is_dead(by)) return;
  auto& passing = passing_[by];
  const auto entry = passing.try_emplace({to, object}, 0).first;
  if ((entry->second += delta) == 0) passing.erase(entry);
}

void OwnerTable::return_unsent(ProcessIndex by) {
  const auto found = passing_.find(by);
  if (found == passing_.end()) return;
  for (const auto& [ref, unsent] : found->second)
    if (unsent > 0 && !TROUPE_MUTANT("owners.unsent_stays"))
      count(ref.second, records_[ref.second], ref.first, -unsent);
  passing_.erase(found);
}

void OwnerTable::process_died(ProcessIndex process, const Error& reason) {
  return_unsent(process);
  drop_counts(process);
  const wire::Value end = lost("the process that was to compute it died", &reason);
  dead_[process] = nullptr;
  for (auto& [object, record] : records_) {
    if (!record.known || record.owner != kSelf || record.ready || record.actor ||
        record.producer != process)
      continue;
    if (record.kept && !TROUPE_MUTANT("owners.orphans_once"))
      out_.orphaned(object, record.lost);
    else
      set_value(object, record, end, {});
  }
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
    // Freeing another of them may have changed this one.
    if (found == records_.end() || candidates_.count(object) == 0 || !found->second.aged) continue;
    candidates_.erase(object);
    const Record record = std::move(found->second);
    records_.erase(found);
    if (record.owner != kSelf && --borrowed_[record.owner] == 0) borrowed_.erase(record.owner);
    release(object, record);
  }
  return !candidates_.empty() || !early_.empty();
}

/// Who still waits has let go as well. A borrowed object may live on elsewhere and come again: who
/// meets it anew awaits it anew, and a late "lost" would be taken for the answer.
void OwnerTable::release(ObjectId object, const Record& record) {
  if (record.owner == kSelf || TROUPE_MUTANT("owners.says_lost_of_borrowed"))
    for (const Waiting& who : record.waiting)
      answer_error(object, who.process, lost("the object is not known to its owner"));
  if (record.actor) out_.unreferenced(record.actor);
  if (copies_ && record.owner == kSelf) out_.copy_over(object);
  if (wire::has_copies(object) && record.owner == kSelf) out_.copies_over(object);
  if (record.ready) let_go(record.value);
  if (record.has_lineage && !is_dead(record.producer)) out_.lineage_over(record.producer, object);
  if (record.kept) out_.lineage_over(kSelf, object);
  if (record.owner != kSelf && !is_dead(record.owner))
    out_.peer_hold(record.owner, object, kSelf, -1);
}

void OwnerTable::drop_inner(const wire::Value& value) {
  wire::for_each_ref(value, [&](ObjectId inner) { hold(inner, kSelf, -1); });
}

void OwnerTable::let_go(const wire::Value& value) {
  drop_inner(value);
  if (value.kind == wire::Value::Kind::shared) out_.free(value.location);
}

std::int64_t OwnerTable::total_holds() const {
  std::int64_t total = 0;
  for (const auto& [object, record] : records_)
    for (const auto& [process, holds] : record.holders) total += holds;
  return total;
}

// --- other nodes
// -----------------------------------------------------------------------------------------------------

std::optional<ProcessIndex> OwnerTable::owner_of(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.owner == kSelf) return std::nullopt;
  return found->second.owner;
}

ProcessIndex OwnerTable::depart(ObjectId object, ProcessIndex to, ProcessIndex by) {
  note_passing(object, to, by, -1);
  const ProcessIndex owner = owner_of(object).value_or(kSelf);
  if (owner == kSelf) return kSelf;
  if (ends_here(object, to)) {
    count(object, records_.at(object), to, -1);
    if (owner != to) orphans_.insert({to, object});
  }
  return owner;
}

void OwnerTable::borrow(ObjectId object, ProcessIndex owner, ProcessIndex from) {
  if (owner == kSelf) return;
  Record& record = record_of(object);
  const bool fresh = !record.known;
  // One owner for life, but that may be dead for us and have come back under another index. What
  // we have stays as it is; whoever counts us is relieved.
  if (fresh) {
    // Nodes that have counted here took us for the owner, which we may have been: as orphans.
    std::erase_if(record.holders, [&](const auto& holder) {
      if (nodes_.count(holder.first) == 0) return false;
      held_by_[holder.first].erase(object);
      orphans_.insert({holder.first, object});
      return true;
    });
    record.known = true;
    record.owner = owner;
    ++borrowed_[owner];
    touch(object, record);
  }
  if (const auto dead = dead_.find(owner); dead != dead_.end()) {
    if (fresh && !outlives_owner(object)) set_value(object, record, error_value(dead->second), {});
    if (from != owner && from != kSelf) out_.peer_hold(from, object, owner, -1);
    return;
  }
  if (from != owner && from != kSelf) {
    ++passed_by_[owner][{from, object}];
    out_.peer_hold(owner, object, from, +1);
  }
  if (from == kSelf && fresh) out_.peer_hold(owner, object, kSelf, +1);
  if (from != kSelf && !fresh && !TROUPE_MUTANT("owners.keeps_surplus"))
    out_.peer_hold(owner, object, kSelf, -1);
}

/// To a node that we know, and that has not died and come back since.
bool OwnerTable::was_passed_on(ObjectId object, const Record& record, ProcessIndex to) const {
  if (record.holders.count(to) != 0) return true;
  for (const auto& [by, passing] : passing_)  // it has left, and its count is still to be read
    if (const auto entry = passing.find({to, object}); entry != passing.end()) return true;
  return false;
}

void OwnerTable::peer_hold(ProcessIndex from, ObjectId object, ProcessIndex holder,
                           std::int32_t delta) {
  if (is_dead(from)) return;
  const auto found = records_.find(object);
  const ProcessIndex owner = found == records_.end() ? kSelf : found->second.owner;
  if (holder != from && delta < 0) {
    if (relieve(from, holder, object)) return;
    // Whom we passed the ref to is counted by its owner, `holder`, or has lost it. An owner that we
    // have lost may have another index by now.
    const bool by_its_owner = is_dead(owner) ? stays_counted(object) : owner == holder;
    if (owner != kSelf && by_its_owner && was_passed_on(object, found->second, from) &&
        !TROUPE_MUTANT("owners.lets_go_at_departure"))
      count(object, found->second, from, delta);
    return;
  }
  // A node that takes us for the owner, whom we have lost, is answered; we count nobody for it,
  // also when we have let go of the ref before, or the node has it from one that we sent it to.
  const auto is_orphan = [this, object] {  // nodes are few, and orphans may be many
    return std::any_of(nodes_.begin(), nodes_.end(), [this, object](ProcessIndex node) {
      return orphans_.count({node, object}) != 0;
    });
  };
  const bool known = found != records_.end() && found->second.known;
  const bool borrowed = owner != kSelf || (!known && is_orphan());
  if (!borrowed) hold(object, from, delta);
  if (holder != from && holder != kSelf) out_.peer_hold(from, object, holder, -1);
}

/// The owner has counted us, or is lost to us: who passed the ref on to us need not count us any
/// more. False when it passed on nothing that waits for this.
bool OwnerTable::relieve(ProcessIndex owner, ProcessIndex sender, ObjectId object) {
  const auto passed = passed_by_.find(owner);
  if (passed == passed_by_.end()) return false;
  const auto entry = passed->second.find({sender, object});
  if (entry == passed->second.end()) return false;
  if (--entry->second == 0) passed->second.erase(entry);
  if (passed->second.empty()) passed_by_.erase(passed);
  out_.peer_hold(sender, object, owner, -1);
  return true;
}

/// Nobody else would tell those who passed its refs on to us.
void OwnerTable::relieve_all(ProcessIndex owner) {
  const auto passed = passed_by_.extract(owner);
  if (!passed) return;
  for (const auto& [ref, count] : passed.mapped())
    for (std::uint64_t n = 0; n < count; ++n) out_.peer_hold(ref.first, ref.second, owner, -1);
}

void OwnerTable::ready_from_owner(ProcessIndex from, ObjectId object, const wire::Value& value,
                                  BlobView payload) {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.owner != from || found->second.ready) return;
  Record& record = found->second;
  hold_inner(value);
  if (value.kind == wire::Value::Kind::pending || value.kind == wire::Value::Kind::shared) {
    drop_inner(value);
    return set_value(object, record, lost("its owner's answer makes no sense"), {});
  }
  set_value(object, record, value, payload);
}

void OwnerTable::each(const std::function<void(const Seen&)>& look_at) const {
  for (const auto& [object, record] : records_)
    if (record.known && !record.actor)
      look_at({object, record.value, record.ready, record.owner, record.producer, record.holders});
}

void OwnerTable::pulled(ObjectId object, const wire::Location& location) {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.value.kind != wire::Value::Kind::remote) {
    if (!TROUPE_MUTANT("owners.late_bytes_stay")) out_.free(location);
    return;
  }
  Record& record = found->second;
  record.pulling = record.again = false;
  record.value.kind = wire::Value::Kind::shared;
  record.value.location = location;
  want_copies(object, record);
  answer_waiting(object, record);
}

void OwnerTable::pull_failed(ObjectId object, const Error& error) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.pulling) return;
  Record& record = found->second;
  record.pulling = false;
  const bool is_gone = error.code() == Code::object_lost && !is_dead(record.owner);
  if (is_gone && !record.again) record.lost = object;  // the first that we hear of it
  if (is_gone && (record.again || !record.waiting.empty())) return make_again(object, record);
  record.again = false;
  const wire::Value end = error_value(error.shared_info());
  for (const Waiting& who : std::exchange(record.waiting, {}))
    answer_error(object, who.process, end);
}

void OwnerTable::node_died(ProcessIndex node, const Error& reason) {
  if (is_dead(node)) return;
  nodes_.insert(node);
  drop_counts(node);
  relieve_all(node);
  orphans_.erase(orphans_.lower_bound({node, ObjectId{}}),
                 orphans_.lower_bound({node + 1, ObjectId{}}));
  for (auto passed = passed_by_.begin(); passed != passed_by_.end();) {
    std::erase_if(passed->second, [node](const auto& entry) { return entry.first.first == node; });
    passed = passed->second.empty() ? passed_by_.erase(passed) : std::next(passed);
  }
  const wire::Value end = lost("the node that owned the object is gone", &reason);
  dead_[node] = end.error;
  owner_died(node, end);
}

void OwnerTable::owner_died(ProcessIndex node, const wire::Value& lost) {
  forget_passed_on(node);
  for (auto& [object, record] : records_) {
    if (record.owner != node) continue;
    if (record.ready && record.value.kind != wire::Value::Kind::remote) continue;
    record.pulling = record.again = false;
    if (outlives_owner(object)) {
      look_for_copy(object, record);
      continue;
    }
    drop_inner(std::exchange(record.value, {}));
    set_value(object, record, lost, {});
  }
}

/// Its owner has died before its value, or its bytes, came: whoever waits for them waits for its
/// copy, and who comes later asks for that.
void OwnerTable::look_for_copy(ObjectId object, Record& record) {
  if (record.ready) return answer_waiting(object, record);
  record.asked = !record.waiting.empty();
  if (record.asked) out_.peer_await(record.owner, object);
}

/// Nobody can free what a dead owner owned: the nodes to which we passed its refs need no count of
/// ours. What is still to be sent stays counted until it is.
void OwnerTable::forget_passed_on(ProcessIndex owner) {
  if (TROUPE_MUTANT("owners.waits_for_dead_owner")) return;
  for (auto& [object, record] : records_) {
    if (record.owner != owner || stays_counted(object)) continue;
    for (auto holder = record.holders.begin(); holder != record.holders.end();) {
      const bool passed_on = nodes_.count(holder->first) != 0;
      if (passed_on) held_by_[holder->first].erase(object);
      holder = passed_on ? record.holders.erase(holder) : std::next(holder);
    }
    touch(object, record);
  }
  for (const auto& [by, passing] : passing_)
    for (const auto& [ref, unsent] : passing)
      if (const auto found = records_.find(ref.second);
          found != records_.end() && found->second.owner == owner && !stays_counted(ref.second))
        count(ref.second, found->second, ref.first, unsent);
}

}  // namespace troupe::agent
