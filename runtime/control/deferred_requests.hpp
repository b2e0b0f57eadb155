/// Spawns and finds that control cannot answer yet. A plain container inside the Directory, by the
/// asking node and its request number.
///
/// A request waits for one of two things. A node of the earlier control may host the holder of the
/// name, or a life of the actor. Or an actor without handles has the name until its process has
/// ended: such a spawn waits until a time.
///
///     deferred.wait_for_name(spawn, until);
///     for (const auto& [who, spawn] : deferred.take_spawns()) ...;   // ask again: it may wait again
///     for (const SpawnActor& late : deferred.take_late(now)) ...;
#pragma once

#include "troupe/runtime/control/actor_messages.hpp"
#include "troupe/runtime/control/actor_records.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::control {

class DeferredRequests {
 public:
  using Who = std::pair<NodeId, std::uint64_t>;
  void wait(Who who, ActorName name) { finds_[who] = std::move(name); }
  void wait(const SpawnActor& spawn) { spawns_.insert_or_assign(who(spawn), spawn); }
  /// The time of the spawn's first wait for a name stays.
  void wait_for_name(const SpawnActor& spawn, Time until);
  /// The spawn does not wait for a name any more.
  void found_name(const SpawnActor& spawn) { until_.erase(who(spawn)); }

  std::map<Who, ActorName> take_finds() { return std::exchange(finds_, {}); }
  /// The spawns keep their times.
  std::map<Who, SpawnActor> take_spawns() { return std::exchange(spawns_, {}); }
  /// Removes and returns the spawns for which which(spawn, waits_for_a_name) is true.
  template <class Which>
  std::vector<SpawnActor> take_if(Which which) {
    std::vector<SpawnActor> taken;
    for (auto at = spawns_.begin(); at != spawns_.end();) {
      if (!which(at->second, until_.count(at->first) != 0)) {
        ++at;
        continue;
      }
      until_.erase(at->first);
      taken.push_back(std::move(at->second));
      at = spawns_.erase(at);
    }
    return taken;
  }
  /// Removes and returns the spawns whose time is over.
  std::vector<SpawnActor> take_late(Time now);
  /// Drops what the node asked for, except spawns of detached actors, which need no answer now.
  void node_gone(NodeId node);
  /// Returns the node of the last spawn of the actor that waits. It is zero when that node is gone.
  std::optional<NodeId> maker_of(ActorId id) const;
  std::optional<Time> next_deadline() const;

 private:
  static Who who(const SpawnActor& spawn) { return {spawn.from, spawn.request}; }

  std::map<Who, ActorName> finds_;
  std::map<Who, SpawnActor> spawns_;
  std::map<Who, Time> until_;  ///< of the spawns that wait for a name
};

}  // namespace troupe::control
