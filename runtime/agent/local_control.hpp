/// Control of a private node: the Directory of actors and the names of objects, inside the agent.
/// Nothing is durable and there is one place for actors. A plain state machine.
///
///     LocalControl control(self);
///     control.send(control::KillActor{actor});                  // queued
///     for (auto& answer : control.poll(now)) on_control(answer);  // each pass of the loop
///     timer.set(control.next_deadline());
///
/// It handles messages about actors, names and the end of the job. Other messages to control
/// concern a cluster and are ignored.
#pragma once

#include "troupe/runtime/agent/control_port.hpp"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class LocalControl final : public ControlPort {
 public:
  explicit LocalControl(NodeId self);
  void send(control::ToControl message) override { inbox_.push_back(std::move(message)); }
  /// Handles what was sent and what is due by now; returns the answers in order. The caller handles
  /// them and, while pending(), polls again. Cheap when nothing waits.
  std::vector<control::FromControl> poll(Time now);
  bool pending() const noexcept { return !inbox_.empty(); }
  /// Takes the lines that control would have written to its stderr since the last call.
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }
  std::optional<Time> next_deadline() const { return directory_.next_deadline(); }

 private:
  control::Directory::Out hear(control::ToControl& message, Time now);
  void carry_out(control::Directory::Out out, std::vector<control::FromControl>& answers);
  void carry_out(control::ObjectNames::Out out, std::vector<control::FromControl>& answers);

  NodeId self_;
  control::Directory directory_;
  control::ObjectNames names_;
  std::deque<control::ToControl> inbox_;
  std::vector<std::string> lines_;
};

}  // namespace troupe::agent
