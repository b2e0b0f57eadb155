/// The tasks that this process has submitted: waiting for arguments, ready, in flight, retried. A
/// plain state machine.
///
/// Tasks of one demand share leases. A lease is a worker that runs only our calls, fed through its
/// ring; how many calls wait there depends on how long they run, so that short ones stream and long
/// ones stay movable.
///
///     tasks.submit(task, now);       // → out.send(worker, task), or out.request_lease(key, n)
///     tasks.ended(worker, sequence, ran, now);
///     tasks.worker_died(worker, started, reason, alone, now);
///
/// A task that asked for it gets a second attempt on another worker when it runs three times as
/// long as is usual for its function (as MapReduce's backup tasks do, Dean and Ghemawat 2004). Both
/// are tasks with the same results: the first that ends well counts, else the last one's error.
///
/// A thread of this process that awaits a task may run it itself (in_place.hpp).
///
/// Invariants: TASK-1 a task is in exactly one place: waiting, ready, in flight, claimed by who
/// awaits it, running here or gone. TASK-2 an unstarted call never costs a retry. TASK-3 a
/// reclaimed lease gets no new call. TASK-4 no task is sent again that has killed kPoison workers,
/// whatever its retries. TASK-5 of two attempts one ends the task, and neither waits behind the
/// other.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/client/flight_queue.hpp"
#include "troupe/runtime/client/free_list.hpp"
#include "troupe/runtime/client/in_place.hpp"
#include "troupe/runtime/client/lazy_time.hpp"
#include "troupe/runtime/client/ready_queue.hpp"
#include "troupe/runtime/client/runtime_estimate.hpp"
#include "troupe/runtime/engine/engine.hpp"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::client {

struct Spec;

/// A million of them may wait, so every byte counts: tests/runtime/footprint_test.cpp.
struct Task final : FromFreeList<Task> {
  detail::Call call;
  detail::SmallVector<detail::ObjectHandle, 1> results;
  std::unique_ptr<const detail::Request> request;  ///< null: defaults
  /// In flight: its number on the worker's channel. Ready: its place among those that are.
  std::uint64_t sequence = 0;
  Spec* spec = nullptr;  ///< it runs again, for lost results
  // intrusive list of all live tasks
  Task* previous = nullptr;
  Task* next = nullptr;
  std::uint32_t key = 0;          ///< demand
  std::int32_t retries_left = 3;  ///< -1: without limit
  std::uint32_t attempt = 1;
  std::uint16_t waiting = 0;            ///< arguments that are not ready
  std::uint8_t killed : 5 = 0;          ///< workers that ended while they ran it
  bool may_have_run : 1 = false;        ///< in an attempt that has not ended it
  bool had_second_attempt : 1 = false;  ///< there is one at most, or each would have its own
  bool light : 1 = false;               ///< sent plain, with one result and no options
  /// failed: an argument ended in an error; superseded: its other attempt has ended the task. Kept
  /// until waiting is 0, or its worker answers.
  enum class Fate : std::uint8_t { open, failed, superseded } fate = Fate::open;
};

/// What stands in errors for where a call ran: its function, behind the name that the user gave.
std::string place_of(const detail::Call& call, const detail::Request* request);
/// The error of an attempt with the name that its task has, if it arose in that.
Error with_its_name(const Error& error, const Task& task);

