#include "troupe/runtime/agent/replicas.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <algorithm>
#include <string>

namespace troupe::agent {
namespace {

constexpr int kFailures = 4;  ///< pulls that may fail before a search ends in the error

}  // namespace

// --- as owner

void Replicas::want(ProcessIndex process, const wire::Replicate& message, Time now) {
  Owned& owned = owned_[message.object];
  owned.copies = message.copies;
  owned.process = process;
  owned.request = message.request;
  const auto most = static_cast<std::uint64_t>((Time::max() - now).count());
  owned.until = message.timeout_ns >= most ? Time::max() : now + Duration(message.timeout_ns);
  waiting_.insert(message.object);
  const std::size_t nodes = 1 + out_.other_nodes().size();
  if (nodes < message.copies)
    return answer(message.object, owned,
                  Error(Code::infeasible, std::to_string(message.copies) +
                                              " nodes were to have a copy, and the cluster has " +
                                              std::to_string(nodes)));
  advance(message.object, owned);
}

void Replicas::advance(ObjectId object, Owned& owned) {
  while (1 + owned.have.size() + owned.asked.size() < owned.copies && ask_one_more(object, owned)) {
  }
  const bool enough = 1 + owned.have.size() >= owned.copies;
  if (1 + owned.have.size() + owned.asked.size() < owned.copies) short_.insert(object);
  if (waiting_.count(object) == 0) return;
  if (enough || TROUPE_MUTANT("replicas.answers_early")) return answer(object, owned, {});
  if (!owned.asked.empty()) return;
  const std::string how_many = std::to_string(1 + owned.have.size()) + " of " +
                               std::to_string(owned.copies) + " nodes could have a copy";
  answer(object, owned,
         owned.why ? Error(owned.why->code(), how_many + ": " + owned.why->message())
                   : Error(Code::unavailable, how_many + "; no other node takes one now"));
}

/// Asks the node with the most free memory for a copy and counts it as a holder. Returns false
/// when no node is left.
bool Replicas::ask_one_more(ObjectId object, Owned& owned) {
  std::optional<Candidate> best;
  for (const Candidate& one : out_.other_nodes())
    if (one.accepts && owned.asked.count(one.node) == 0 && owned.have.count(one.node) == 0 &&
        owned.refused.count(one.node) == 0 && (!best || one.free_bytes > best->free_bytes))
      best = one;
  if (!best) return false;
  owned.asked.insert(best->node);
  references_.hold(wire::copy_of(object), out_.index_of(best->node), +1);
  out_.send(best->node, wire::PeerKeep{object, true, owned.copies});
  return true;
}

/// Answers the process that wanted the copies. After an error no copies are kept.
void Replicas::answer(ObjectId object, Owned& owned, std::optional<Error> error) {
  waiting_.erase(object);
  wire::Replicated answer{owned.request, nullptr};
  const ProcessIndex process = owned.process;
  if (error) {
    answer.error = error->shared_info();
    end(object);
  }
  out_.replicated(process, answer);
}

void Replicas::on_kept(NodeId from, const wire::PeerKept& message) {
  const auto found = owned_.find(message.object);
  if (found == owned_.end()) return on_repaired(from, message);
  if (found->second.asked.erase(from) == 0) return;
  Owned& owned = found->second;
  if (message.error) {
    owned.refused.insert(from);
    owned.why = Error(*message.error);
  } else {
    owned.have.insert(from);
  }
  advance(message.object, owned);
}

void Replicas::end(ObjectId object) {
  const auto gone = owned_.extract(object);
  waiting_.erase(object);
  short_.erase(object);
  if (!gone || TROUPE_MUTANT("replicas.copies_stay")) return;
  for (const std::set<NodeId>* nodes : {&gone.mapped().asked, &gone.mapped().have})
    for (const NodeId node : *nodes) out_.send(node, wire::PeerKeep{object, false});
}

void Replicas::nodes_changed() {
  for (const ObjectId object : std::exchange(short_, {})) {
    Owned& owned = owned_.at(object);
    owned.refused.clear();
    advance(object, owned);
  }
  for (const ObjectId object : std::exchange(too_few_, {}))
    if (const auto at = orphans_.find(object); at != orphans_.end())
      look_at(object, at->second, Time{});
}

void Replicas::process_died(ProcessIndex process) {
  std::erase_if(waiting_,
                [&](const ObjectId object) { return owned_.at(object).process == process; });
}

// --- as keeper

void Replicas::on_keep(NodeId from, const wire::PeerKeep& message, Time now) {
  const ObjectId object = message.object, copy = wire::copy_of(object);
  if (!wire::has_copies(object)) return;
  if (!message.keep) {
    const auto found = kept_.find(object);
    if (found != kept_.end() && found->second.owner == from) drop_copy(object);
    return;
  }
  if (message.orphan) return keep_repaired(from, message);
  const ProcessIndex owner = out_.index_of(from);
  const auto [at, fresh] = kept_.try_emplace(object);
  if (!fresh && !at->second.owner) {  // another keeper, which had lost the owner, asked for it
    references_.import_from(copy, owner, owner);
    return answer_keeper(from, object);
  }
  at->second.owner = at->second.from = from;
  at->second.index = owner;
  at->second.copies = message.copies;
  references_.import_from(copy, owner, owner);
  if (fresh) references_.hold(copy, kSelf, +1);
  references_.await(copy, kSelf, true);
  if (references_.is_dead(owner)) round_due_ = std::min(round_due_, now + pause_);
}

void Replicas::drop_copy(ObjectId object) {
  end_orphan(object);
  if (kept_.erase(object) != 0) references_.hold(wire::copy_of(object), kSelf, -1);
}

void Replicas::take_arrived(Time now) {
  for (const auto& [copy, value] : std::exchange(arrived_, {})) {
    wire::for_each_ref(value, [&](ObjectId inner) { references_.hold(inner, kSelf, -1); });
    const ObjectId object = wire::original_of(copy);
    const auto found = kept_.find(object);
    if (found == kept_.end()) continue;
    Kept& kept = found->second;
    const bool failed = value.kind == wire::Value::Kind::error;
    // Only to the life of the node that asked: its next life would take this for the answer to a
    // question of its own.
    if (!references_.is_dead(kept.index))
      out_.send(kept.from, wire::PeerKept{object, failed ? value.error : nullptr});
    if (failed) {
      drop_copy(object);
      continue;
    }
    const bool is_new = !std::exchange(kept.here, true);
    if (!is_orphan(kept)) continue;
    round_due_ = std::min(round_due_, now + pause_);
    if (!is_new) continue;
    begin_orphan(object, now);
    if (const auto search = searches_.find(object); search != searches_.end()) {
      search->second.again = now;
      fresh_.insert(object);
    }
  }
}

void Replicas::on_await(NodeId from, ObjectId copy) {
  const ObjectId object = wire::original_of(copy);
  references_.tell_as(is_here(object) ? copy : object, copy, out_.index_of(from));
}

void Replicas::on_find(NodeId from, ObjectId object) {
  references_.tell_as(is_here(object) ? wire::copy_of(object) : ObjectId{}, object,
                      out_.index_of(from));
}

// --- as reader

void Replicas::look(ProcessIndex owner, ObjectId object) {
  search(owner, object, {});
}

void Replicas::fetch(ProcessIndex owner, ObjectId object, std::uint64_t bytes) {
  search(owner, object, bytes);
}

void Replicas::search(ProcessIndex owner, ObjectId object, std::optional<std::uint64_t> bytes) {
  Search& search = searches_[object];
  if (search.from) {  // the bytes are on their way
    search.anew = search.anew || !bytes;
    return;
  }
  search.owner = owner;
  search.bytes = bytes;
  search.begun = false;
  fresh_.insert(object);
}

/// Begins the search again, for the value, if the object was released and wanted again while its
/// bytes were on their way. Returns whether it did.
bool Replicas::look_anew(ObjectId object, Search& search) {
  if (!search.anew) return false;
  const ProcessIndex owner = search.owner;
  search = {};
  search.owner = owner;
  fresh_.insert(object);
  return true;
}

void Replicas::ask_all(ObjectId object, Search& search) {
  for (const Candidate& one : out_.other_nodes())
    if (search.asked.insert(one.node).second) out_.send(one.node, wire::PeerFind{object});
}

bool Replicas::is_here(ObjectId object) const {
  const auto kept = kept_.find(object);
  return kept != kept_.end() && kept->second.here;
}

void Replicas::go_on(Time now) {
  if (fresh_.empty() && now < search_due_) return;
  fresh_.clear();
  search_due_ = Time::max();
  std::vector<std::pair<ObjectId, Search>> over;
  for (auto at = searches_.begin(); at != searches_.end();) {
    auto& [object, search] = *at;
    if (!std::exchange(search.begun, true)) {
      search.until = now + options_.look_for;
      search.again = now;
    }
    // A repair copy on its way here will end the search: keep that alive and ask no node.
    if (is_coming(object) && search.asked.empty() && !search.from) {
      search.again = now + options_.look_again;
      search.until = std::max(search.until, search.again + options_.look_again);
    }
    if (search.asked.empty() && !search.from && search.again <= now) {
      if (now >= search.until || is_here(object)) {
        over.emplace_back(object, std::move(search));
        at = searches_.erase(at);
        continue;
      }
      search.again = now + options_.look_again;
      ask_all(object, search);
    }
    if (search.asked.empty() && !search.from) search_due_ = std::min(search_due_, search.again);
    ++at;
  }
  for (const auto& [object, search] : over)  // after the loop above: these may begin a search
    if (!is_here(object))
      out_.not_found(search.owner, object, search.bytes);
    else if (search.bytes)
      out_.lend(object);
    else
      out_.found_here(search.owner, object);
}

std::optional<ProcessIndex> Replicas::answered(NodeId from, ObjectId object, bool found) {
  const auto at = searches_.find(object);
  if (at == searches_.end() || at->second.asked.erase(from) == 0) return std::nullopt;
  Search& search = at->second;
  if (!found) {
    if (search.asked.empty()) fresh_.insert(object);  // go_on() asks again or ends the search
    return std::nullopt;
  }
  search.asked.clear();
  if (!search.bytes) {
    const ProcessIndex owner = search.owner;
    searches_.erase(at);
    return owner;
  }
  search.from = from;
  out_.pull_copy(from, wire::copy_of(object), *search.bytes);
  return std::nullopt;
}

bool Replicas::pulled(ObjectId copy, NodeId from) {
  const auto at = searches_.find(wire::original_of(copy));
  if (at == searches_.end() || at->second.from != from) return false;
  if (!look_anew(at->first, at->second)) searches_.erase(at);
  return true;
}

bool Replicas::pull_failed(ObjectId pulled, NodeId from, const Error& error) {
  const ObjectId object = wire::original_of(pulled);
  const auto at = searches_.find(object);
  const bool elsewhere = error.code() == Code::object_lost || error.code() == Code::unavailable;
  if (wire::has_copies(pulled)) {  // a pull of the object from its owner, not of a copy
    if (at != searches_.end()) return true;
    const wire::Value* value = references_.value_of(pulled);
    const auto owner = references_.owner_of(pulled);
    if (error.code() != Code::unavailable || !owner || value == nullptr) return false;
    search(*owner, object, value->remote_bytes);
    return true;
  }
  if (at == searches_.end() || at->second.from != from) return false;
  Search& search = at->second;
  if (look_anew(object, search)) return true;
  if (elsewhere && ++search.failures < kFailures) {
    search.from = {};
    fresh_.insert(object);
    return true;
  }
  searches_.erase(at);
  references_.pull_failed(object, error);
  return true;
}

// --- copies whose owners are lost

std::vector<ObjectId> Replicas::unused(NodeId asker, const std::vector<ObjectId>& objects) {
  const std::set<ObjectId> before = std::exchange(watched_[asker], {});
  std::vector<ObjectId> unused;
  for (const ObjectId object : objects) {
    if (references_.knows(object)) continue;
    watched_[asker].insert(object);
    if (before.count(object) != 0) unused.push_back(object);
  }
  return unused;
}

void Replicas::on_held(NodeId from, const wire::PeerHeld& message) {
  const bool agree = message.members == members() || TROUPE_MUTANT("replicas.believes_the_dead");
  std::vector<ObjectId> names;
  if (agree)
    names = unused(from, message.objects);
  else
    watched_.erase(from);
  out_.send(from, wire::PeerUnused{message.round, std::move(names)});
}

/// A digest of the live nodes that this node knows, itself included. It does not depend on their
/// order, so nodes that know the same ones agree.
std::uint64_t Replicas::members() {
  std::uint64_t digest = std::hash<NodeId>()(self_);
  for (const Candidate& one : out_.other_nodes()) digest += std::hash<NodeId>()(one.node);
  return digest;
}

void Replicas::met(ObjectId object) {
  for (auto& [asker, objects] : watched_) objects.erase(object);
}

/// The objects of the next round: each batch twice in a row, since only the second question can
/// find an object unused, then the next ids.
std::vector<ObjectId> Replicas::next_batch() {
  std::vector<ObjectId> objects;
  const auto take = [&](const auto& kept) {
    if (may_end(kept.second) && objects.size() < wire::kMaxHeld) objects.push_back(kept.first);
  };
  if (std::exchange(once_more_, false))
    for (const auto& [object, unused] : asked_about_)
      if (const auto kept = kept_.find(object); kept != kept_.end()) take(*kept);
  if (!objects.empty()) return objects;
  std::for_each(kept_.upper_bound(last_asked_), kept_.end(), take);
  if (objects.empty()) std::for_each(kept_.begin(), kept_.end(), take);
  once_more_ = !objects.empty();
  return objects;
}

bool Replicas::may_end(const Kept& kept) const {
  const bool nameless =
      kept.nameless || !options_.names || TROUPE_MUTANT("replicas.names_hold_nothing");
  return nameless && is_orphan(kept);
}

/// Asks control about each kept object that may be held by a name alone. Returns whether there are
/// any; the caller then asks again later.
bool Replicas::ask_names() {
  bool some = false;
  if (options_.names)
    for (const auto& [object, kept] : kept_)
      if (is_orphan(kept) && !kept.nameless) {
        out_.ask_name_of(object);
        some = true;
      }
  return some;
}

void Replicas::on_name(ObjectId object, bool has_one, Time now) {
  const auto kept = kept_.find(object);
  if (kept == kept_.end() || !is_orphan(kept->second) || has_one) return;
  kept->second.nameless = true;
  pause_ = options_.round;
  round_due_ = std::min(round_due_, now + pause_);
}

void Replicas::begin_round(Time now) {
  round_due_ = Time::max();
  if (in_round_) return;
  const bool named = ask_names();
  const std::vector<ObjectId> objects = next_batch();
  asked_about_.clear();
  if (objects.empty()) {
    if (named) {
      pause_ = std::min(2 * pause_, options_.longest_round);
      round_due_ = now + pause_;
    }
    return;
  }
  last_asked_ = objects.back();
  ++round_;
  in_round_ = true;
  spoilt_ = false;
  for (const ObjectId object : objects) asked_about_[object] = 0;
  for (const ObjectId object : unused({}, objects)) ++asked_about_[object];
  silent_.clear();
  for (const Candidate& one : out_.other_nodes()) silent_.insert(one.node);
  nodes_in_round_ = 1 + silent_.size();
  for (const NodeId node : silent_) out_.send(node, wire::PeerHeld{round_, objects, members()});
  if (silent_.empty()) end_round(now);
}

void Replicas::on_unused(NodeId from, const wire::PeerUnused& message, Time now) {
  if (!in_round_ || message.round != round_ || silent_.erase(from) == 0) return;
  for (const ObjectId object : message.objects)
    if (const auto at = asked_about_.find(object); at != asked_about_.end()) ++at->second;
  if (silent_.empty()) end_round(now);
}

void Replicas::end_round(Time now) {
  in_round_ = false;
  bool some = false;
  for (const auto& [object, unused] : asked_about_) {
    const auto kept = kept_.find(object);
    if (spoilt_ || unused != nodes_in_round_ || kept == kept_.end() || !may_end(kept->second))
      continue;
    some = true;
    drop_copy(object);
  }
  pause_ = some ? options_.round : std::min(2 * pause_, options_.longest_round);
  round_due_ = std::min(round_due_, now + pause_);
}

// --- life

void Replicas::node_died(NodeId node, Time now) {
  watched_.erase(node);
  for (auto at = owned_.begin(); at != owned_.end();) {
    auto& [object, owned] = *at++;  // before advance(), which may erase the entry
    if (owned.asked.erase(node) + owned.have.erase(node) + owned.refused.erase(node) != 0)
      advance(object, owned);
  }
  for (auto& [object, search] : searches_)
    if (search.asked.erase(node) != 0 && search.asked.empty()) fresh_.insert(object);
  orphans_without(node, now);
  bool some = false;
  for (auto& [object, kept] : kept_) {
    some = some || kept.owner == node || kept.nameless;
    kept.nameless = false;
    if (kept.owner == node && kept.here) begin_orphan(object, now);
  }
  if (some) {
    pause_ = options_.round;
    round_due_ = std::min(round_due_, now + pause_);
  }
  if (!in_round_) return;
  spoilt_ = true;
  if (silent_.erase(node) != 0 && silent_.empty()) end_round(now);
}

void Replicas::carry_out(Time now) {
  for (const ObjectId object : std::exchange(over_, {})) end(object);
  take_arrived(now);
  go_on(now);
  if (!untold_.empty()) tell_all();
  repair(now);
  if (round_due_ <= now) begin_round(now);
  std::vector<ObjectId> late;
  for (const ObjectId object : waiting_)
    if (owned_.at(object).until <= now) late.push_back(object);
  for (const ObjectId object : late) {
    Owned& owned = owned_.at(object);
    answer(object, owned,
           Error(Code::unavailable, std::to_string(1 + owned.have.size()) + " of " +
                                        std::to_string(owned.copies) +
                                        " nodes had a copy when the time was over"));
  }
}

Time Replicas::next_deadline() const {
  if (pending()) return Time{};
  Time due = std::min(search_due_, round_due_);
  if (!orphans_due_.empty() && making_ < options_.repairs_at_once)
    due = std::min(due, orphans_due_.begin()->first);
  for (const ObjectId object : waiting_) due = std::min(due, owned_.at(object).until);
  return due;
}

}  // namespace troupe::agent
