/// Runs a task on the worker's thread that awaits it (in_place.hpp): the wait, and the end of the
/// task.
#include "troupe/runtime/client/engine.hpp"

#include <utility>

namespace troupe::client {

void ClientEngine::runs_in_place(InPlaceRunner* runner) {
  const Guard lock = guard();
  in_place_ = runner;
}

/// Ends the process's claim, if there is one, at the end of a wait.
class Claiming {
 public:
  explicit Claiming(TaskManager& tasks) : tasks_(tasks) {}
  ~Claiming() { tasks_.unclaim(steady_now()); }
  Claiming(const Claiming&) = delete;
  Claiming& operator=(const Claiming&) = delete;

 private:
  TaskManager& tasks_;
};

/// Waits as block_until() does, without a deadline, until the entry can be opened or its fetch
/// has failed. Runs the task that the value waits for here when that is possible. Returns with
/// the lock held.
bool ClientEngine::run_awaited(Guard& lock, Entry& entry) {
  const auto done = [&entry] { return is_here(entry) || fetch_failed(entry); };
  const auto over = [&] { return done() || calls_.tasks().claim_returned(); };
  while (!done() && !stopping_ && !agent_.is_lost()) {
    Task* task = awaited_task(entry);
    const Time now = steady_now();
    Claim::Answer answer = Claim::Answer::no;
    if (task != nullptr && may_run_here(*task)) answer = calls_.tasks().claim(*task, now);
    if (answer == Claim::Answer::no) break;
    if (answer == Claim::Answer::wait) {
      const Claiming claiming(calls_.tasks());
      block_until(lock, over, Time::max(), now);
      task = calls_.tasks().take_returned(steady_now());
    }
    if (task != nullptr) run_here(lock, *task);
  }
  return block_until(lock, done, Time::max());
}

/// Returns whether the task may run in this process. Tasks that belong to another node have a key
/// of their own, and may not. Under the lock.
bool ClientEngine::may_run_here(const Task& task) const {
  const SchedulingClasses::Class& cls = calls_.classes().at(lease_key(task));
  return !cls.node && lease_.covers(cls.demand, self_.node);
}

/// Runs a task without the lock. The time counts as waiting for the outer task, so that its run
/// time stays right.
void ClientEngine::run_here(Guard& lock, Task& task) {
  const bool outermost = !std::exchange(runs_here_, true);
  const Time begun = outermost ? steady_now() : Time{};
  unlock_and_collect(lock);
  in_place_->run(task);
  lock = guard();
  if (!outermost) return;
  runs_here_ = false;
  waited_ns_.fetch_add((steady_now() - begun).count(), std::memory_order_relaxed);
}

/// Takes the results of a task that ran in this process.
void ClientEngine::ended_here(Task& task, std::span<OutgoingValue> values) noexcept {
  Guard lock = guard();
  calls_.ended_here(task, values);
  unlock_and_collect(lock);
}

}  // namespace troupe::client
