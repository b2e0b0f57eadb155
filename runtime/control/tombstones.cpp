#include "troupe/runtime/control/tombstones.hpp"

#include <iterator>
#include <utility>

namespace troupe::control {

void Tombstones::restore(const StoredActors::Killed& killed) {
  Tombstone& stone = stones_[killed.id];
  stone.life = killed.life;
  stone.gracefully = killed.gracefully;
}

void Tombstones::add(ActorId id, const Tombstone& stone, Batch& writes) {
  const auto [at, fresh] = stones_.try_emplace(id, stone);
  if (fresh) put_killed({id, at->second.life, at->second.gracefully}, writes);
}

Tombstone* Tombstones::find(ActorId id) {
  const auto at = stones_.find(id);
  return at == stones_.end() ? nullptr : &at->second;
}

bool Tombstones::may_live(ActorId id) const {
  const auto at = stones_.find(id);
  return at != stones_.end() && at->second.node;
}

/// Drops the tombstone if its process has ended and no node may report or ask for the actor.
/// Returns the tombstone that follows.
Tombstones::Stones::iterator Tombstones::drop(Stones::iterator stone, bool awaits, Batch& writes) {
  const Tombstone& one = stone->second;
  if (one.node || !one.reporters.empty() || one.maker.node || awaits) return std::next(stone);
  drop_killed(stone->first, writes);
  return stones_.erase(stone);
}

bool Tombstones::life_ended(ActorId id, std::uint64_t life, bool told_again, bool awaits,
                            Batch& writes) {
  const auto at = stones_.find(id);
  if (at == stones_.end() || life < at->second.life) return false;
  const NodeId node = std::exchange(at->second.node, {});
  if (node && told_again) at->second.reporters.insert(node);
  drop(at, awaits, writes);
  return true;
}

void Tombstones::node_spoke(const SpokenHosts& hosts, bool awaits, Batch& writes) {
  for (auto at = stones_.begin(); at != stones_.end(); at = drop(at, awaits, writes)) {
    auto& [id, stone] = *at;
    if (hosts.there.count(id) == 0 && stone.is_at(hosts.node, hosts.epoch) && !stone.starts)
      stone.node = {};
    if (hosts.ended.count(id) == 0) stone.reporters.erase(hosts.node);
    if (hosts.has_asked && stone.maker.spoke(hosts.node)) stone.maker = {};
  }
}

void Tombstones::has_heard(ActorId id, NodeId node, bool awaits, Batch& writes) {
  const auto at = stones_.find(id);
  if (at == stones_.end()) return;
  at->second.reporters.erase(node);
  if (at->second.maker.node == node) at->second.maker = {};
  drop(at, awaits, writes);
}

void Tombstones::on_registered(NodeId node) {
  for (auto& [id, stone] : stones_)
    if (stone.maker.node == node) stone.maker.asked = false;
}

void Tombstones::on_reset(NodeId node) {
  for (auto& [id, stone] : stones_)
    if (stone.node == node) stone.starts = false;
}

void Tombstones::drop_unneeded(Batch& writes) {
  for (auto at = stones_.begin(); at != stones_.end();) at = drop(at, false, writes);
}

}  // namespace troupe::control
