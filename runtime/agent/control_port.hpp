/// The way by which an agent's parts send messages to control: over the network, or to the
/// Directory inside a private node.
///
///     port.send(control::WatchActor{actor});
///     // answers come to Node::on_control, later: never from inside send()
#pragma once

#include "troupe/runtime/control/messages.hpp"

namespace troupe::agent {

struct ControlPort {
  ControlPort() = default;
  ControlPort(const ControlPort&) = delete;
  ControlPort& operator=(const ControlPort&) = delete;
  virtual ~ControlPort() = default;
  /// Sends in order. Does not block and does not call back.
  virtual void send(control::ToControl message) = 0;
};

}  // namespace troupe::agent
