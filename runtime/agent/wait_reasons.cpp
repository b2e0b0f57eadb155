#include "troupe/runtime/agent/wait_reasons.hpp"

#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/scheduling/policy.hpp"

namespace troupe::agent {

std::string WaitReasons::at_node(NodeId node, const std::string& why) const {
  const scheduling::NodeView* view = leases_.view().find(node);
  const std::string name = view == nullptr || view->name.empty() ? node.str() : view->name;
  return "at " + name + ": " + why;
}

std::string WaitReasons::of_lease(ProcessIndex process, LeaseKey key) const {
  const NodeId self = leases_.self_view().id;
  if (const std::string why = leases_.explain(process, key); !why.empty())
    return at_node(self, why);
  if (const auto node = remote_.asked_node(process, key))
    return at_node(*node, "waits for a worker of this node");
  return {};
}

std::string WaitReasons::of_actor(ActorId actor) const {
  const NodeId self = leases_.self_view().id;
  if (const auto begins = actors_.beginning_of(actor)) {
    if (begins->has_process) return at_node(self, "runs the actor's constructor");
    if (const std::string why = leases_.explain(kSelf, LeaseKey::of(begins->life)); !why.empty())
      return at_node(self, why);
    return at_node(self, "waits for a process of the actor");
  }
  const scheduling::ResourceDemand* demand = actors_.demand_of(actor);
  if (demand == nullptr) return {};
  const scheduling::Decision decision = scheduling::place(leases_.view(), *demand);
  if (decision.kind != scheduling::Decision::Kind::place) return "without a place: " + decision.why;
  return at_node(decision.node, "has room, and begins the actor or its constructor");
}

}  // namespace troupe::agent
