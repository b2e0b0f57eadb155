#include "troupe/runtime/client/tasks.hpp"

#include "troupe/runtime/client/objects.hpp"
#include "troupe/runtime/client/outgoing_value.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// The work that may wait at one worker: enough to hide a round trip, little enough to move
/// elsewhere.
constexpr double kPipelineNs = 400e3;
constexpr std::size_t kMaxDepth = 256;
constexpr std::uint32_t kMaxBacklog = 4096;
Error poisoned(const Error& last) {
  ErrorInfo info = last.info();
  info.code = Code::poison_task;
  info.message = std::to_string(TaskManager::kPoison) +
                 " workers died while they ran it, so it is not tried again: " + info.message;
  return Error(std::move(info));
}

}  // namespace

std::string place_of(const detail::Call& call, const detail::Request* request) {
  if (request == nullptr || request->name.empty()) return call.callable->name;
  return request->name + ": " + call.callable->name;
}

Error with_its_name(const Error& error, const Task& task) {
  if (!task.request || task.request->name.empty() || error.where().function != function_of(task))
    return error;
  ErrorInfo info = error.info();
  info.origin.function = place_of(task.call, task.request.get());
  return Error(std::move(info));
}

TaskManager::~TaskManager() {
  while (first_ != nullptr) {
    Task* task = first_;
    forget(*task);
  }
}

void TaskManager::take_over(Task& task) {
  task.next = first_;
  if (first_ != nullptr) first_->previous = &task;
  first_ = &task;
  ++live_count_;
}

ProcessIndex TaskManager::open_way(LeaseKey key) {
  const auto at = pools_.find(key);
  if (at == pools_.end() || !at->second.ready.empty() || second_.any()) return 0;
  Lease* lease = best_lease(at->second);
  if (lease == nullptr) return 0;
  lease->in_flight.make_room();
  return lease->worker;
}

void TaskManager::sent(std::unique_ptr<Task> owned, ProcessIndex worker,
                       const LazyTime& now) noexcept {
  Task* task = owned.release();
  take_over(*task);
  Pool& pool = pools_[lease_key(*task)];
  ++pool.tasks;
  Lease& lease = *lease_on(worker);
  if (lease.in_flight.empty()) lease.since = now();
  lease.in_flight.push_back(task);
  if (pool.requested == 0) return;
  try {
    ask_for_leases(lease_key(*task), pool, now());
  } catch (const std::bad_alloc&) {  // too many leases stay requested for a while
  }
}

void TaskManager::submit(std::unique_ptr<Task>&& owned, const LazyTime& now) {
  Task* task = owned.get();
  task->since_ms = now.milliseconds();
  if (task->waiting != 0) {
    ++pools_[lease_key(*task)].tasks;
    take_over(*owned.release());
    return;
  }
  const std::uint32_t before = task->key;
  out_.placed(*task);
  if (task->key != before)
    pools_.try_emplace(LeaseKey::of(before));  // so that forget_unused() reports it, too
  Pool& pool = pools_[lease_key(*task)];
  pool.ready.push_back(*task);
  ++pool.tasks;
  ++queued_;
  take_over(*owned.release());
  try {
    dispatch(lease_key(*task), pool, now);
  } catch (...) {
    if (!pool.ready.holds(*task))
      return;  // it was sent; only the change of the lease request failed
    pool.ready.erase(*task);
    --queued_;
    owned = take(*task, pool);
    throw;
  }
}

void TaskManager::argument_ready(Task& task, Time now) {
  TROUPE_ASSERT(task.waiting > 0, "an argument became ready twice");
  if (--task.waiting != 0) return;
  if (task.fate != Task::Fate::open) {
    forget(task);
    return;
  }
  const std::uint32_t before = task.key;
  out_.placed(task);
  Pool& pool = pools_[lease_key(task)];
  if (task.key != before) {
    --pools_.at(LeaseKey::of(before)).tasks;
    ++pool.tasks;
    claim_.gone(task);  // the task now belongs to another node
  }
  task.since_ms = milliseconds_of(now);
  if (goes_to_waiter(task)) return;
  pool.ready.push_back(task);
  ++queued_;
  dispatch(lease_key(task), pool, now);
}

