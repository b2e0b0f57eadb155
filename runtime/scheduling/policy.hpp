/// The placement policy of the whole cluster, as one pure function that also explains itself.
/// Agents ask it for tasks, control asks it for actors, and `troupe status` shows its reasons.
///
///     ClusterView view;                           // nodes sorted by id
///     Decision d = place(view, {.need = {.gpus = 2 * kUnit}});
///     if (d.kind == Decision::Kind::infeasible) fail(d.why);   // "needs 2 GPU, no node has …"
///
/// The default placement is hybrid, as in Ray: first the asking node, then the others in order,
/// while they stay below half use; beyond that the least used node.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/scheduling/resources.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduling {

enum class Placement : std::uint8_t { any = 0, pack = 1, spread = 2, node = 3 };

/// The resource demand of a task, lease or actor.
struct ResourceDemand {
  Resources need;
  Labels labels;  ///< all must be on the node
  Placement placement = Placement::any;
  NodeId node;                                             ///< with Placement::node
  bool soft = false;                                       ///< with Placement::node: prefer it
  std::vector<std::pair<NodeId, std::uint64_t>> locality;  ///< bytes of its arguments per node
};

/// What the asker knows of one node.
struct NodeView {
  NodeId id;
  std::string name;
  Labels labels;
  Resources total;
  Resources free;
  std::vector<Amount> gpu_free;  ///< per device; a share must fit on one device
  bool accepts = true;           ///< false: draining or suspect; nothing new there
  std::uint32_t waiting = 0;     ///< requests queued there
  bool slow = false;             ///< nothing new there that a faster node could ever take
  /// Actors on the node. Among nodes in equal use Placement::spread takes the one with the
  /// fewest.
  std::uint32_t actors = 0;
  std::uint32_t most_actors = ~std::uint32_t{0};  ///< the node has processes for no more of them
};

/// Sorted by id, each once.
struct ClusterView {
  std::vector<NodeView> nodes;
  NodeId self;  ///< the asking node, preferred while below half use; may be zero

  const NodeView* find(NodeId id) const;
  NodeView* find(NodeId id) {
    return const_cast<NodeView*>(static_cast<const ClusterView*>(this)->find(id));
  }
  /// Inserts or replaces.
  void update(NodeView node);
  void erase(NodeId id);
};

struct Decision {
  enum class Kind : std::uint8_t {
    place,       ///< run it on `node` now
    busy,        ///< feasible, but free on no node; wait at `node`
    infeasible,  ///< no present node could ever satisfy it
  };
  Kind kind = Kind::infeasible;
  NodeId node;
  std::string why;  ///< one sentence without a full stop; set by place()
};

/// Decides where the demand goes. Deterministic: it reads neither clocks nor random numbers.
/// Cost: O(nodes); the sentence `why` is only composed for busy and infeasible.
Decision place(const ClusterView& view, const ResourceDemand& demand);

/// could_fit(): whether the node could take the demand when it is empty. fits_now(): whether it
/// can take it now. Both check labels and node requests; only the second checks `accepts`.
bool could_fit(const NodeView& node, const ResourceDemand& demand);
bool fits_now(const NodeView& node, const ResourceDemand& demand);
/// Returns whether slow nodes are left out: a faster node that accepts could take the demand when
/// empty. `without`: nodes that do not count, sorted.
bool avoids_slow(const ClusterView& view, const ResourceDemand& demand,
                 std::span<const NodeId> without = {});

/// Take the need from the node's free amounts, or give it back: optimistic accounting between two
/// reports of the node. Precondition of take(): fits_now().
void take(NodeView& node, const Resources& need);
void give_back(NodeView& node, const Resources& need);

/// Chooses devices for `gpus` from the free amounts of each device: whole devices for whole
/// numbers, one device (best fit) for a share. Empty when it does not fit, or cannot be expressed
/// (1.5).
std::vector<std::int32_t> choose_gpus(const std::vector<Amount>& free, Amount gpus);

}  // namespace troupe::scheduling
