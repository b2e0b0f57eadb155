#include "troupe/runtime/agent/peer_table.hpp"

#include <algorithm>

namespace troupe::agent {

NetworkPeer& PeerTable::add(NodeId node, Time until) {
  NetworkPeer& peer = peers_[node];
  peer.node = node;
  peer.until = until;
  ++unknown_;
  return peer;
}

void PeerTable::set_state(NetworkPeer& peer, NetworkPeer::State state) {
  unknown_ -= peer.state == NetworkPeer::State::unknown ? 1 : 0;
  unknown_ += state == NetworkPeer::State::unknown ? 1 : 0;
  peer.state = state;
}

void PeerTable::erase(NetworkPeer& peer) {
  if (last_ == &peer) last_ = nullptr;
  set_state(peer, NetworkPeer::State::member);  // for the count
  const NodeId node = peer.node;
  const auto at = keys_.find(peer.key);
  if (at != keys_.end() && at->second == node) keys_.erase(at);
  peers_.erase(node);
}

void PeerTable::end_later(NetworkPeer& peer, std::string why) {
  if (!peer.end_reason.empty()) return;
  peer.end_reason = std::move(why);
  ending_.push_back(peer.node);
}

NodeId PeerTable::take_key(const net::PublicKey& key, NodeId node) {
  const NodeId former = std::exchange(keys_[key], node);
  return former == node ? NodeId{} : former;
}

void PeerTable::set_key(NetworkPeer& peer, const net::PublicKey& key) {
  if (peer.key != key) keys_.erase(peer.key);
  peer.key = key;
}

bool PeerTable::note_death(NodeId node) {
  if (node == control_->node || !dead_.insert(node).second) return false;
  dead_in_order_.push_back(node);
  if (dead_in_order_.size() > kMostDead) {
    dead_.erase(dead_in_order_.front());
    dead_in_order_.pop_front();
  }
  return true;
}

PeerTable::Rows PeerTable::newest_rows(const control::ClusterNodes& nodes, NodeId self,
                                       const net::PublicKey& own) const {
  Rows newest;
  for (const control::ClusterRow& row : nodes.rows) {
    const auto key = net::PublicKey::parse(row.description.public_key);
    if (!key || row.description.id == self || row.description.id == control_->node || *key == own ||
        *key == control_->key)
      continue;
    const control::ClusterRow*& best = newest[*key];
    if (best == nullptr || best->epoch < row.epoch) best = &row;
  }
  return newest;
}

std::set<NodeId> PeerTable::suspects(const control::ClusterNodes& nodes, NodeId self) const {
  std::set<NodeId> found;
  for (const control::ClusterRow& row : nodes.rows)
    if (row.suspect && row.description.id != self && !is_dead(row.description.id))
      found.insert(row.description.id);
  return found;
}

void PeerTable::all_absent(Time now) {
  for (auto& [node, peer] : peers_)
    if (peer.state != NetworkPeer::State::unknown && &peer != control_)
      peer.absent_since = std::min(peer.absent_since, now);
}

std::vector<NodeId> PeerTable::out_of_reach(Time now, Duration after, std::size_t most) const {
  std::vector<NodeId> found;
  for (const auto& [node, peer] : peers_) {
    if (found.size() == most) break;
    const bool wanted = peer.touched || peer.kept || peer.state == NetworkPeer::State::dropped;
    if (&peer != control_ && peer.state != NetworkPeer::State::unknown && wanted &&
        peer.unreached_since != NetworkPeer::kNever && now - peer.unreached_since >= after)
      found.push_back(node);
  }
  return found;
}

}  // namespace troupe::agent