void TaskManager::argument_failed(Task& task, const Error& error) {
  if (task.fate == Task::Fate::open) {
    if (second_.part(task) == nullptr)
      out_.fail(task, of_all_attempts(task, of_call_not_run(error)));
    task.fate = Task::Fate::failed;
  }
  argument_ready(task, Time{});
}

void TaskManager::granted(LeaseKey key, LeaseId id, ProcessIndex worker, Time now) {
  Pool& pool = pools_[key];
  if (Lease* held = lease_on(worker)) return granted_again(*held, key, pool, id, now);
  auto lease = std::make_unique<Lease>();
  lease->id = id;
  lease->key = key;
  lease->worker = worker;
  lease->since = now;
  pool.leases.push_back(lease.get());
  leases_.emplace(worker, std::move(lease));
  if (pool.requested > 0) --pool.requested;
  dispatch(key, pool, now);
  give_back_spare(worker);
}

/// The agent took the worker's last lease back while this process was silent. Its calls come back,
/// or are answered.
void TaskManager::granted_again(Lease& lease, LeaseKey key, Pool& pool, LeaseId id, Time now) {
  TROUPE_ASSERT(lease.reclaimed, "a worker is leased once at a time");
  if (pool.requested > 0) --pool.requested;
  if (lease.key != key) return out_.return_lease(id);  // it may still run calls of the other key
  lease.id = id;
  lease.reclaimed = false;
  dispatch(key, pool, now);
}

void TaskManager::refused(LeaseKey key, const Error& error) {
  const auto found = pools_.find(key);
  if (found == pools_.end()) return;
  Pool& pool = found->second;
  pool.requested = 0;
  while (!pool.ready.empty()) {
    Task* task = pool.ready.front();
    pool.ready.pop_front();
    --queued_;
    if (second_.part(*task) == nullptr) out_.fail(*task, of_all_attempts(*task, error));
    forget(*task);
  }
}

void TaskManager::refuse_unleased(const Error& error) {
  for (const auto& [key, pool] : pools_) {
    if (!pool.leases.empty() || pool.ready.empty()) continue;
    out_.request_lease(key, 0);
    refused(key, error);
  }
}

void TaskManager::reclaim(LeaseId id, Time) {
  for (auto& [worker, lease] : leases_) {
    if (lease->id != id) continue;
    lease->reclaimed = true;
    if (lease->in_flight.empty()) {
      give_back(*lease);
    } else if (lease->in_flight.size() > 1 && !lease->recalled) {
      lease->recalled = true;
      out_.recall(lease->worker);
    }
    return;
  }
}

void TaskManager::writable(ProcessIndex worker, Time now) {
  const auto found = leases_.find(worker);
  if (found == leases_.end() || !found->second->full) return;
  found->second->full = false;
  dispatch(found->second->key, pools_[found->second->key], now);
}

TaskManager::Lease* TaskManager::lease_on(ProcessIndex worker) {
  if (lately_ != nullptr && lately_->worker == worker) return lately_;
  const auto found = leases_.find(worker);
  return found != leases_.end() ? lately_ = found->second.get() : nullptr;
}

Task* TaskManager::in_flight(ProcessIndex worker, std::uint64_t sequence) {
  Lease* lease = lease_on(worker);
  if (lease == nullptr) return nullptr;
  Task* const* task = lease->in_flight.answered(sequence);
  return task != nullptr ? *task : nullptr;
}

ProcessIndex TaskManager::worker_of(const Task& task) const {
  for (const auto& [worker, lease] : leases_) {
    const std::size_t at = lease->in_flight.find(task.sequence);
    if (at != lease->in_flight.size() && lease->in_flight[at] == &task) return worker;
  }
  return 0;
}

/// Takes a task out of its lease after a message of the worker, which counts as progress.
[[gnu::always_inline]] inline Task* TaskManager::leave(Lease& lease, std::uint64_t sequence,
                                                       Time now) {
  const std::size_t at = lease.in_flight.find(sequence);
  TROUPE_ASSERT(at != lease.in_flight.size(), "a task that is not in flight ended");
  lease.since = now;
  lease.recalled = false;
  return lease.in_flight.take(at);
}

