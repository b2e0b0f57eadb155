#include "troupe/runtime/control/node_table.hpp"

#include <utility>

namespace troupe::control {

void NodeTable::recover(const NodeRecord& record) {
  Node& node = nodes_[record.description.id];
  node.description = record.description;
  node.epoch = record.epoch;
  node.suspect = true;  // until it has registered with this control
  node.draining = record.draining;
}

void NodeTable::up(const NodeRecord& record) {
  Node& node = nodes_[record.description.id];
  if (node.epoch != record.epoch) node = Node{};
  const bool first = !node.registered;
  node.description = record.description;
  node.epoch = record.epoch;
  node.registered = true;
  node.suspect = record.state == NodeState::suspect;
  node.draining = record.draining;
  if (!first) return;
  if (const auto early = early_.extract(record.description.id)) {
    node.report = early.mapped();
  } else {
    node.report.view.free = node.description.resources;
    node.report.view.gpu_free.assign(
        static_cast<std::size_t>(node.description.resources.gpus / scheduling::kUnit),
        scheduling::kUnit);
  }
}

NodeTable::Node* NodeTable::report(NodeId id, Epoch epoch, const NodeReport& report) {
  Node* node = find(id, epoch);
  if (node != nullptr)
    node->report = report;
  else
    early_[id] = report;
  return node;
}

bool NodeTable::remove(NodeId id, Epoch epoch) {
  early_.erase(id);
  if (find(id, epoch) == nullptr) return false;
  nodes_.erase(id);
  return true;
}

NodeTable::Node* NodeTable::find(NodeId id) {
  const auto at = nodes_.find(id);
  return at != nodes_.end() ? &at->second : nullptr;
}

const NodeTable::Node* NodeTable::find(NodeId id) const {
  const auto at = nodes_.find(id);
  return at != nodes_.end() ? &at->second : nullptr;
}

NodeTable::Node* NodeTable::find(NodeId id, Epoch epoch) {
  Node* node = find(id);
  return node != nullptr && node->epoch == epoch ? node : nullptr;
}

std::vector<NodeId> NodeTable::listeners(bool suspects_too) const {
  std::vector<NodeId> all;
  for (const auto& [id, node] : nodes_)
    if (node.registered && (suspects_too || !node.suspect)) all.push_back(id);
  return all;
}

std::vector<ClusterRow> NodeTable::rows(std::size_t most) const {
  std::vector<ClusterRow> rows;
  for (const auto& [id, node] : nodes_) {
    if (rows.size() == most) break;
    ClusterRow row;
    row.description = node.description;
    row.epoch = node.epoch;
    row.suspect = node.suspect;
    row.draining = node.draining;
    row.avoided = node.avoided;
    row.slow = node.slow;
    row.report = node.report;
    scheduling::NodeView& view = row.report.view;
    view.id = id;
    view.name = node.description.name;
    view.labels = node.description.labels;
    view.total = node.description.resources;
    view.accepts = node.accepts();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace troupe::control
