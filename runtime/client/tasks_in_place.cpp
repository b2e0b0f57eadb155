/// Tasks that run in place: the TaskManager's side of a claim (in_place.hpp).
#include "troupe/runtime/client/tasks.hpp"

#include "troupe/runtime/client/objects.hpp"

#include <utility>

namespace troupe::client {

Claim::Answer TaskManager::claim(Task& task, Time now) {
  if (!may_run_in_place(task)) return Claim::Answer::no;
  Pool& pool = pools_[lease_key(task)];
  if (!pool.ready.holds(task)) {
    claim_.take(task);
    return Claim::Answer::wait;
  }
  pool.ready.erase(task);
  --queued_;
  runs_here(task, now);
  return Claim::Answer::run;
}

/// Notes that the task runs in this process. The open lease request stays as it is, since the
/// next task may follow at once and each change costs a message. tick() withdraws a surplus.
Task& TaskManager::runs_here(Task& task, Time now) {
  pools_[lease_key(task)].claims.note(now);
  requests_due_ = std::min(requests_due_, now + RecentClaims::kRecent);
  ++run_here_;
  return task;
}

void TaskManager::recall_claimed() {
  Task* task = claim_.to_recall();
  if (task == nullptr) return;
  for (Lease* lease : pools_.at(lease_key(*task)).leases) {
    const std::size_t at = lease->in_flight.find(task->sequence);
    if (at == lease->in_flight.size() || lease->in_flight[at] != task) continue;
    if (lease->recalled || !out_.may_come_back(lease->worker, task->sequence)) return;
    lease->recalled = true;
    return out_.recall(lease->worker);
  }
}

/// Returns true when the task is claimed: it belongs to the thread that awaits it and is not made
/// ready.
bool TaskManager::goes_to_waiter(Task& task) {
  if (!claim_.returns(task)) return false;
  out_.claim_came_back();
  return true;
}

Task* TaskManager::take_returned(Time now) {
  Task* task = claim_.take_returned();
  return task != nullptr ? &runs_here(*task, now) : nullptr;
}

void TaskManager::unclaim(Time now) {
  Task* task = claim_.leave();
  if (task == nullptr) return;
  Pool& pool = pools_.at(lease_key(*task));
  requeue(pool, *task);
  dispatch(lease_key(*task), pool, now);
}

std::unique_ptr<Task> TaskManager::ended_here(Task& task) {
  return take(task, pools_.at(lease_key(task)));
}

bool TaskManager::retry_here(Task& task, Time now) {
  if (task.retries_left == 0) return false;
  if (task.retries_left > 0) --task.retries_left;
  ++task.attempt;
  task.may_have_run = true;
  Pool& pool = pools_.at(lease_key(task));
  requeue(pool, task);
  dispatch(lease_key(task), pool, now);
  return true;
}

}  // namespace troupe::client
