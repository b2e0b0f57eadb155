/// What a TaskManager does when time passes: requests that are repeated, stuck calls, idle leases,
/// second attempts and unused keys.
#include "troupe/runtime/client/tasks.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// A worker without progress for this long is asked to hand back its unstarted calls, if another
/// worker is idle.
constexpr Duration kStuck = 1ms;
/// The same limit while no worker is idle and tasks are ready. The calls that come back would run
/// no sooner, only more fairly; and a worker that just has no CPU looks stuck, too.
constexpr Duration kRecallWhenBusy = 20ms;
/// An idle lease is kept for this long.
constexpr Duration kWarm = 50ms;
/// With more keys than this, tick() looks at those without a lease only now and then.
constexpr std::size_t kFewKeys = 64;
/// How often unused keys are looked for among many.
constexpr Duration kForgetInterval = 50ms;

}  // namespace

Time TaskManager::tick(Time now) {
  std::vector<Lease*> idle;
  std::vector<Task*> slow;
  if (now >= requests_due_ || pools_.size() <= kFewKeys) {
    requests_due_ = Time::max();
    for (auto& [key, pool] : pools_)
      requests_due_ = std::min(requests_due_, look_at_request(key, pool, now));
  }
  Time next = Time::max();
  for (const auto& [worker, lease] : leases_) {
    Pool& pool = pools_.at(lease->key);
    if (lease.get() == pool.leases.front())
      next = std::min(next, look_at_leases(lease->key, pool, now, idle, slow));
  }
  for (Lease* lease : idle) give_back(*lease);
  for (Task* task : slow) attempt_again(*task, now);
  if (pools_.size() > kUnusedKeys && (pools_.size() <= kFewKeys || now >= forget_due_)) {
    forget_unused();
    forget_due_ = now + kForgetInterval;
  } else if (pools_.size() > kUnusedKeys) {
    next = std::min(next, forget_due_);
  }
  return std::min(next, requests_due_);
}

/// Returns the interval after which an open request is repeated. With many keys it is longer, so
/// that the repetitions of a process take no more of its agent's time.
Duration TaskManager::ask_again_after() const noexcept {
  return kAskAgain * static_cast<int>(1 + pools_.size() / kFewKeys);
}

/// Repeats or withdraws the pool's request for leases when that is due. Returns when to look
/// again.
Time TaskManager::look_at_request(LeaseKey key, Pool& pool, Time now) {
  Time next = Time::max();
  if (pool.requested != 0 && !pool.ready.empty()) {
    if (now - pool.asked >= ask_again_after()) ask(key, pool, pool.ready.size(), now);
    next = std::min(next, pool.asked + ask_again_after());
  }
  if (pool.claims.any()) {
    next = std::min(next, pool.claims.look(now));
    if (!pool.claims.any()) dispatch(key, pool, now);
  }
  if (pool.requested != 0 && pool.ready.empty()) {  // its tasks ran in place meanwhile
    if (now - pool.asked >= kAskAgain)
      ask(key, pool, 0, now);
    else
      next = std::min(next, pool.asked + kAskAgain);
  }
  return next;
}

/// Recalls stuck calls of the pool, and collects its idle leases and slow tasks. Returns when to
/// look again.
Time TaskManager::look_at_leases(LeaseKey key, Pool& pool, Time now, std::vector<Lease*>& idle,
                                 std::vector<Task*>& slow) {
  Time next = Time::max();
  const bool somebody_idle =
      std::any_of(pool.leases.begin(), pool.leases.end(),
                  [](const Lease* l) { return l->in_flight.empty() && !l->reclaimed; });
  for (Lease* lease : pool.leases) {
    // The lease may be idle by then.
    if (!lease->in_flight.empty()) next = std::min(next, now + kWarm);
    if (const Time when = when_slow(*lease); when <= now)
      slow.push_back(lease->in_flight[0]);
    else
      next = std::min(next, when);
    if (lease->in_flight.empty()) {
      const Duration warm = is_spare(*lease, pool) ? kWarmForOthers : kWarm;
      if (now - lease->since >= warm)
        idle.push_back(lease);
      else
        next = std::min(next, lease->since + warm);
    } else if (lease->in_flight.size() > 1 && !lease->recalled) {
      const bool crowd = !somebody_idle && !pool.ready.empty();
      if (now - lease->since < kStuck) {
        next = std::min(next, lease->since + kStuck);
      } else if (crowd && now - lease->since < kRecallWhenBusy) {
        next = std::min(next, now + kStuck);
      } else if (somebody_idle || crowd) {
        lease->recalled = true;
        out_.recall(lease->worker);
      } else {
        // No worker could take them now: ask for one more, and look again.
        if (pool.requested == 0 || now - pool.asked >= kAskAgain) ask(key, pool, 1, now);
        next = std::min(next, now + kStuck);
      }
    }
  }
  return next;
}

// --- second attempts

/// Returns when the lease's oldest call has run so long that a second attempt is due.
Time TaskManager::when_slow(const Lease& lease) const {
  if (!second_.knows_any() || lease.in_flight.empty()) return Time::max();
  const Task& task = *lease.in_flight[0];
  if (!task.request || !task.request->second_attempt || task.retries_left == 0 ||
      task.fate != Task::Fate::open || task.spec != nullptr || task.had_second_attempt)
    return Time::max();
  return second_.due(function_of(task), lease.since);
}

void TaskManager::attempt_again(Task& slow, Time now) {
  std::unique_ptr<Task> second(new Task{{}, slow.call, slow.results});
  second->request = std::make_unique<const detail::Request>(*slow.request);
  second->key = slow.key;
  second->retries_left = slow.retries_left - (slow.retries_left > 0 ? 1 : 0);
  second->attempt = slow.attempt + 1;
  second->killed = slow.killed;
  slow.had_second_attempt = second->had_second_attempt = true;
  slow.may_have_run = second->may_have_run = true;
  second_.pair(slow, *second);
  try {
    submit(std::move(second), now);
  } catch (...) {
    second_.part(slow);
    throw;
  }
}

/// Forgets unused keys, which come and go with the demands of tasks and with nodes.
void TaskManager::forget_unused() {
  const auto is_unused = [](const Pool& pool) {
    return pool.tasks == 0 && pool.leases.empty() && pool.requested == 0;
  };
  std::vector<LeaseKey> unused;
  for (const auto& [key, pool] : pools_)
    if (key != 0 && is_unused(pool)) unused.push_back(key);
  // Keep the newest ones: they are the likeliest to be used again.
  unused.resize(unused.size() - std::min(unused.size(), kUnusedKeys));
  for (const LeaseKey key : unused) {
    pools_.erase(key);
    out_.unused(key);
  }
}

}  // namespace troupe::client
