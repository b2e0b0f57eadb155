#include "troupe/runtime/client/waits.hpp"

#include "troupe/runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// A wait that lasts longer than this gives the worker's CPU back.
constexpr Duration kBlockGrace = 100us;
/// The longest interval between two looks at what the executor does.
constexpr Duration kLookAtExecutor = 10ms;

/// The executor is in idle_until() while it lives.
class ExecutorWaits {
 public:
  explicit ExecutorWaits(WorkQueue& work) noexcept : work_(work) { work_.executor_waits(true); }
  ~ExecutorWaits() { work_.executor_waits(false); }
  ExecutorWaits(const ExecutorWaits&) = delete;
  ExecutorWaits& operator=(const ExecutorWaits&) = delete;

 private:
  WorkQueue& work_;
};

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

}  // namespace

/// From begin() to end(), the worker has given its CPU back to the agent and its unstarted calls to
/// their callers (RUN-5).
class Waits::Blocking {
 public:
  explicit Blocking(Waits& waits) : calls_(waits.calls_), work_(waits.work_) {}
  ~Blocking() { end(); }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;
  void begin() {
    calls_.tasks().recall_claimed();
    work_.block();
    begun_ = true;
  }
  void end() {
    if (std::exchange(begun_, false)) work_.unblock();
  }
  explicit operator bool() const noexcept { return begun_; }

 private:
  Calls& calls_;
  WorkQueue& work_;
  bool begun_ = false;
};

/// The awaited work may need the CPU and the unstarted calls.
void Waits::idle_until(Guard& guard, const std::function<bool()>& done, Time deadline,
                       Duration grace, Time now) {
  if (self_.kind != wire::ProcessKind::worker) {
    calls_.tasks().recall_claimed();
    loop_->wait(guard, done, deadline, now);
    return;
  }
  if (!executor_.is_this_thread()) return idle_beside(guard, done, deadline, grace);
  const Time begun = steady_now();
  const Time patient_until = std::min(deadline, deadline_after(begun, grace));
  const ExecutorWaits waits(work_);
  if (!loop_->wait(guard, done, patient_until) && patient_until < deadline && !is_over()) {
    Blocking blocking(*this);
    blocking.begin();
    loop_->wait(guard, done, deadline);
  }
  waited_ns_.fetch_add((steady_now() - begun).count(), std::memory_order_relaxed);
}

/// Waits on a thread of user code beside the executor, to which the CPU belongs. The CPU goes back
/// while a call runs and waits, probably for this thread, or while an actor has no call to run.
void Waits::idle_beside(Guard& guard, const std::function<bool()>& done, Time deadline,
                        Duration grace) {
  Duration pause = grace;
  os::ThreadWatch::Look last;
  Blocking blocking(*this);
  while (!is_over()) {
    const Time until = std::min(deadline, deadline_after(steady_now(), pause));
    if (loop_->wait(guard, done, until) || until == deadline) return;
    gate_.unlock_and_collect(guard);  // the executor may wait for the lock
    const bool call_waits = executor_.waited_since(last);
    guard.lock();
    const bool unused =
        work_.is_serving() ? call_waits : static_cast<bool>(calls_.sender().loopback().actor());
    if (!unused || work_.executor_waits())
      blocking.end();
    else if (!blocking)
      blocking.begin();
    // A call that has waited is left out of the Pace report.
    if (blocking) waited_ns_.fetch_add(1, std::memory_order_relaxed);
    pause = std::min(2 * pause, kLookAtExecutor);
  }
}

void Waits::wait_for_work(Guard& guard, const std::function<bool()>& done) {
  // Runs that wait in coroutines keep their devices, which hold their state.
  if (suspended_runs_.any() && lease_.devices().empty())
    idle_until(guard, done, Time::max(), kBlockGrace);
  else
    loop_->wait(guard, done, Time::max());
}

bool Waits::block_until(Guard& guard, const std::function<bool()>& done, Time deadline, Time now) {
  if (done()) return true;
  idle_until(guard, [&] { return done() || agent_.is_lost(); }, deadline, kBlockGrace, now);
  if (done()) return true;
  if (is_over() || agent_.is_lost()) {
    const Error error = no_answer("");
    raise(Error(error.code(), error.message(), Outcome::unknown));
  }
  return false;
}

Error Waits::no_answer(const char* why) const {
  if (agent_.is_lost()) return agent_.why_lost();
  return Error(Code::unavailable, is_over() ? "the session is over" : why);
}

bool Waits::run_awaited(Guard& guard, Entry& entry) {
  const auto done = [&entry] { return is_here(entry) || fetch_failed(entry); };
  const auto over = [&] { return done() || calls_.tasks().claim_returned(); };
  while (!done() && !is_over() && !agent_.is_lost()) {
    Task* task = awaited_task(entry);
    const Time now = steady_now();
    Claim::Answer answer = Claim::Answer::no;
    if (task != nullptr && may_run_here(*task)) answer = calls_.tasks().claim(*task, now);
    if (answer == Claim::Answer::no) break;
    if (answer == Claim::Answer::wait) {
      const Claiming claiming(calls_.tasks());
      block_until(guard, over, Time::max(), now);
      task = calls_.tasks().take_returned(steady_now());
    }
    if (task != nullptr) run_here(guard, *task);
  }
  return block_until(guard, done, Time::max());
}

/// Returns whether the task may run in this process. Tasks that belong to another node have a key
/// of their own, and may not. Under the lock.
bool Waits::may_run_here(const Task& task) const {
  const SchedulingClasses::Class& cls = calls_.classes().at(lease_key(task));
  return !cls.node && lease_.covers(cls.demand, self_.node);
}

/// Runs a task without the lock. The time counts as waiting for the outer task, so that its run
/// time stays right.
void Waits::run_here(Guard& guard, Task& task) {
  const bool outermost = !std::exchange(runs_here_, true);
  const Time begun = outermost ? steady_now() : Time{};
  gate_.unlock_and_collect(guard);
  in_place_->run(task);
  guard = gate_.guard();
  if (!outermost) return;
  runs_here_ = false;
  waited_ns_.fetch_add((steady_now() - begun).count(), std::memory_order_relaxed);
}

}  // namespace troupe::client
