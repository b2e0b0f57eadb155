/// Handles whose last one is gone, and the queue to the agent. All under the lock.
#include "troupe/runtime/client/engine.hpp"

namespace troupe::client {

/// Drops the counts of entries that follow others, when nothing will be answered any more.
/// Otherwise a follower and its source would keep each other for ever.
void ClientEngine::end_following() {
  std::vector<detail::ObjectHandle> followers;
  values_.objects().each_promoted([&](Entry& source) { values_.leave(source, followers); });
  calls_.tasks().each([&](const Task& task) {  // a recompute target need not be promoted
    for (const auto& result : task.results) values_.leave(entry_of(result), followers);
  });
}

void ClientEngine::fire(const Waiter& waiter, Entry& entry) {
  waiter.fire(calls_, waiter.who, entry);
}

// --- the agent

void ClientEngine::tell(const wire::NodeMessage& message, BlobView payload) {
  if (const char* why = agent_.tell(message, payload)) agent_gone(why);
}

/// Counts for receivers must be in the agent's ring before the message that carries the refs is in
/// the receiver's ring (RUN-4): the agent frees only what no published message can still name.
void ClientEngine::settle_agent_queue() {
  if (const char* why = agent_.settle()) agent_gone(why);
}

}  // namespace troupe::client
