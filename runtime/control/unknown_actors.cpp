#include "troupe/runtime/control/unknown_actors.hpp"

#include <algorithm>

namespace troupe::control {

UnknownActors::Asked& UnknownActors::of(ActorId id, Time now) {
  const auto [at, fresh] = asked_.try_emplace(id);
  if (fresh) {
    at->second.since = now;
    by_time_.insert({now, id});
  }
  return at->second;
}

UnknownActors::Asked UnknownActors::take(ActorId id) {
  auto asked = asked_.extract(id);
  if (!asked) return {};
  by_time_.erase({asked.mapped().since, id});
  return std::move(asked.mapped());
}

void UnknownActors::unwatch(ActorId id, NodeId watcher) {
  if (const auto at = asked_.find(id); at != asked_.end()) at->second.watchers.erase(watcher);
}

void UnknownActors::node_gone(NodeId node) {
  for (auto& [id, asked] : asked_) asked.watchers.erase(node);
}

Time UnknownActors::until(Time since) const {
  return std::min(since + longest_, std::max(since, all_heard_since_) + kept_);
}

std::optional<std::pair<ActorId, UnknownActors::Asked>> UnknownActors::take_expired(Time now) {
  if (by_time_.empty() || until(by_time_.begin()->first) > now) return std::nullopt;
  const ActorId id = by_time_.begin()->second;
  return std::pair(id, take(id));
}

std::optional<Time> UnknownActors::next_deadline() const {
  if (by_time_.empty()) return std::nullopt;
  return until(by_time_.begin()->first);
}

}  // namespace troupe::control
