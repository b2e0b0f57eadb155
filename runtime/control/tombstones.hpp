/// Dead actors of which a later control could otherwise adopt or begin a life. A plain state machine
/// inside the Directory. Each tombstone is written, so that a later control has it.
///
///     stones.add(actor, {node, epoch, life, reporters, maker}, out.writes);
///     if (stones.life_ended(actor, life, told_again, awaits, out.writes)) ...;
///
/// Invariants:
/// - A tombstone stays while the actor's process may live (`node`), a node may report an earlier
///   life's end (`reporters`), the spawn may be repeated (`maker`), or a node of the earlier control
///   is awaited, which may be any of these (`awaits`).
/// - The first tombstone of an actor stays: another changes nothing.
#pragma once

#include "troupe/runtime/control/actor_messages.hpp"
#include "troupe/runtime/control/actor_records.hpp"
#include "troupe/runtime/control/store.hpp"

#include <cstdint>
#include <map>
#include <set>

namespace troupe::control {

/// The node that spawned an actor. It repeats the spawn to a later control, until control knows that
/// the node has heard whether the actor lives or is dead.
struct ActorMaker {
  NodeId node;
  bool asked = false;  ///< it has sent the spawn since it registered last
  /// After `who`'s NodeHosts: true if `who` is the maker and did not repeat the spawn.
  bool spoke(NodeId who) const { return node == who && !asked; }
};

struct Tombstone {
  NodeId node;  ///< where its process may still live; zero: nowhere, as far as is known
  Epoch epoch = 0;
  std::uint64_t life = 0;  ///< the last life; only its end ends the actor. 0: any life's end does
  std::set<NodeId> reporters;
  ActorMaker maker{};
  bool gracefully = false;  ///< no handle was left; else it was killed
  /// StartActorAt is on its way to the node, whose NodeHosts may come first and not list it.
  bool starts = false;
  bool is_at(NodeId where, Epoch since) const { return node == where && epoch == since; }
};

/// What a node's complete NodeHosts shows.
struct SpokenHosts {
  NodeId node;
  Epoch epoch = 0;
  std::set<ActorId> there;  ///< the actors in it
  std::set<ActorId> ended;  ///< those of them with a life that ended there
  bool has_asked = false;   ///< the node has repeated all the spawns that it will
};

class Tombstones {
 public:
  /// Takes one over from an earlier control.
  void restore(const StoredActors::Killed& killed);
  void add(ActorId id, const Tombstone& stone, Batch& writes);
  bool has(ActorId id) const { return stones_.count(id) != 0; }
  /// Null: the actor has none. Valid until the next change.
  Tombstone* find(ActorId id);
  /// Returns whether the actor was told to end and its process may live.
  bool may_live(ActorId id) const;

  /// Notes that a life has ended. The end of an earlier life than the tombstone's changes nothing.
  /// `told_again`: the node may report this end to a later control. Returns whether it changed
  /// anything.
  bool life_ended(ActorId id, std::uint64_t life, bool told_again, bool awaits, Batch& writes);
  /// Drops the node as host, reporter and maker of actors that its NodeHosts shows it is not.
  void node_spoke(const SpokenHosts& hosts, bool awaits, Batch& writes);
  /// The node has heard of the actor's death: it neither reports nor asks again.
  void has_heard(ActorId id, NodeId node, bool awaits, Batch& writes);
  /// The node has registered (again), and repeats its spawns.
  void on_registered(NodeId node);
  /// Messages to the node may be lost.
  void on_reset(NodeId node);
  /// No node is awaited any more.
  void drop_unneeded(Batch& writes);

 private:
  using Stones = std::map<ActorId, Tombstone>;
  Stones::iterator drop(Stones::iterator stone, bool awaits, Batch& writes);

  Stones stones_;
};

}  // namespace troupe::control
