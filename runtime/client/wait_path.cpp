#include "troupe/runtime/client/wait_path.hpp"

#include <utility>

namespace troupe::client {
namespace {

/// Returns the last object on the way to the value, or the first one that is not ready.
const Entry& end_of_way(const Entry& entry) {
  const Entry* at = &entry;
  while (const Entry* next = next_of(*at)) at = next;
  return *at;
}

std::string calls_before(std::size_t before) {
  return before == 1 ? "1 earlier call" : std::to_string(before) + " earlier calls";
}

/// The sentence of a task whose arguments are there.
WaitPath of_task(const Task& task, const TaskManager& tasks, std::string name,
                 const std::function<bool(ProcessIndex, const Task&)>& is_unbegun) {
  const ProcessIndex worker = tasks.worker_of(task);
  if (worker == 0) {
    wire::Explain question;
    question.key = lease_key(task);
    return {std::move(name), question, "waits for a worker"};
  }
  if (is_unbegun(worker, task))
    return {name + " waits behind other tasks of its worker", std::nullopt, {}};
  return {name + " is at a worker and has not ended", std::nullopt, {}};
}

/// The sentence of an actor call whose arguments are there.
WaitPath of_call(const ActorCalls::Place& place, std::string name) {
  if (place.state != wire::ActorState::alive) {
    wire::Explain question;
    question.actor = place.call->actor;
    return {name + " waits for its actor,", question, "which does not live yet"};
  }
  if (place.before != 0)
    name += place.sent ? " is at its actor behind " + calls_before(place.before)
                       : " waits behind " + calls_before(place.before) + " to its actor";
  else
    name += place.sent ? " is at its actor and has not ended" : " waits to be sent to its actor";
  return {std::move(name), std::nullopt, {}};
}

}  // namespace

const Entry* missing_argument(const detail::Call& call) {
  for (const auto& argument : call.arguments)
    if (argument.object)
      if (const Entry* blocker = blocker_of(entry_of(argument.object))) return blocker;
  return nullptr;
}

WaitPath wait_path(const Entry& entry, const TaskManager& tasks, const ActorCalls& actors,
                   const std::function<bool(ProcessIndex, const Task&)>& is_unbegun) {
  std::string first;  // the call that the thread waits for, if it waits for an argument
  std::size_t steps = 0;
  const Entry* at = &entry;
  const auto named = [&](std::string name) {
    if (first.empty()) return name;
    return first + " waits for an argument: " + name;
  };
  for (;;) {
    at = &end_of_way(*at);
    if (at->rebuilding) return {named("a lost value is computed again"), std::nullopt, {}};
    if (at->ready.load(std::memory_order_relaxed))
      return {named("its bytes are on their way from another node"), std::nullopt, {}};
    const detail::Call* call = nullptr;
    std::string name;
    const Task* task = at->task;
    ActorCalls::Place place;
    if (task != nullptr) {
      call = &task->call;
      name = "task '" + place_of(task->call, task->request.get()) + "'";
    } else if (const auto found = actors.place_of(*at)) {
      place = *found;
      call = &place.call->call;
      name = "call '" + place_of(*call, nullptr) + "'";
    } else {
      return {named("another process makes the value"), std::nullopt, {}};
    }
    const bool waits = (task != nullptr ? task->waiting : place.call->waiting) != 0;
    const Entry* argument = waits ? missing_argument(*call) : nullptr;
    if (argument != nullptr && ++steps < kMostSteps) {
      if (first.empty()) first = std::move(name);
      at = argument;
      continue;
    }
    name = named(std::move(name));
    return task != nullptr ? of_task(*task, tasks, std::move(name), is_unbegun)
                           : of_call(place, std::move(name));
  }
}

}  // namespace troupe::client
