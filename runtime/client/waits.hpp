/// The threads of this process that wait: for a value, for an answer of the agent, for work. A
/// worker that waits long gives its CPU and its unstarted calls back meanwhile (RUN-5), or runs the
/// awaited task itself. Serves ClientEngine, under its lock; the user's code runs without it.
///
///     if (!waits.block_until(lock, [&] { return questions.is_answered(n); }, deadline)) …   // late
///     waits.run_awaited(lock, entry);                   // the task may run here meanwhile
///     waits.wait_for_work(lock, [&] { return work.has_any(); });
///
/// Invariants: WAIT-1 What is there already is returned, whatever has ended. WAIT-2 Each wait ends
/// when the agent is lost or the session is over; block_until() then throws the reason, with the
/// outcome unknown. WAIT-3 A driver gives nothing back. A worker says once that its CPU is free,
/// after its patience, and once that it is not, before the wait returns. WAIT-4 The time that the
/// executor waits counts, and a task that it runs meanwhile counts as waiting for the outer one.
#pragma once

#include "troupe/runtime/client/agent_link.hpp"
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/engine_gate.hpp"
#include "troupe/runtime/client/identity.hpp"
#include "troupe/runtime/client/in_place.hpp"
#include "troupe/runtime/client/io_loop.hpp"
#include "troupe/runtime/client/suspended_runs.hpp"
#include "troupe/runtime/client/waiting_threads.hpp"
#include "troupe/runtime/client/work_queue.hpp"
#include "troupe/runtime/client/worker_lease.hpp"
#include "troupe/runtime/os/thread_watch.hpp"

#include <atomic>
#include <cstdint>
#include <functional>

namespace troupe::client {

class Waits {
 public:
  /// The calling thread is the executor: that of a worker which runs its calls.
  Waits(const Identity& self, EngineGate& gate, const AgentLink& agent, WorkQueue& work,
        Calls& calls, const WorkerLease& lease)
      : self_(self), gate_(gate), agent_(agent), work_(work), calls_(calls), lease_(lease) {}
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  /// Call it before the first wait.
  void begin(IoLoop& loop) noexcept { loop_ = &loop; }
  /// The session is over: waits end. Returns false when that was known. Any thread.
  bool end() noexcept { return !is_over_.exchange(true); }
  bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }

  /// Waits until done(), under the lock, or the deadline. Returns whether done(). Throws the reason
  /// when there will be no answer. `now`: the time, if the caller knows it.
  bool block_until(Guard& guard, const std::function<bool()>& done, Time deadline, Time now = {});
  /// As block_until(), but throws nothing, and a worker's patience lasts for `grace`.
  void idle_until(Guard& guard, const std::function<bool()>& done, Time deadline, Duration grace,
                  Time now = {});
  /// Waits on the worker's own thread, which runs nothing now.
  void wait_for_work(Guard& guard, const std::function<bool()>& done);
  /// Waits as block_until() does, without a deadline, until the entry can be opened or its fetch has
  /// failed. Runs the task that the value waits for here when that is possible.
  bool run_awaited(Guard& guard, Entry& entry);
  /// Returns whether this thread may run_awaited().
  bool may_run_awaited() const { return in_place_ != nullptr && in_place_->is_allowed(); }
  /// Allows tasks that this process awaits to run in it, by `runner`. nullptr ends that.
  void runs_in_place(InPlaceRunner* runner) noexcept { in_place_ = runner; }

  /// Returns the error of a wait that has no answer: why the agent is lost, that the session is
  /// over, or else `why`.
  Error no_answer(const char* why) const;
  /// Returns how long the executor has waited so far. Any thread.
  Duration waited() const noexcept { return Duration(waited_ns_.load(std::memory_order_relaxed)); }
  /// A lost value got another object or a new answer. Whoever found it lost looks again when the
  /// count has changed since. Any thread.
  void recovered() noexcept { ++recoveries_; }
  std::uint64_t recoveries() const noexcept { return recoveries_.load(std::memory_order_relaxed); }
  SuspendedRuns& suspended_runs() noexcept { return suspended_runs_; }
  /// The threads that wait for values, for lists.
  WaitingThreads& threads() noexcept { return threads_; }
  const WaitingThreads& threads() const noexcept { return threads_; }

 private:
  class Blocking;
  void idle_beside(Guard& guard, const std::function<bool()>& done, Time deadline, Duration grace);
  bool may_run_here(const Task& task) const;
  void run_here(Guard& guard, Task& task);

  const Identity& self_;
  EngineGate& gate_;
  const AgentLink& agent_;
  WorkQueue& work_;
  Calls& calls_;
  const WorkerLease& lease_;
  IoLoop* loop_ = nullptr;
  std::atomic<bool> is_over_{false};
  const os::ThreadWatch executor_;
  SuspendedRuns suspended_runs_;
  InPlaceRunner* in_place_ = nullptr;  ///< set in a worker
  bool runs_here_ = false;             ///< a task runs in place
  std::atomic<Duration::rep> waited_ns_{0};
  std::atomic<std::uint64_t> recoveries_{0};
  WaitingThreads threads_;
};

}  // namespace troupe::client
