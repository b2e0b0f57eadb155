/// The errors that tell watchers and callers of an actor how its lives ended.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/actor_messages.hpp"
#include "troupe/runtime/control/restart_pace.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::control::internal {

/// The actor is dead for good. `node`: where it lived last, if it had a place.
std::shared_ptr<const ErrorInfo> error_of_death(const ActorSpec& spec, const std::string& why,
                                                const std::optional<Error>& cause, NodeId node);
/// A life has ended and another follows.
std::shared_ptr<const ErrorInfo> error_of_life(const ActorSpec& spec, const RestartPace& pace,
                                               const Error& cause, Time now);
/// No node can have made the actor.
std::shared_ptr<const ErrorInfo> error_of_unknown();

}  // namespace troupe::control::internal
