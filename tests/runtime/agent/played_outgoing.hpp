/// An Outgoing that notes what parts of the agent send.
#pragma once

#include "troupe/runtime/agent/outgoing.hpp"

#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::agent {

struct PlayedOutgoing : Outgoing {
  template <class To, class Message>
  struct Sent {
    To to;
    Message message;
    Blob payload;
  };
  void send(ProcessIndex to, const wire::NodeMessage& message, BlobView payload) override {
    to_processes.push_back({to, message, Blob(payload.begin(), payload.end())});
  }
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload) override {
    to_nodes.push_back({to, message, Blob(payload.begin(), payload.end())});
  }
  bool is_alive(ProcessIndex process) override { return ended.count(process) == 0; }
  bool can_send(NodeId to) const override { return full.count(to) == 0; }
  /// Returns all messages of this kind to processes, in order, and forgets all others.
  template <class Message>
  std::vector<std::pair<ProcessIndex, Message>> take() {
    std::vector<std::pair<ProcessIndex, Message>> taken;
    for (const auto& sent : std::exchange(to_processes, {}))
      if (const auto* message = std::get_if<Message>(&sent.message))
        taken.emplace_back(sent.to, *message);
    return taken;
  }

  std::vector<Sent<ProcessIndex, wire::NodeMessage>> to_processes;
  std::vector<Sent<NodeId, wire::PeerMessage>> to_nodes;
  std::set<ProcessIndex> ended;
  std::set<NodeId> full;  ///< nodes for which the network takes nothing
};

}  // namespace troupe::agent
