// The part of Service that follows the nodes: what they say of themselves, what membership says of
// them, and which of them are slow.
#include "troupe/runtime/control/service.hpp"

namespace troupe::control {
namespace {

/// Up to this many nodes the voters get a newcomer's ClusterNodes at once. In larger clusters many
/// newcomers come together, and a list is long.
constexpr std::size_t kTellsVotersUpTo = 64;

}  // namespace

// --- what they say

void Service::on(const RegisterNode& message, Sender from, Time now) {
  if (message.node.id != from.node) return;
  run(members_.on_register(message, now), now);
}

void Service::on(Heartbeat message, Sender from, Time now) {
  message.node = from.node;
  if (members_.is_current(from.node, message.epoch)) slow_.on_heartbeat(from.node, now);
  run(members_.on_heartbeat(message, now), now);
}

void Service::on(Leaving message, Sender from, Time now) {
  message.node = from.node;
  run(members_.on_leaving(message, now), now);
}

void Service::on(const NodeReport& message, Sender from, Time now) {
  if (nodes_.report(from.node, from.epoch, message) == nullptr) return;
  placing_.on_report(from.node);
  placing_.on_node(from.node, now);
  nodes_changed(now);
}

void Service::on(const NodePace& message, Sender from, Time now) {
  if (nodes_.find(from.node, from.epoch) != nullptr) slow_.on_pace(from.node, message.sites, now);
}

void Service::on(const DrainRequest& message, Sender from, Time now) {
  run(members_.drain(message.node, message.within, now), now);
  Output<AnswerNodes> output;
  output.after_sync.push_back({from.node, message.request});
  run(std::move(output), now);
}

// --- what membership says

/// Keeps what is known of nodes that are dead now, in the commit that makes their deaths durable.
void Service::note_dead(Output<MembershipEvent>& output) {
  for (const MembershipEvent& event : output.after_sync) {
    const auto* dead = std::get_if<NodeDead>(&event);
    if (dead == nullptr) continue;
    DeadNode node;
    if (const NodeTable::Node* known = nodes_.find(dead->node, dead->epoch))
      node.description = known->description;
    node.description.id = dead->node;
    node.epoch = dead->epoch;
    node.why = dead->why;
    node.left = dead->why == kHasLeft;
    node.died_unix_ns = wall_now();
    dead_.add(std::move(node), output.writes);
  }
}

void Service::on_node(const SendToAgent& event, Time) {
  std::visit([&](const auto& message) { out_.send(event.node, message); }, event.message);
}

void Service::on_node(const Probe& event, Time) {
  out_.probe(event);
}

void Service::on_node(const NodeUp& event, Time now) {
  const auto record = members_.find(event.node);
  if (!record || record->epoch != event.epoch) return;  // dead again
  if (nodes_.find(event.node, event.epoch) == nullptr) placing_.forget(event.node);
  nodes_.up(*record);
  placing_.no_longer_expected(event.node);
  actors_.on_registered(event.node, event.number);
  forget_join(event.node, now);  // the record of the node holds the key from now on
  placing_.on_node(event.node, now);
  if (event.again || nodes_.all().size() > kTellsVotersUpTo)
    out_.send(event.node, cluster_nodes());
  else
    introduce(event.node);
  if (event.again) tell_ended_jobs(event.node, now);
  nodes_changed(now);
}

void Service::forget_join(NodeId node, Time now) {
  Output<Answer> output;
  output.writes = admissions_.forget(node);
  if (!output.writes.empty()) run(std::move(output), now);
}

void Service::on_node(const NodeSuspect& event, Time now) {
  NodeTable::Node* node = nodes_.find(event.node, event.epoch);
  if (node == nullptr) return;
  node->suspect = true;
  placing_.on_node(event.node, now);
  nodes_changed(now);
}

void Service::on_node(const NodeHeard& event, Time now) {
  NodeTable::Node* node = nodes_.find(event.node, event.epoch);
  if (node == nullptr || !node->registered) return;
  node->suspect = false;
  placing_.on_node(event.node, now);
  nodes_changed(now);
}

void Service::on_node(const NodeDraining& event, Time now) {
  NodeTable::Node* node = nodes_.find(event.node, event.epoch);
  if (node == nullptr) return;
  node->draining = true;
  placing_.on_node(event.node, now);
  nodes_changed(now);
}

/// Forgets a dead node. Its death is durable by now, so its actors and jobs may end or move.
void Service::on_node(const NodeDead& event, Time now) {
  if (nodes_.remove(event.node, event.epoch)) placing_.forget(event.node);
  placing_.no_longer_expected(event.node);
  pages_.forget(event.node);
  slow_.forget(event.node);
  objections_.erase(event.node);
  placing_.on_node(event.node, now);
  run(actors_.on_node_dead(event.node, event.epoch, event.why, now), now);
  run(jobs_.on_node_dead(event.node, event.epoch, event.why, wall_now()), now);
  out_.broadcast(nodes_.listeners(true), NodeIsDead{event.node, event.epoch, event.why});
  if (!members_.find(event.node)) {  // else another process with the same key has its place
    out_.fence(event.node, event.epoch + 1);
    admissions_.expire_later(event.node, now);
  }
  nodes_changed(now);
}

void Service::on_node(const FenceProcess& event, Time) {
  out_.fence(event.node, event.epoch + 1);
}

void Service::look_for_slow(Time now) {
  for (const SlowNodes::Change& change : slow_.on_tick(now)) {
    NodeTable::Node* node = nodes_.find(change.node);
    if (node == nullptr) continue;
    node->avoided = change.avoided;
    node->slow = change.why;
    const std::string who = "node " + node->description.name;
    if (change.said)
      tell(Notice::Kind::slow_node, change.why.empty()
                                        ? who + " is as fast as others again"
                                        : who + " is slow: " + change.why +
                                              "; it gets no new work while others can take it");
    placing_.on_node(change.node, now);
    nodes_changed(now);
  }
}

}  // namespace troupe::control
