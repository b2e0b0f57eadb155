/// Replicas: the keepers of a lost owner's object restore the number of its copies.
#include "troupe/runtime/agent/replicas.hpp"
#include "troupe/runtime/base/buggify.hpp"

#include <algorithm>

namespace troupe::agent {

// --- keepers tell each other what they keep

void Replicas::begin_orphan(ObjectId object, Time now) {
  Orphan& orphan = orphans_[object];
  if (orphan.told) return;
  untold_.push_back(object);
  look_at(object, orphan, now + options_.repair_after);
}

void Replicas::end_orphan(ObjectId object) {
  const auto gone = orphans_.extract(object);
  if (!gone) return;
  too_few_.erase(object);
  orphans_due_.erase({gone.mapped().due, object});
  if (gone.mapped().asked) --making_;
}

void Replicas::look_at(ObjectId object, Orphan& orphan, Time due) {
  orphans_due_.erase({orphan.due, object});
  orphan.due = due;
  if (due != Time::max()) orphans_due_.emplace(due, object);
}

void Replicas::tell_all() {
  std::erase_if(untold_, [&](const ObjectId object) { return orphans_.count(object) == 0; });
  for (std::size_t from = 0; from < untold_.size(); from += wire::kMaxHeld) {
    const auto begin = untold_.begin() + static_cast<std::ptrdiff_t>(from);
    const std::size_t count = std::min(wire::kMaxHeld, untold_.size() - from);
    const wire::PeerKeeping message{{begin, begin + static_cast<std::ptrdiff_t>(count)}};
    for (const Candidate& one : out_.other_nodes()) out_.send(one.node, message);
    for (const ObjectId object : message.objects) orphans_.at(object).told = true;
  }
  untold_.clear();
}

/// Notes the sender as a keeper, even before this node knows that the owner is lost. A keeper that
/// is new here gets this node's PeerKeeping in return.
void Replicas::on_keeping(NodeId from, const wire::PeerKeeping& message) {
  wire::PeerKeeping ours;
  for (const ObjectId object : message.objects) {
    if (kept_.count(object) == 0) continue;
    Orphan& orphan = orphans_[object];
    if (orphan.also.insert(from).second && orphan.told) ours.objects.push_back(object);
  }
  if (!ours.objects.empty()) out_.send(from, ours);
}

void Replicas::orphans_without(NodeId node, Time now) {
  for (auto& [object, orphan] : orphans_) {
    const bool was_asked = orphan.asked == node;
    orphan.refused.erase(node);
    if (was_asked) repair_answered(object, orphan, now + options_.repair_after);
    if (orphan.also.erase(node) != 0 && !orphan.asked)
      look_at(object, orphan, now + options_.repair_after);
  }
}

// --- the keeper with the lowest id asks for further copies

void Replicas::repair(Time now) {
  while (making_ < options_.repairs_at_once && !orphans_due_.empty() &&
         orphans_due_.begin()->first <= now) {
    const ObjectId object = orphans_due_.begin()->second;
    Orphan& orphan = orphans_.at(object);
    look_at(object, orphan, Time::max());
    repair(object, orphan, now);
  }
}

void Replicas::repair(ObjectId object, Orphan& orphan, Time now) {
  const Kept& kept = kept_.at(object);
  const wire::Value* value = references_.value_of(wire::copy_of(object));
  const bool is_good = value != nullptr && value->kind != wire::Value::Kind::error;
  const bool is_first = orphan.also.empty() || self_ < *orphan.also.begin();
  const bool enough =
      1 + orphan.also.size() >= kept.copies || TROUPE_MUTANT("replicas.stays_alone");
  if (orphan.asked || !is_orphan(kept) || !is_good || enough || !is_first) return;
  std::optional<Candidate> best;
  for (const Candidate& one : out_.other_nodes())
    if (one.accepts && orphan.also.count(one.node) == 0 && orphan.refused.count(one.node) == 0 &&
        (!best || one.free_bytes > best->free_bytes))
      best = one;
  if (!best) {
    too_few_.insert(object);
    if (!orphan.refused.empty()) look_at(object, orphan, now + options_.longest_round);
    orphan.refused.clear();  // ask these nodes again then
    return;
  }
  orphan.asked = best->node;
  ++making_;
  references_.stands_in(wire::copy_of(object), out_.index_of(best->node));
  out_.send(best->node, wire::PeerKeep{object, true, kept.copies, true});
}

void Replicas::repair_answered(ObjectId object, Orphan& orphan, Time due) {
  orphan.asked = {};
  --making_;
  look_at(object, orphan, due);
}

void Replicas::on_repaired(NodeId from, const wire::PeerKept& message) {
  const auto at = orphans_.find(message.object);
  if (at == orphans_.end() || at->second.asked != from) return;
  (message.error ? at->second.refused : at->second.also).insert(from);
  repair_answered(at->first, at->second, Time{});
}

// --- the node that is asked

/// Answers a PeerKeep at a node that has the object already or is fetching it.
void Replicas::answer_keeper(NodeId from, ObjectId object) {
  std::shared_ptr<const ErrorInfo> why;
  if (owned_.count(object) == 0 && !is_here(object))
    why = Error(Code::unavailable, "the node is fetching it already").shared_info();
  out_.send(from, wire::PeerKept{object, why});
}

bool Replicas::is_coming(ObjectId object) const {
  const auto kept = kept_.find(object);
  return kept != kept_.end() && !kept->second.here && !kept->second.owner;
}

void Replicas::keep_repaired(NodeId from, const wire::PeerKeep& message) {
  const ObjectId object = message.object, copy = wire::copy_of(object);
  // This node may be the owner: the asker has then lost touch with it for a while.
  if (owned_.count(object) != 0 || kept_.count(object) != 0 || searches_.count(object) != 0)
    return answer_keeper(from, object);
  const ProcessIndex index = out_.index_of(from);
  Kept& fresh = kept_[object];
  fresh.from = from;
  fresh.index = index;
  fresh.copies = message.copies;
  orphans_[object].also.insert(from);
  references_.import_from(copy, index, index);
  references_.hold(copy, kSelf, +1);
  references_.await(copy, kSelf, true);
}

}  // namespace troupe::agent