TaskManager::Place TaskManager::find(const Task& task) const {
  using At = Place::At;
  if (task.waiting != 0) return {};
  if (const auto pool = pools_.find(lease_key(task));
      pool != pools_.end() && pool->second.ready.holds(task))
    return {.at = At::ready};
  const auto lease = leases_.find(worker_of(task));
  if (lease == leases_.end()) return {.at = At::here};
  return {.at = At::worker,
          .worker = lease->first,
          .is_oldest = lease->second->in_flight[0] == &task,
          .since = lease->second->since};
}

std::unique_ptr<Task> TaskManager::ended(ProcessIndex worker, std::uint64_t sequence, Duration ran,
                                         Time now) {
  Lease* const on = lease_on(worker);
  TROUPE_ASSERT(on != nullptr, "a task that is not in flight ended");
  Lease& lease = *on;
  Task* task = leave(lease, sequence, now);
  Pool& pool = pools_[lease.key];
  const auto ns = static_cast<double>(ran.count());
  pool.run_ns = pool.run_ns < 0 ? ns : 0.8 * pool.run_ns + 0.2 * ns;
  if (task->request && task->request->second_attempt) second_.ran(function_of(*task), ran);
  if (second_.any())
    if (Task* late = second_.part(*task)) supersede(*late);
  std::unique_ptr<Task> owned = take(*task, pool);
  const LeaseKey key = lease.key;
  if (lease.in_flight.empty() && (lease.reclaimed || is_spare(lease, pool))) {
    give_back(lease);
    ask_for_leases(key, pool, now);
  } else if (!pool.ready.empty() || pool.requested != 0) {
    dispatch(key, pool, now);
  }
  return owned;
}

bool TaskManager::yields(ProcessIndex worker, std::uint64_t sequence, Time now) {
  Task* task = in_flight(worker, sequence);
  if (task == nullptr || second_.part(*task) == nullptr) return false;
  Lease& lease = *lease_on(worker);
  leave(lease, sequence, now);
  forget(*task);
  settle_lease(lease, now);
  return true;
}

bool TaskManager::retry(ProcessIndex worker, std::uint64_t sequence, Time now) {
  Task* task = in_flight(worker, sequence);
  if (task == nullptr || task->retries_left == 0) return false;
  if (task->retries_left > 0) --task->retries_left;
  task->may_have_run = true;
  postponed(worker, sequence, 0, now);
  return true;
}

void TaskManager::postponed(ProcessIndex worker, std::uint64_t sequence, std::uint32_t waiting,
                            Time now) {
  Task* task = in_flight(worker, sequence);
  TROUPE_ASSERT(task != nullptr, "a task that is not in flight is postponed");
  task->waiting = waiting;
  task->since_ms = milliseconds_of(now);
  ++task->attempt;
  Lease& lease = *leases_.at(worker);
  leave(lease, sequence, now);
  claim_.gone(*task);
  if (waiting == 0) {
    pools_[lease.key].ready.push_back(*task);
    ++queued_;
  }
  settle_lease(lease, now);
}

/// Gives the lease back or sends it more, after a task has left it.
void TaskManager::settle_lease(Lease& lease, Time now) {
  const LeaseKey key = lease.key;
  const ProcessIndex worker = lease.worker;
  if (lease.reclaimed && lease.in_flight.empty()) give_back(lease);
  dispatch(key, pools_[key], now);
  give_back_spare(worker);
}

void TaskManager::handed_back(ProcessIndex worker, std::uint64_t first, std::uint64_t count,
                              Time now) {
  const auto found = leases_.find(worker);
  if (found == leases_.end()) return;
  Lease& lease = *found->second;
  const LeaseKey key = lease.key;
  Pool& pool = pools_[key];
  for (std::size_t i = lease.in_flight.size(); i-- > 0;) {
    if (const std::uint64_t at = lease.in_flight[i]->sequence; at < first || at - first >= count)
      continue;
    Task& task = *lease.in_flight.take(i);
    if (task.fate == Task::Fate::open)
      requeue(pool, task);
    else
      forget(task);
  }
  // A worker that hands back is busy for long, or waits. It keeps one call at most; other workers
  // take these calls, and it gets no new one until it makes progress.
  lease.since = now;
  lease.recalled = !lease.in_flight.empty();
  if (lease.reclaimed && lease.in_flight.empty()) give_back(lease);
  dispatch(key, pool, now);
  give_back_spare(worker);
}

