/// The way from a value that a thread waits for to what that value needs: call by call, through
/// arguments that are not there yet. Reads the client's cores, and changes nothing.
///
///     const WaitPath path = wait_path(entry, tasks, actors, is_unbegun);
///     // text: "the argument of task 'sum' is the result of task 'load', which is"
///     // question: for the agent, which knows why no worker comes
#pragma once

#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/tasks.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <functional>
#include <optional>
#include <string>

namespace troupe::client {

struct WaitPath {
  /// One sentence; with a question its begin, which the agent's answer or `otherwise` ends.
  std::string text;
  std::optional<wire::Explain> question;
  std::string otherwise;
};

/// The most calls that a path follows.
inline constexpr std::size_t kMostSteps = 1000;

/// Returns the first object that the call waits for; nullptr: there is none. Under the engine's lock.
const Entry* missing_argument(const detail::Call& call);

/// Follows the entry to the call at the head of its path. `is_unbegun`: whether that worker is
/// known not to have begun the task. Under the engine's lock.
WaitPath wait_path(const Entry& entry, const TaskManager& tasks, const ActorCalls& actors,
                   const std::function<bool(ProcessIndex, const Task&)>& is_unbegun);

}  // namespace troupe::client
