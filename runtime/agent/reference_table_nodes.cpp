/// ReferenceTable: refs that come from other nodes or go there, and nodes that die.
#include "troupe/runtime/agent/internal/lost.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {

using internal::error_value;
using internal::lost;

std::optional<ProcessIndex> ReferenceTable::owner_of(ObjectId object) const {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.owner == kSelf) return std::nullopt;
  return found->second.owner;
}

ProcessIndex ReferenceTable::export_to(ObjectId object, ProcessIndex to, ProcessIndex by) {
  note_passing(object, to, by, -1);
  const ProcessIndex owner = owner_of(object).value_or(kSelf);
  // Return the count that `by` took for the node where none is needed: the node is the owner, or
  // this node has lost the owner. In the second case the node may take this one for the owner.
  if (owner == kSelf ? was_imported(object) : ends_here(object, to)) {
    count(object, record_of(object), to, -1);
    if (owner != to) note_orphan(object, to);
  }
  return owner;
}

void ReferenceTable::import_from(ObjectId object, ProcessIndex owner, ProcessIndex from) {
  if (owner == kSelf) return;
  Record& record = record_of(object);
  const bool fresh = !record.known;
  // An object has one owner for life. That owner may be dead for this node and may have come back
  // under another index. The record stays as it is, and the sender's count is released.
  if (fresh) {
    // Nodes counted here took this node for the owner. Keep them as orphans instead of holders.
    std::erase_if(record.holders, [&](const auto& holder) {
      if (nodes_.count(holder.first) == 0) return false;
      held_by_[holder.first].erase(object);
      note_orphan(object, holder.first);
      return true;
    });
    record.known = true;
    record.owner = owner;
    ++imported_[owner];
    touch(object, record);
  }
  if (const auto dead = dead_.find(owner); dead != dead_.end()) {
    if (fresh && !outlives_owner(object)) set_value(object, record, error_value(dead->second), {});
    if (from != owner && from != kSelf) out_.peer_hold(from, object, owner, -1);
    return;
  }
  if (from != owner && from != kSelf) {
    passed_by_[owner].emplace(object, from);
    out_.peer_hold(owner, object, from, +1);
  }
  if (from == kSelf && fresh) out_.peer_hold(owner, object, kSelf, +1);
  // Each ref that arrives gets this node counted at the owner. One count is enough: return one.
  if (from != kSelf && !fresh && !TROUPE_MUTANT("references.keeps_surplus"))
    out_.peer_hold(owner, object, kSelf, -1);
}

/// Whether this node has passed the ref on to the node `to`. False if that node has died since and
/// come back under another index.
bool ReferenceTable::was_passed_on(ObjectId object, const Record& record, ProcessIndex to) const {
  if (record.holders.count(to) != 0) return true;
  for (const auto& [by, passing] : passing_)  // the ref has left, and its count is not read yet
    if (const auto entry = passing.find({to, object}); entry != passing.end()) return true;
  return false;
}

void ReferenceTable::note_orphan(ObjectId object, ProcessIndex to) {
  if (orphans_.size() >= kMostOrphans / 2) older_orphans_ = std::exchange(orphans_, {});
  orphans_.insert({to, object});
}

/// Looks up the object under each node: nodes are few, and orphans may be many.
bool ReferenceTable::is_orphan(ObjectId object) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [this, object](ProcessIndex node) {
    return orphans_.count({node, object}) != 0 || older_orphans_.count({node, object}) != 0;
  });
}

/// Whether this node has released a ref whose owner it had lost, and the ref may come back from a
/// node that takes this one for the owner.
bool ReferenceTable::was_imported(ObjectId object) const {
  const auto found = records_.find(object);
  return (found == records_.end() || !found->second.known) && is_orphan(object);
}

void ReferenceTable::peer_hold(ProcessIndex from, ObjectId object, ProcessIndex holder,
                               std::int32_t delta) {
  if (is_dead(from)) return;
  const auto found = records_.find(object);
  const ProcessIndex owner = found == records_.end() ? kSelf : found->second.owner;
  if (holder != from && delta < 0) {
    if (relieve(from, holder, object)) return;
    // The receiver of the ref is counted by its owner, `holder`, or has lost that owner. If this
    // node has lost the owner too, the owner may have another index by now.
    const bool by_its_owner = is_dead(owner) ? stays_counted(object) : owner == holder;
    if (owner != kSelf && by_its_owner && was_passed_on(object, found->second, from) &&
        !TROUPE_MUTANT("references.lets_go_at_export"))
      count(object, found->second, from, delta);
    return;
  }
  // A node that takes this node for the owner, which is lost, gets an answer but no count. The
  // same holds when this node has released the ref before, or when the node has it from a third
  // node.
  if (owner == kSelf && !was_imported(object))
    hold(object, from, delta);
  else if (delta > 0)
    // The node's -1 may arrive after this node has released the ref, and after the death of the
    // node in whose note was_imported() finds it now. A note for `from` recognizes that -1.
    note_orphan(object, from);
  if (holder != from && holder != kSelf) out_.peer_hold(from, object, holder, -1);
}