Error TaskManager::of_all_attempts(const Task& task, const Error& error) {
  const bool ran = task.may_have_run || task.spec != nullptr;
  if (!ran || error.outcome() != Outcome::not_executed) return error;
  ErrorInfo info = error.info();
  info.outcome = Outcome::unknown;
  return Error(std::move(info));
}

void TaskManager::worker_died(ProcessIndex worker, std::uint64_t started, const Error& reason,
                              bool alone, Time now) {
  const auto found = leases_.find(worker);
  if (found == leases_.end()) return;
  const std::unique_ptr<Lease> lease = std::move(found->second);
  leases_.erase(found);
  lately_ = nullptr;
  Pool& pool = pools_[lease->key];
  std::erase(pool.leases, lease.get());
  while (!lease->in_flight.empty()) {
    Task& task = *lease->in_flight.take(lease->in_flight.size() - 1);
    const bool ran = task.sequence <= started;
    if (ran && alone) ++task.killed;
    Task* other = ran ? second_.part(task) : nullptr;
    if (other != nullptr) other->killed = std::max<std::uint8_t>(other->killed, task.killed);
    if (task.fate != Task::Fate::open || other != nullptr) {
      forget(task);
    } else if (!ran) {
      requeue(pool, task);
    } else if (alone && task.killed >= kPoison) {
      out_.fail(task, poisoned(reason));
      forget(task);
    } else if (task.retries_left != 0) {
      if (task.retries_left > 0) --task.retries_left;
      ++task.attempt;
      task.may_have_run = true;
      requeue(pool, task);
    } else {
      out_.fail(task, reason);
      forget(task);
    }
  }
  dispatch(lease->key, pool, now);
}

/// Drops an attempt after the other one has ended the task. An attempt in flight cannot be
/// stopped: it keeps its place, and its answer finds no results.
void TaskManager::supersede(Task& late) {
  Pool& pool = pools_.at(lease_key(late));
  if (pool.ready.holds(late)) {
    pool.ready.erase(late);
    --queued_;
    return forget(late);
  }
  late.fate = Task::Fate::superseded;
  late.retries_left = 0;
  unname(late);
  late.results = {};
}

/// Returns how many calls a worker of the pool may hold: kPipelineNs of work, but one call while
/// the run time is unknown or at least 2 ms.
std::size_t TaskManager::depth(const Pool& pool) noexcept {
  if (pool.run_ns < 0 || pool.run_ns >= 2e6) return 1;
  const auto fit = static_cast<std::size_t>(kPipelineNs / std::max(pool.run_ns, 100.0));
  const std::size_t depth = std::clamp<std::size_t>(fit, 2, kMaxDepth);
  return pool.claims.any() ? pool.claims.limit(depth, pool.ready.size()) : depth;
}

TaskManager::Lease* TaskManager::best_lease(const Pool& pool) const {
  Lease* best = nullptr;
  const std::size_t limit = depth(pool);
  for (Lease* lease : pool.leases) {
    if (lease->reclaimed || lease->full || lease->in_flight.size() >= limit) continue;
    // A worker that was recalled for lack of progress gets nothing until it makes progress.
    if (lease->recalled && !lease->in_flight.empty()) continue;
    if (best == nullptr || lease->in_flight.size() < best->in_flight.size()) best = lease;
  }
  return best;
}

/// As best_lease(), but never the lease that runs the task's other attempt.
TaskManager::Lease* TaskManager::best_lease_without(Pool& pool, const Task& task) const {
  const Task* other = second_.other(task);
  for (Lease* lease : pool.leases) {
    if (other == nullptr) break;
    const std::size_t at = lease->in_flight.find(other->sequence);
    if (at == lease->in_flight.size() || lease->in_flight[at] != other) continue;
    // Marked as full, the lease with the other attempt is skipped.
    const bool full = std::exchange(lease->full, true);
    Lease* best = best_lease(pool);
    lease->full = full;
    return best;
  }
  return best_lease(pool);
}

