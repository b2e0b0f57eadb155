/// Handles whose last one is gone, and the queue to the agent. All under the lock.
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/client/engine.hpp"

namespace troupe::client {
namespace {

/// The number of frames that may wait for the agent before this process waits, too. Far below the
/// number at which a channel refuses frames.
constexpr std::size_t kMostWaiting = 1 << 16;
static_assert(kMostWaiting < ring::kMaxOverflow);

}  // namespace

/// Drops the counts of entries that follow others, when nothing will be answered any more.
/// Otherwise a follower and its source would keep each other for ever.
void ClientEngine::end_following() {
  std::vector<detail::ObjectHandle> followers;
  values_.objects().each_promoted([&](Entry& source) { values_.leave(source, followers); });
  tasks_.each([&](const Task& task) {  // a recompute target need not be promoted
    for (const auto& result : task.results) values_.leave(entry_of(result), followers);
  });
}

void ClientEngine::collect_released() {
  report_unpins();
  if (released_.load(std::memory_order_acquire) == nullptr) return;  // mostly; costs no write
  Entry* entry = released_.exchange(nullptr, std::memory_order_seq_cst);
  while (entry != nullptr) {
    Entry* next = entry->next_released;
    values_.free(entry);
    entry = next;
    if (entry == nullptr) entry = released_.exchange(nullptr, std::memory_order_seq_cst);
  }
}

void ClientEngine::fire(const Waiter& waiter, Entry& entry) {
  waiter.fire(*this, waiter.who, entry);
}

// --- the agent

void ClientEngine::tell_agent(const wire::NodeMessage& message, BlobView payload) {
  if (agent_lost_) return;
  if (!agent_.send(writer_.encode(message), payload))
    return agent_gone("the queue to the node's agent is full");
  if (agent_.waiting() >= kMostWaiting) settle_agent_queue();
}

/// Waits until the agent's ring has taken all messages that are queued for it. Counts for
/// receivers must be in the agent's ring before the message that carries the refs is in the
/// receiver's ring (RUN-4): the agent frees only what no published message can still name. The
/// agent never blocks, so this is short.
void ClientEngine::settle_agent_queue() {
  if (agent_.waiting() == 0) return;
  constexpr Duration kReads = std::chrono::seconds(5);
  std::size_t waiting = agent_.waiting();
  Time deadline = steady_now() + kReads;
  while (!agent_.flush()) {
    const Time now = steady_now();
    if (agent_.waiting() < waiting) {
      waiting = agent_.waiting();
      deadline = now + kReads;
    }
    if (now >= deadline) {
      agent_gone("the node's agent did not read its ring for 5 s");
      return;
    }
    agent_.peer_doorbell().nudge();
    yield();
  }
}

}  // namespace troupe::client
