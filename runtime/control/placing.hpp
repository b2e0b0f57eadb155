/// Chooses a node for each actor that needs one, and keeps the actors for which no node has room. A
/// plain state machine; Service carries out its verdicts.
///
///     placing.on_node(node, now);                    // its entry in NodeTable has changed
///     if (auto verdict = placing.add(wanted, now)) carry_out(*verdict);
///     if (placing.is_due(now)) {
///       placing.begin_round(now);
///       while (auto verdict = placing.next(now)) carry_out(*verdict);
///     }
///
/// An actor for which no node has room waits, in order of arrival, and is tried again whenever the
/// view changes. An actor that no node could ever take is unplaceable after `infeasible_timeout`.
/// Between two reports of a node, the view subtracts from its free amounts what was placed there
/// since: a start counts until the node has answered and reported, or `report_within` after its
/// answer.
#pragma once

#include "troupe/runtime/control/directory.hpp"
#include "troupe/runtime/control/node_table.hpp"
#include "troupe/runtime/scheduling/policy.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control {

struct PlacingOptions {
  /// How long an actor waits for a node to join that could ever take it. Zero: not at all;
  /// negative: for ever.
  Duration infeasible_timeout = std::chrono::seconds(60);
  /// Nodes that are about to register. No actor is infeasible before they have, for `expect_for` at
  /// most.
  std::vector<NodeId> expected;
  Duration expect_for = std::chrono::seconds(10);
  /// A start that the node has answered stays subtracted in the view until its next report, or this
  /// long.
  Duration report_within = std::chrono::milliseconds(250);
};

class Placing {
 public:
  /// A life of an actor.
  using Life = std::pair<ActorId, std::uint64_t>;
  struct Verdict {
    ActorId actor;
    std::uint64_t incarnation = 0;
    NodeId node;      ///< zero: no node can take it
    Epoch epoch = 0;  ///< of the node
    std::string why;  ///< it is unplaceable
  };
  struct Waiting {
    PlaceActor place;
    std::optional<Time> infeasible_since;
    std::string why;
  };

  /// `nodes` and `actors` outlive it.
  Placing(const PlacingOptions& options, const NodeTable& nodes, const Directory& actors, Time now);

  // The nodes.

  /// Computes the node's row of the view again after any change of the node, or removes it.
  void on_node(NodeId node, Time now);
  /// The node is one of those that were expected, and they need not be waited for any more.
  void no_longer_expected(NodeId node) { expected_.erase(node); }
  /// Its report shows the starts that it has answered. on_node() follows.
  void on_report(NodeId node);
  /// Its connection began anew, so that starts may not have reached it.
  void on_reset(NodeId node);
  /// It is another process now, or dead: its starts are over.
  void forget(NodeId node) { starts_.erase(node); }

  // The actors.

  /// Places an actor, or queues it behind those that wait already.
  [[nodiscard]] std::optional<Verdict> add(const PlaceActor& wanted, Time now);
  /// Takes the node's answer to a start. A failed start leaves the view at once. The amounts of a
  /// successful one stay subtracted until a report shows them.
  void end_start(NodeId node, const Life& life, bool started, Time now);
  /// Ends the starts that the node never received, and returns them. `hosted`: the lives in its
  /// NodeHosts.
  std::vector<Life> end_lost_starts(NodeId node, const std::set<Life>& hosted, Time now);

  // Rounds: each tries the waiting actors in order of arrival.

  bool is_due(Time now) const noexcept { return place_at_ && *place_at_ <= now; }
  void begin_round(Time now);
  /// Returns the next verdict of the round; nullopt when the round is over.
  std::optional<Verdict> next(Time now);

  /// Drops the starts whose time is over.
  void on_tick(Time now);
  /// Returns when on_tick() or a round is due.
  Time next_tick() const noexcept;

  // Observe.

  const scheduling::ClusterView& view() const noexcept { return view_; }
  const std::deque<Waiting>& waiting() const noexcept { return waiting_; }
  /// Returns whether a waiting actor has room in the present view. It is then placed soon.
  bool has_room_for_waiting() const;

 private:
  /// A start that the view subtracts from a node's free amounts: it is under way, or was answered
  /// and is in no report yet.
  struct Start {
    std::uint64_t incarnation = 0;
    scheduling::Resources need;
    std::optional<Time> until;  ///< set when it was answered: subtracted until then
    bool may_be_lost = false;   ///< StartActorAt may not have reached the node
  };
  using Starts = std::map<ActorId, Start>;
  struct Round {
    std::deque<Waiting> left;
    std::vector<scheduling::ResourceDemand> busy;  ///< demands that found no room
  };

  std::optional<Verdict> place(Waiting waiting, Time now);
  scheduling::Decision decide(const PlaceActor& wanted, Time now);
  void count_hosted(Time now);
  void place_soon(Time now);
  void expire_starts(Time now);
  bool reaches_all(ActorId actor) const;
  bool is_over(const PlaceActor& place) const;
  bool awaits_expected(Time now) const;

  PlacingOptions options_;
  const NodeTable& nodes_;
  const Directory& actors_;
  std::map<NodeId, Starts> starts_;
  scheduling::ClusterView view_;
  std::map<NodeId, std::uint32_t> hosted_;  ///< actors of each node, counted again at count_at_
  Time count_at_{};
  std::deque<Waiting> waiting_;
  Round round_;
  std::optional<Time> place_at_;   ///< when waiting_ is tried again
  std::optional<Time> expire_at_;  ///< when the next answered start leaves the view
  Time last_round_{};
  std::set<NodeId> expected_;
  Time started_{};
};

}  // namespace troupe::control
