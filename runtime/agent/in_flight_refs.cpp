#include "troupe/runtime/agent/in_flight_refs.hpp"
#include <algorithm>

namespace troupe::agent {

/// The remembered refs from `from` to `to`, without those of frames which must be in the ring by
/// now. Null when nothing is to be remembered.
std::deque<InFlightRefs::InFlightRef>* InFlightRefs::refs(Process from, Process to, Frame frame) {
  if (frame.number == 0 || from == to || dead_.count(to) != 0) return nullptr;
  std::deque<InFlightRef>& all = refs_[{from, to}];
  while (!all.empty() && all.front().frame + frame.waiting < frame.number) all.pop_front();
  return &all;
}

void InFlightRefs::counted(Process from, Process to, Frame frame, ObjectId object) {
  if (auto* all = refs(from, to, frame)) all->push_back({frame.number, object, {}});
}

void InFlightRefs::taken_back(Process from, Process to, Frame frame, ObjectId object) {
  auto* all = refs(from, to, frame);
  if (all == nullptr) return;
  const auto last = std::find_if(all->rbegin(), all->rend(), [&](const InFlightRef& ref) {
    return ref.frame == frame.number && ref.count == object;
  });
  if (last != all->rend()) all->erase(std::next(last).base());
}

bool InFlightRefs::is_anothers(Process who, const wire::Location& location) const {
  const auto found = objects_.find(key_of(location));
  return found != objects_.end() && found->second.owner != 0 && found->second.owner != who;
}

bool InFlightRefs::gave(Process from, Process to, Frame frame, ObjectId object) const {
  const auto all = refs_.find({from, to});
  return all != refs_.end() &&
         std::any_of(all->second.begin(), all->second.end(), [&](const InFlightRef& ref) {
           return ref.frame == frame.number && ref.count == object;
         });
}

bool InFlightRefs::adopted(Process from, Process to, Frame frame, const wire::Location& location) {
  const auto [at, fresh] = objects_.try_emplace(key_of(location), Object{location, 0});
  if (!fresh) return false;  // adopted, in the owner table, or being freed already
  if (dead_.count(to) != 0) {
    objects_.erase(at);
    return true;
  }
  at->second.owner = to;
  of_[to].insert(at->first);
  if (auto* all = refs(from, to, frame)) all->push_back({frame.number, {}, location});
  return false;
}

void InFlightRefs::owned(const wire::Location& location) {
  Object& object = objects_.try_emplace(key_of(location), Object{location, 0}).first->second;
  leave(key_of(location), object);
}

void InFlightRefs::gone(const wire::Location& location) {
  const auto found = objects_.find(key_of(location));
  if (found == objects_.end()) return;
  leave(found->first, found->second);
  objects_.erase(found);
}

/// Takes the object from the process that owns it.
void InFlightRefs::leave(const Key& key, Object& object) {
  const auto theirs = of_.find(std::exchange(object.owner, Process{}));
  if (theirs == of_.end()) return;
  theirs->second.erase(key);
  if (theirs->second.empty()) of_.erase(theirs);
}

InFlightRefs::Died InFlightRefs::died(Process process, const std::set<Process>& peers) {
  Died after;
  std::set<Process>& left = dead_[process];
  left = peers;
  left.erase(process);
  if (const auto theirs = of_.extract(process))
    for (const Key& key : theirs.mapped())
      after.free.push_back(objects_.extract(key).mapped().location);
  for (auto at = refs_.begin(); at != refs_.end();) {
    const auto [from, to] = at->first;
    if (from == process && to != process) {
      after.asked.push_back(to);
      left.insert(to);
    }
    at = to == process ? refs_.erase(at) : std::next(at);
  }
  for (auto at = dead_.begin(); at != dead_.end();) {
    at->second.erase(process);
    if (at->second.empty()) after.forgotten.push_back(at->first);
    at = at->second.empty() ? dead_.erase(at) : std::next(at);
  }
  return after;
}

InFlightRefs::Undone InFlightRefs::arrived(Process to, Process dead, std::uint64_t frames) {
  Undone undone;
  const auto left = dead_.find(dead);
  if (left == dead_.end()) return undone;
  left->second.erase(to);
  if (left->second.empty()) {
    undone.forgotten = dead;
    dead_.erase(left);
  }
  const auto all = refs_.extract({dead, to});
  if (!all) return undone;
  for (const InFlightRef& ref : all.mapped()) {
    if (ref.frame <= frames) continue;
    if (ref.count) {
      undone.counts.push_back(ref.count);
      continue;
    }
    const auto found = objects_.find(key_of(ref.location));
    if (found == objects_.end() || found->second.owner != to) continue;
    leave(found->first, found->second);
    objects_.erase(found);
    undone.free.push_back(ref.location);
  }
  return undone;
}

}  // namespace troupe::agent
