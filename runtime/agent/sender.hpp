/// The ways on which the parts of this node send: to its processes, to agents of other nodes, and to
/// control.
///
///     sender.send(process, message, payload);  sender.send(node, message, payload);
///     sender.send(control::ToControl(message));
///     for (auto& answer : sender.hear(now)) on_control(answer);      // each pass
///
/// Invariants: SENDER-1 Messages to one receiver are sent in order. A process that has ended gets
/// none. SENDER-2 A message that no Link takes leaves an event. It is answered as control would
/// refuse it, so that no wait for its answer stays open. SENDER-3 No answer comes from inside a call.
#pragma once

#include "troupe/runtime/agent/control_port.hpp"
#include "troupe/runtime/agent/local_control.hpp"
#include "troupe/runtime/agent/network.hpp"
#include "troupe/runtime/agent/observers.hpp"
#include "troupe/runtime/agent/outgoing.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/agent/proxies.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe::agent {

class Sender final : public Outgoing,
                     public ControlPort,
                     public Proxies::Nodes,
                     public Observers::Control {
 public:
  /// The parts below this one. A private node has `local_control`, a node of a cluster has
  /// `network`; the other is null.
  struct Below {
    NodeEvents& events;
    Processes& processes;
    const std::unique_ptr<LocalControl>& local_control;
    const std::unique_ptr<Network>& network;
  };
  explicit Sender(const Below& below) : below_(below) {}

  /// Returns the answers of a private node's control, or those to messages that no Link took. The
  /// network delivers messages of a cluster's control by itself.
  std::vector<control::FromControl> hear(Time now);

  // --- Outgoing
  void send(ProcessIndex to, const wire::NodeMessage& message, BlobView payload) override {
    below_.processes.send(to, message, payload);
  }
  bool is_alive(ProcessIndex process) override { return below_.processes.find(process) != nullptr; }
  void send(NodeId to, const wire::PeerMessage& message, BlobView payload) override {
    below_.network->send(to, message, payload);
  }
  bool can_send(NodeId to) const override { return below_.network->can_send(to); }
  // --- ControlPort
  void send(control::ToControl message) override {
    if (below_.local_control) return below_.local_control->send(std::move(message));
    say_to_control(message);
  }
  // --- Proxies::Nodes
  bool may_serve() override { return below_.network->may_serve(steady_now()); }
  void drop(NodeId node, const std::string& why) override { below_.network->drop(node, why); }
  // --- Observers::Control
  bool has_control() const override { return below_.network != nullptr; }
  bool hears_control() const override { return below_.network->hears_control(steady_now()); }
  void say_to_control(const control::ToControl& message) override;

 private:
  const Below below_;
  std::vector<control::FromControl> refused_;  ///< answers to messages that no Link took
};

}  // namespace troupe::agent