class TaskManager {
 public:
  static constexpr std::uint32_t kPoison = 3;
  /// How many keys are remembered that nobody uses, with how long their tasks run.
  static constexpr std::size_t kUnusedKeys = 32;
  /// A grant is lost when its worker dies before we hear of it: what is still wanted is asked
  /// again.
  static constexpr Duration kAskAgain = std::chrono::milliseconds(100);
  /// What follows from an input. Calls come while an input is handled; they must not call back in.
  class Out {
   public:
    virtual ~Out() = default;
    /// Writes the call to the worker's ring and sets task.sequence; false when the ring is full
    /// (writable() follows).
    virtual bool send(std::uint64_t worker, Task& task) = 0;
    /// Its arguments are ready: now task.key may be another one, of the same demand.
    virtual void placed(Task& /*task*/) {}
    /// tick() is due kAskAgain from now, or sooner.
    virtual void request_lease(std::uint64_t key, std::uint32_t backlog) = 0;
    /// No task of this key is left.
    virtual void unused(std::uint64_t /*key*/) {}
    virtual void return_lease(std::uint64_t lease) = 0;
    virtual void recall(std::uint64_t worker) = 0;
    /// The task's results end in this error.
    virtual void fail(Task& task, const Error& error) = 0;
    /// Whether a recall could still bring back the task that was sent with this number: its worker
    /// is of this node and has not begun it.
    virtual bool may_come_back(std::uint64_t /*worker*/, std::uint64_t /*sequence*/) {
      return false;
    }
    /// The claimed task has come back: whoever awaits it is to look at claim_returned().
    virtual void claim_came_back() {}
  };

  explicit TaskManager(Out& out) : out_(out) {}
  TaskManager(const TaskManager&) = delete;
  TaskManager& operator=(const TaskManager&) = delete;
  ~TaskManager();

  /// Takes the task over; it is sent when its arguments are ready and a lease has room. When this
  /// throws, it was not sent, and stays the caller's.
  void submit(std::unique_ptr<Task>&& task, const LazyTime& now);
  /// The worker that would be sent a task of this key whose arguments are ready at once, or 0.
  /// Whoever sends it there hands it in by sent(), before any other input; there is memory for it.
  std::uint64_t open_way(std::uint64_t key);
  void sent(std::unique_ptr<Task> task, std::uint64_t worker, const LazyTime& now) noexcept;
  /// One argument of a waiting task became ready.
  void argument_ready(Task& task, Time now);
  /// One argument of a waiting task ended in an error: it fails now and never runs.
  void argument_failed(Task& task, const Error& error);

  void granted(std::uint64_t key, std::uint64_t lease, std::uint64_t worker, Time now);
  /// Every ready task of the key fails.
  void refused(std::uint64_t key, const Error& error);
  void reclaim(std::uint64_t lease, Time now);
  void writable(std::uint64_t worker, Time now);

  /// The task behind a reply, or nullptr when there is none (a late or invented reply).
  Task* in_flight(std::uint64_t worker, std::uint64_t sequence);
  /// One of two attempts ended in an error: it is dropped, and the other decides. False: it is the
  /// only one.
  bool yields(std::uint64_t worker, std::uint64_t sequence, Time now);
  /// Its last reply came. The task is the caller's from here on; without results if another attempt
  /// was first.
  std::unique_ptr<Task> ended(std::uint64_t worker, std::uint64_t sequence, Duration ran, Time now);
  /// It has not run, since arguments were lost: it is sent again once `waiting` of them are ready.
  /// Costs no retry.
  void postponed(std::uint64_t worker, std::uint64_t sequence, std::uint32_t waiting, Time now);
  /// It threw an exception that is worth a retry and has one left; false: it has none, deliver the
  /// error.
  bool retry(std::uint64_t worker, std::uint64_t sequence, Time now);
  void handed_back(std::uint64_t worker, std::uint64_t first, std::uint64_t count, Time now);
  /// An error of this attempt, as one of the task: what an earlier attempt ran is not called
  /// not executed.
  static Error of_all_attempts(const Task& task, const Error& error);
  /// `started` is the highest sequence that the worker began; all replies in its ring were
  /// delivered before. `alone`: its node lives, so what it ran may have been the cause.
  void worker_died(std::uint64_t worker, std::uint64_t started, const Error& reason, bool alone,
                   Time now);