/// Handles the owner's confirmation that it counts this node: tells the sender of the ref to drop
/// its count. Returns false when no ref from that sender waits for a confirmation.
bool ReferenceTable::relieve(ProcessIndex owner, ProcessIndex sender, ObjectId object) {
  const auto passed = passed_by_.find(owner);
  if (passed == passed_by_.end()) return false;
  const auto first = passed->second.lower_bound(object);
  if (first == passed->second.end() || first->first != object) return false;
  // The owner's answers come in order, so only the first entry can match. An answer about a sender
  // that has died names that sender's node, under any index. A node to which this node passed the
  // ref on sends the same message with the owner as holder; that one is no confirmation.
  const bool has_died = first->second == kSelf;
  if (has_died ? owner_of(object) == sender && was_passed_on(object, records_.at(object), owner)
               : first->second != sender)
    return false;
  passed->second.erase(first);
  if (passed->second.empty()) passed_by_.erase(passed);
  if (!has_died) out_.peer_hold(sender, object, owner, -1);
  return true;
}

/// Tells every sender of a ref of this dead owner to drop its count. No confirmation of the owner
/// can come any more.
void ReferenceTable::relieve_all(ProcessIndex owner) {
  const auto passed = passed_by_.extract(owner);
  if (!passed) return;
  for (const auto& [object, sender] : passed.mapped())
    if (sender != kSelf) out_.peer_hold(sender, object, owner, -1);
}

void ReferenceTable::ready_from_owner(ProcessIndex from, ObjectId object, const wire::Value& value,
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

void ReferenceTable::pulled(ObjectId object, const wire::Location& location) {
  const auto found = records_.find(object);
  if (found == records_.end() || found->second.value.kind != wire::Value::Kind::remote) {
    if (!TROUPE_MUTANT("references.late_bytes_stay")) out_.free(location);
    return;
  }
  Record& record = found->second;
  record.pulling = record.again = false;
  record.value.kind = wire::Value::Kind::shared;
  record.value.location = location;
  want_copies(object, record);
  answer_waiting(object, record);
}

void ReferenceTable::pull_failed(ObjectId object, const Error& error) {
  const auto found = records_.find(object);
  if (found == records_.end() || !found->second.pulling) return;
  Record& record = found->second;
  record.pulling = false;
  // A copy is not computed again: its keeper refuses the PeerKeep instead.
  const bool is_gone =
      error.code() == Code::object_lost && !is_dead(record.owner) && !wire::is_copy(object);
  if (is_gone && !record.again) record.lost = object;  // no rebuild() has set it
  if (is_gone && (record.again || !record.waiting.empty())) return make_again(object, record);
  record.again = false;
  const wire::Value end = error_value(error.shared_info());
  for (const Waiting& who : std::exchange(record.waiting, {}))
    answer_error(object, who.process, end);
}

std::optional<ProcessIndex> ReferenceTable::node_died(ProcessIndex node, const Error& reason) {
  if (is_dead(node)) return std::nullopt;
  nodes_.insert(node);
  drop_counts(node);
  relieve_all(node);
  for (auto* orphans : {&orphans_, &older_orphans_})
    orphans->erase(orphans->lower_bound({node, ObjectId{}}),
                   orphans->lower_bound({ProcessIndex::of(node.value + 1), ObjectId{}}));
  for (auto& [owner, passed] : passed_by_)
    for (auto& [object, sender] : passed)
      if (sender == node) sender = kSelf;  // the owner's answer is still to come
  const wire::Value end = lost("the node that owned the object is gone", &reason);
  dead_[node] = end.error;
  dead_in_order_.push_back(node);
  owner_died(node, end);
  return forget_oldest_death();
}

/// Forgets the node that died first, if too many dead ones are remembered and no record imports
/// from it. A later message that names it is answered as if the node were unknown.
std::optional<ProcessIndex> ReferenceTable::forget_oldest_death() {
  if (dead_in_order_.size() <= kMostDeadNodes) return std::nullopt;
  const ProcessIndex oldest = dead_in_order_.front();
  dead_in_order_.pop_front();
  if (imports_from(oldest)) {
    dead_in_order_.push_back(oldest);
    return std::nullopt;
  }
  for (auto& [object, record] : records_)
    std::erase_if(record.waiting, [oldest](const Waiting& who) { return who.process == oldest; });
  std::erase_if(early_, [oldest](const Early& early) { return early.who.process == oldest; });
  dead_.erase(oldest);
  nodes_.erase(oldest);
  return oldest;
}

void ReferenceTable::owner_died(ProcessIndex node, const wire::Value& lost) {
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

/// Continues with a copy of the object after its owner died before the value or the bytes came.
/// Present waits ask for the copy now; a later await asks for it then.
void ReferenceTable::look_for_copy(ObjectId object, Record& record) {
  if (record.ready) return answer_waiting(object, record);
  record.asked = !record.waiting.empty();
  if (record.asked) out_.peer_await(record.owner, object);
}

/// Drops the counts of nodes to which refs of this dead owner were passed on: no release of theirs
/// can make the owner free anything. Refs that are still to be sent stay counted until they leave.
void ReferenceTable::forget_passed_on(ProcessIndex owner) {
  if (TROUPE_MUTANT("references.waits_for_dead_owner")) return;
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
