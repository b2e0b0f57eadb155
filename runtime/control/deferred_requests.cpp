#include "troupe/runtime/control/deferred_requests.hpp"

#include <algorithm>

namespace troupe::control {

void DeferredRequests::wait_for_name(const SpawnActor& spawn, Time until) {
  wait(spawn);
  until_.try_emplace(who(spawn), until);
}

std::vector<SpawnActor> DeferredRequests::take_late(Time now) {
  std::vector<SpawnActor> late;
  for (auto at = until_.begin(); at != until_.end();) {
    const auto spawn = spawns_.find(at->first);
    const bool waits = spawn != spawns_.end();
    if (waits && at->second > now) {
      ++at;
      continue;
    }
    if (waits) {
      late.push_back(std::move(spawn->second));
      spawns_.erase(spawn);
    }
    at = until_.erase(at);
  }
  return late;
}

void DeferredRequests::node_gone(NodeId node) {
  std::erase_if(finds_, [node](const auto& find) { return find.first.first == node; });
  std::erase_if(spawns_, [node](const auto& waiting) {
    return waiting.first.first == node && !waiting.second.spec.detached;
  });
  for (auto& [who, spawn] : spawns_)
    if (who.first == node) spawn.from = {};
}

std::optional<NodeId> DeferredRequests::maker_of(ActorId id) const {
  std::optional<NodeId> maker;
  for (const auto& [who, spawn] : spawns_)
    if (spawn.spec.id == id) maker = spawn.from;
  return maker;
}

std::optional<Time> DeferredRequests::next_deadline() const {
  std::optional<Time> next;
  for (const auto& [who, until] : until_) next = std::min(next.value_or(until), until);
  return next;
}

}  // namespace troupe::control