void TaskManager::dispatch(LeaseKey key, Pool& pool, const LazyTime& now) {
  while (!pool.ready.empty()) {
    Task* task = pool.ready.front();
    if (const Task* soon = pool.ready.behind(2)) soon->fetch_ahead();
    Lease* lease = !second_.any() ? best_lease(pool) : best_lease_without(pool, *task);
    if (lease == nullptr) break;
    lease->in_flight.make_room();
    if (!out_.send(lease->worker, *task)) {
      lease->full = true;
      continue;
    }
    pool.ready.pop_front();
    --queued_;
    if (lease->in_flight.empty()) lease->since = now();
    lease->in_flight.push_back(task);
  }
  if (pool.requested != 0 || !pool.ready.empty()) ask_for_leases(key, pool, now());
}

void TaskManager::ask(LeaseKey key, Pool& pool, std::size_t want, Time now) {
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(want, kMaxBacklog));
  out_.request_lease(key, count);
  pool.requested = count;
  pool.asked = now;
  requests_due_ = std::min(requests_due_, now + kAskAgain);
}

void TaskManager::ask_for_leases(LeaseKey key, Pool& pool, Time now) {
  const auto want =
      static_cast<std::uint32_t>(std::min<std::size_t>(pool.ready.size(), kMaxBacklog));
  if (want == pool.requested) return;
  const bool first = pool.requested == 0 && want > 0;
  const bool grew = want >= 2 * pool.requested && want > 0;
  const bool drained = want == 0;
  if (!first && !grew && !drained) return;
  if (!drained) give_back_others(key, pool, now);
  ask(key, pool, want, now);
}

/// Returns idle leases of other keys before this key asks for leases, so that the agent sees
/// their resources as free.
void TaskManager::give_back_others(LeaseKey key, const Pool& pool, Time now) {
  if (leases_.size() == pool.leases.size()) return;  // mostly
  std::vector<Lease*> idle;
  for (const auto& [worker, lease] : leases_)
    if (lease->key != key && lease->in_flight.empty() && now - lease->since >= kWarmForOthers)
      idle.push_back(lease.get());
  for (Lease* lease : idle) give_back(*lease);
}

/// Returns whether the lease is idle while tasks of other demands are ready, which may need what
/// it holds.
bool TaskManager::is_spare(const Lease& lease, const Pool& pool) const noexcept {
  return lease.in_flight.empty() && pool.ready.empty() && queued_ != 0;
}

void TaskManager::give_back_spare(ProcessIndex worker) {
  Lease* lease = lease_on(worker);
  if (lease != nullptr && is_spare(*lease, pools_.at(lease->key))) give_back(*lease);
}

void TaskManager::give_back(Lease& lease) {
  Pool& pool = pools_[lease.key];
  std::erase(pool.leases, &lease);
  out_.return_lease(lease.id);
  lately_ = nullptr;
  leases_.erase(lease.worker);
}

void TaskManager::requeue(Pool& pool, Task& task) {
  if (goes_to_waiter(task)) return;
  pool.ready.push_front(task);
  ++queued_;
}

/// Takes the task off its results, so that awaited_task() no longer finds it.
void TaskManager::unname(const Task& task) noexcept {
  for (const auto& result : task.results)
    if (result && !entry_of(result).ready.load(std::memory_order_relaxed))
      entry_of(result).task = nullptr;
}

std::unique_ptr<Task> TaskManager::take(Task& task, Pool& pool) {
  --pool.tasks;
  walk_.leaves(task);
  if (task.previous != nullptr) task.previous->next = task.next;
  if (task.next != nullptr) task.next->previous = task.previous;
  if (first_ == &task) first_ = task.next;
  --live_count_;
  claim_.gone(task);
  unname(task);
  return std::unique_ptr<Task>(&task);
}

}  // namespace troupe::client
