/// The way by which the agent's parts send messages to processes of this node and to agents of
/// other nodes. Node carries them; a test notes them.
///
///     out.send(process, wire::Answer{…}, bytes);   // dropped if the process has ended
///     out.send(node, wire::PeerAnswer{…}, bytes);  // dropped if the node is out of reach
///
/// An implementation must not call into the part that sends.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/peer.hpp"

namespace troupe::agent {

class Outgoing {
 public:
  virtual ~Outgoing() = default;
  /// Sends to a process of this node, in order. A process that has ended gets nothing.
  virtual void send(ProcessIndex to, const wire::NodeMessage& message, BlobView payload) = 0;
  /// Returns whether the process lives and is not about to end.
  virtual bool is_alive(ProcessIndex process) = 0;
  /// Sends to the agent of another node, in order.
  virtual void send(NodeId to, const wire::PeerMessage& message, BlobView payload) = 0;
  /// Returns whether the network takes a large message for the node now.
  virtual bool can_send(NodeId to) const = 0;
};

}  // namespace troupe::agent