  // --- tasks that whoever awaits them runs itself
  /// Precondition: no claim is open.
  Claim::Answer claim(Task& task, Time now);
  /// The waiter gives its CPU back: what it has claimed is asked back of the worker that has it.
  void recall_claimed();
  bool claim_returned() const noexcept { return claim_.has_returned(); }
  /// As Answer::run, once the claimed task has come back; or nullptr.
  Task* take_returned(Time now);
  /// The wait is over: a task that came back and was not run is ready again.
  void unclaim(Time now);
  /// A task that was run here has ended; it is the caller's.
  std::unique_ptr<Task> ended_here(Task& task);
  /// It threw what is worth a retry. True: it is ready again.
  bool retry_here(Task& task, Time now);

  /// Recalls stuck calls, returns idle leases. Returns when to call again (Time::max(): only after
  /// other inputs).
  Time tick(Time now);

  /// Each live task.
  template <class F>
  void each(F look_at) const {
    for (const Task* task = first_; task != nullptr; task = task->next) look_at(*task);
  }
  std::size_t live() const noexcept { return live_count_; }
  std::size_t queued() const noexcept { return queued_; }
  std::size_t second_attempts() const noexcept { return second_attempts_; }
  /// How many tasks were given to those who await them.
  std::size_t run_here() const noexcept { return run_here_; }
  std::size_t keys() const noexcept { return pools_.size(); }
  bool has_worker(std::uint64_t worker) const { return leases_.count(worker) != 0; }

 private:
  struct Lease {
    std::uint64_t id = 0;
    std::uint64_t key = 0;
    std::uint64_t worker = 0;
    FlightQueue<Task*> in_flight;
    Time since{};  ///< of the last progress
    bool reclaimed = false;
    bool full = false;  ///< its ring had no room
    bool recalled = false;
  };
  struct Pool {
    ReadyQueue<Task, &Task::sequence> ready;
    std::vector<Lease*> leases;
    std::size_t tasks = 0;  ///< of this key, wherever they are
    double run_ns = -1;     ///< smoothed; negative: unknown
    std::uint32_t requested = 0;
    Time asked{};  ///< when that was sent last
    RecentClaims claims;
  };

  void dispatch(std::uint64_t key, Pool& pool, const LazyTime& now);
  void take_over(Task& task);
  Lease* best_lease(const Pool& pool) const;
  Lease* best_lease_without(Pool& pool, const Task& task) const;
  Lease* lease_on(std::uint64_t worker);
  void ask_for_leases(std::uint64_t key, Pool& pool, Time now);
  void give_back_others(std::uint64_t key, const Pool& pool, Time now);
  void ask(std::uint64_t key, Pool& pool, std::size_t want, Time now);
  void give_back(Lease& lease);
  std::unique_ptr<Task> take(Task& task, Pool& pool);
  void forget(Task& task) { take(task, pools_.at(task.key)); }
  void forget_unused();
  void requeue(Pool& pool, Task& task);
  bool goes_to_waiter(Task& task);
  Task& runs_here(Task& task, Time now);
  Task* leave(Lease& lease, std::uint64_t sequence, Time now);
  void settle_lease(Lease& lease, Time now);
  Time when_slow(const Lease& lease) const;
  void attempt_again(Task& slow, Time now);
  Task* other_attempt(const Task& task) const;
  Task* part(const Task& task);
  void supersede(Task& late);
  static void unname(const Task& task) noexcept;
  static std::size_t depth(const Pool& pool) noexcept;

  Out& out_;
  std::map<std::uint64_t, Pool> pools_;
  std::map<std::uint64_t, std::unique_ptr<Lease>> leases_;  ///< by worker
  Lease* lately_ = nullptr;                                 ///< lease_on() looks here first
  Task* first_ = nullptr;
  std::size_t live_count_ = 0;
  std::size_t queued_ = 0;
  Claim claim_;
  std::size_t run_here_ = 0;
  std::vector<std::pair<Task*, Task*>> twins_;         ///< two attempts of a task; few
  std::map<std::string_view, RuntimeEstimate> usual_;  ///< of functions that may need it, by name
  std::size_t second_attempts_ = 0;
};

}  // namespace troupe::client
