/// Actors that were watched or killed, and that no node has spawned or reported so far: a watch may
/// arrive before the spawn, which comes from another node. A plain state machine inside the
/// Directory.
///
///     unknown.of(actor, now).watchers.insert(node);
///     UnknownActors::Asked asked = unknown.take(actor);           // it has been spawned or reported
///     while (auto late = unknown.take_expired(now)) ...;          // nobody has made it
///
/// Invariants:
/// - An actor is here until it is taken, or until nobody can have made it: all nodes have been heard
///   for `kept`, or `longest` has passed since the first question.
/// - Actors expire in the order of their first questions.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace troupe::control {

class UnknownActors {
 public:
  struct Asked {
    std::set<NodeId> watchers;
    bool killed = false;
    /// Lives up to this one were killed and may be followed by another.
    std::uint64_t killed_life = 0;
    Time since{};
  };

  UnknownActors(Duration kept, Duration longest) : kept_(kept), longest_(longest) {}
  /// Returns the entry of the actor, which `now` makes if there is none.
  Asked& of(ActorId id, Time now);
  /// Removes the entry and returns it; an empty one: there is none.
  Asked take(ActorId id);
  void unwatch(ActorId id, NodeId watcher);
  void node_gone(NodeId node);
  /// Tells since when no node has been silent. Until the first call none is.
  void all_heard_since(Time since) noexcept { all_heard_since_ = since; }
  /// Removes and returns the next entry whose time is over.
  std::optional<std::pair<ActorId, Asked>> take_expired(Time now);
  std::optional<Time> next_deadline() const;

 private:
  Time until(Time since) const;

  Duration kept_, longest_;
  std::map<ActorId, Asked> asked_;
  std::set<std::pair<Time, ActorId>> by_time_;
  Time all_heard_since_{};
};

}  // namespace troupe::control
