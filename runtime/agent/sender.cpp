#include "troupe/runtime/agent/sender.hpp"

#include <optional>
#include <utility>

namespace troupe::agent {

std::vector<control::FromControl> Sender::hear(Time now) {
  if (!below_.local_control) return std::exchange(refused_, {});
  auto messages = below_.local_control->poll(now);
  for (const std::string& line : below_.local_control->take_lines())
    below_.events.tell({EventKind::actor_trouble, Severity::warning, line});
  return messages;
}

void Sender::say_to_control(const control::ToControl& message) {
  const std::optional<Error> error = below_.network->send_control(message);
  if (!error) return;
  below_.events.tell({EventKind::refused, Severity::warning, error->message()});
  if (auto answer = control::refusal_of(message, error->shared_info()))
    refused_.push_back(*std::move(answer));
}

}  // namespace troupe::agent
