/// All placement policy of the cluster: one pure function that also explains itself. Agents ask it
/// for tasks, control for actors, `troupe status` for "why is this pending?".
///
///     ClusterView view;                           // nodes sorted by id
///     Decision d = place(view, {.need = {.gpus = 2 * kUnit}});
///     if (d.kind == Decision::Kind::infeasible) fail(d.why);   // "needs 2 GPU, no node has …"
///
/// Default placement is hybrid, as in Ray: pack onto the asking node, then onto the others in
/// order, while they stay below half use; beyond that the least used node.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/scheduling/resources.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduling {

enum class Placement : std::uint8_t { any = 0, pack = 1, spread = 2, node = 3 };

/// What a task, lease or actor asks for.
struct ResourceDemand {
  Resources need;
  Labels labels;  ///< all must be on the node
  Placement placement = Placement::any;
  NodeId node;                                             ///< with Placement::node
  bool soft = false;                                       ///< with Placement::node: prefer it
  std::vector<std::pair<NodeId, std::uint64_t>> locality;  ///< bytes of its arguments per node
};

/// One node as far as the asker knows.
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
  std::uint32_t actors = 0;      ///< that are there; of nodes in equal use spread takes the fewest
};

/// Sorted by id, each once.
struct ClusterView {
  std::vector<NodeView> nodes;
  NodeId self;  ///< preferred while it is below half use; may be zero

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
    place,       ///< on `node`, now
    busy,        ///< feasible, but nobody has it free; wait at `node`
    infeasible,  ///< no present node could ever satisfy it
  };
  Kind kind = Kind::infeasible;
  NodeId node;
  std::string why;  ///< one sentence without a full stop; always set
};

/// Deterministic: equal arguments, equal answer. Does not look at clocks or random numbers.
/// Cost: O(nodes), about 50 ns each; the sentence is only written for busy and infeasible.
Decision place(const ClusterView& view, const ResourceDemand& demand);

/// Whether the node could take the demand when it is empty / takes it now. Labels and node requests
/// count, `accepts` only for the second.
bool could_fit(const NodeView& node, const ResourceDemand& demand);
bool fits_now(const NodeView& node, const ResourceDemand& demand);
/// Whether slow nodes are left out: a faster one that accepts could take it when it is empty.
bool avoids_slow(const ClusterView& view, const ResourceDemand& demand);

/// Takes the demand from the node's free amounts, or gives it back, for optimistic accounting
/// between two gossips. Take: fits_now() must hold.
void take(NodeView& node, const Resources& need);
void give_back(NodeView& node, const Resources& need);

/// Devices for `gpus` out of per-device free amounts, best fit first: whole devices for whole
/// numbers, one device for a share. Empty when it does not fit or is not expressible (1.5).
std::vector<std::int32_t> choose_gpus(const std::vector<Amount>& free, Amount gpus);

}  // namespace troupe::scheduling
