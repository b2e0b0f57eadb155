/// The tasks that this process has submitted: waiting for arguments, ready, in flight or retried.
/// A plain state machine, driven by ClientEngine.
///
/// Tasks of one key (scheduling class) share leases. A lease is a worker that runs only calls of
/// this process, fed through its ring. The number of calls that wait in a ring depends on how
/// long they run: short calls stream, and long calls stay movable.
///
///     tasks.submit(task, now);       // → out.send(worker, task), or out.request_lease(key, n)
///     tasks.ended(worker, sequence, ran, now);
///     tasks.worker_died(worker, started, reason, alone, now);
///
/// A task with Request::second_attempt gets a second attempt on another worker when it runs three
/// times as long as is usual for its function (as MapReduce's backup tasks do, Dean and Ghemawat
/// 2004). Each attempt is a Task, and both have the same results. The first attempt that ends
/// well settles the results. If neither does, the last one's error settles them.
///
/// A thread of this process may run the task that it awaits itself (in_place.hpp).
///
/// Invariants:
/// - TASK-1: a task is in exactly one place: waiting, ready, in flight, claimed by the thread
///   that awaits it, running in this process, or gone.
/// - TASK-2: an unstarted call never costs a retry.
/// - TASK-3: a reclaimed lease gets no new call.
/// - TASK-4: a task during which kPoison workers have died is not sent again, whatever its
///   retries.
/// - TASK-5: one of two attempts ends the task, and neither waits behind the other.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/client/flight_queue.hpp"
#include "troupe/runtime/client/free_list.hpp"
#include "troupe/runtime/client/in_place.hpp"
#include "troupe/runtime/client/lazy_time.hpp"
#include "troupe/runtime/client/ready_queue.hpp"
#include "troupe/runtime/client/second_attempts.hpp"
#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/observe/list_walk.hpp"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::client {

struct Spec;

/// One attempt of a task. A million may wait at once, so it must stay small.
struct Task final : FromFreeList<Task> {
  [[no_unique_address]] detail::Call call;  // the members behind it use the room at its end
  detail::SmallVector<detail::ObjectHandle, 1> results;
  std::unique_ptr<const detail::Request> request;  ///< null: defaults
  /// In flight: the number of the call on the worker's channel. Ready: the place in Pool::ready.
  std::uint64_t sequence = 0;
  Spec* spec = nullptr;  ///< set while the task runs again to replace lost results
  // intrusive list of all live tasks
  Task* previous = nullptr;
  Task* next = nullptr;
  std::uint32_t key = 0;          ///< scheduling class: a LeaseKey in half the room
  std::int32_t retries_left = 3;  ///< -1: without limit
  std::uint32_t attempt = 1;
  std::uint32_t since_ms = 0;   ///< when it began to wait, of LazyTime::milliseconds(); 0: unknown
  std::uint16_t waiting = 0;    ///< arguments that are not ready
  std::uint8_t killed : 5 = 0;  ///< workers that died while they ran it
  bool may_have_run : 1 = false;        ///< an earlier or parallel attempt may have begun
  bool had_second_attempt : 1 = false;  ///< at most one second attempt: it must not get one itself
  bool light : 1 = false;               ///< sent as a plain call, with one result and no options
  /// failed: an argument ended in an error. superseded: the other attempt has ended the task.
  /// Such a Task lives on until `waiting` is 0, or until its worker answers.
  enum class Fate : std::uint8_t { open, failed, superseded } fate = Fate::open;
};

inline LeaseKey lease_key(const Task& task) {
  return LeaseKey::of(task.key);
}

/// Returns the name of the task's function; empty when it has none.
inline std::string_view function_of(const Task& task) {
  return task.call.callable != nullptr ? task.call.callable->name : "";
}

/// Returns the function's name, behind the user's name for the task if there is one, for
/// Error::where().
std::string place_of(const detail::Call& call, const detail::Request* request);
/// Adds the task's user-given name to an error that arose in the task itself.
Error with_its_name(const Error& error, const Task& task);

class TaskManager {
 public:
  static constexpr std::uint32_t kPoison = 3;
  /// The number of unused keys whose pools are kept, with their estimates of run times.
  static constexpr std::size_t kUnusedKeys = 32;
  /// The interval after which an open lease request is repeated, while keys are few. A
  /// grant is dropped when its worker dies before this process has its channel, and the agent does
  /// not repeat it.
  static constexpr Duration kAskAgain = std::chrono::milliseconds(100);
  /// The effects of inputs. The TaskManager calls these while it handles an input; they must not
  /// call back into it.
  class Out {
   public:
    virtual ~Out() = default;
    /// Writes the call to the worker's ring and sets task.sequence; false when the ring is full
    /// (writable() follows).
    virtual bool send(ProcessIndex worker, Task& task) = 0;
    /// Called when the arguments are ready. May change task.key to another key of the same
    /// demand.
    virtual void placed(Task& /*task*/) {}
    /// Asks the agent for `backlog` leases of this key. tick() is due kAskAgain from now at the
    /// latest.
    virtual void request_lease(LeaseKey key, std::uint32_t backlog) = 0;
    /// The key's pool is gone: it has no task, no lease and no request.
    virtual void unused(LeaseKey /*key*/) {}
    virtual void return_lease(LeaseId lease) = 0;
    virtual void recall(ProcessIndex worker) = 0;
    /// Ends the task's results in this error.
    virtual void fail(Task& task, const Error& error) = 0;
    /// Returns whether a recall may still bring back the task with this number: the worker is on
    /// this node and has not begun it.
    virtual bool may_come_back(ProcessIndex /*worker*/, std::uint64_t /*sequence*/) {
      return false;
    }
    /// The claimed task has come back: wake the thread that awaits it, so that it checks
    /// claim_returned().
    virtual void claim_came_back() {}
  };

  explicit TaskManager(Out& out) : out_(out) {}
  TaskManager(const TaskManager&) = delete;
  TaskManager& operator=(const TaskManager&) = delete;
  ~TaskManager();

  /// Takes the task over and sends it once its arguments are ready and a lease has room. When
  /// this throws, the task was not sent, and stays the caller's.
  void submit(std::unique_ptr<Task>&& task, const LazyTime& now);
  /// Returns the worker that would get a task of this key whose arguments are ready, or 0. The
  /// caller may then write the call to that worker's ring itself. It must report that with sent()
  /// before any other input. Memory for sent() is reserved here.
  ProcessIndex open_way(LeaseKey key);
  void sent(std::unique_ptr<Task> task, ProcessIndex worker, const LazyTime& now) noexcept;
  /// One argument of a waiting task is ready.
  void argument_ready(Task& task, Time now);
  /// One argument of a waiting task ended in an error: the task fails now and never runs.
  void argument_failed(Task& task, const Error& error);

  void granted(LeaseKey key, LeaseId lease, ProcessIndex worker, Time now);
  /// The agent refuses the key: every ready task of it fails.
  void refused(LeaseKey key, const Error& error);
  /// No other process can be reached now: every ready task of a key without a lease fails.
  void refuse_unleased(const Error& error);
  void reclaim(LeaseId lease, Time now);
  void writable(ProcessIndex worker, Time now);

  /// Returns the task that a reply belongs to, or nullptr (a late or invented reply).
  Task* in_flight(ProcessIndex worker, std::uint64_t sequence);
  /// Drops an attempt that ended in an error when the task has another attempt, which then
  /// decides. Returns false when it is the only attempt.
  bool yields(ProcessIndex worker, std::uint64_t sequence, Time now);
  /// The last reply to a task has come. Returns the task, which is the caller's from here on. It
  /// has no results when another attempt has settled them.
  std::unique_ptr<Task> ended(ProcessIndex worker, std::uint64_t sequence, Duration ran, Time now);
  /// The worker did not run the task, because arguments were lost. The task is sent again once
  /// `waiting` of them are ready. Costs no retry.
  void postponed(ProcessIndex worker, std::uint64_t sequence, std::uint32_t waiting, Time now);
  /// Retries a task that threw an exception listed in its retry_on. Returns false when no retry
  /// is left: the caller delivers the error.
  bool retry(ProcessIndex worker, std::uint64_t sequence, Time now);
  void handed_back(ProcessIndex worker, std::uint64_t first, std::uint64_t count, Time now);
  /// Returns the error of one attempt as the task's error: `not_executed` becomes `unknown` when
  /// an earlier attempt may have run.
  static Error of_all_attempts(const Task& task, const Error& error);
  /// The worker died. `started` is the highest sequence that it began; the caller has delivered
  /// all replies in its ring. `alone`: only the worker died and its node lives, so the task that
  /// it ran may be the cause.
  void worker_died(ProcessIndex worker, std::uint64_t started, const Error& reason, bool alone,
                   Time now);

  // --- tasks that run in place (tasks_in_place.cpp)
  /// Claims the task for the thread that awaits it. Precondition: no claim is open.
  Claim::Answer claim(Task& task, Time now);
  /// Recalls the claimed task from the worker that has it, because the waiter gives its CPU back.
  void recall_claimed();
  bool claim_returned() const noexcept { return claim_.has_returned(); }
  /// Returns the claimed task once it has come back, to be run as after Answer::run; or nullptr.
  Task* take_returned(Time now);
  /// Ends the claim with the wait. A task that came back and was not run is ready again.
  void unclaim(Time now);
  /// A task that ran in this process has ended. Returns it; it is the caller's.
  std::unique_ptr<Task> ended_here(Task& task);
  /// Retries a task that ran in this process and threw an exception listed in its retry_on.
  /// Returns true when it is ready again.
  bool retry_here(Task& task, Time now);

  // --- time (tasks_tick.cpp)
  /// Recalls stuck calls, returns idle leases, repeats lease requests and starts second attempts.
  /// Returns when to call it again; Time::max(): only after other inputs.
  Time tick(Time now);

  /// Calls look_at with each live task.
  template <class F>
  void each(F look_at) const {
    for (const Task* task = first_; task != nullptr; task = task->next) look_at(*task);
  }
  /// Begins a walk over the live tasks that goes on while tasks come and go. There is one at a time:
  /// another begin ends the one before.
  void begin_walk() { walk_.begin(first_, nullptr); }
  bool walks() const noexcept { return !walk_.done(); }
  /// Calls look_at with at most `most` tasks of the walk.
  template <class F>
  void walk(std::size_t most, F look_at) {
    walk_.step(most, look_at);
  }
  /// Where a live task is. arguments: some are not ready. ready: it waits for a lease. worker: it was
  /// sent. here: it runs in this process.
  struct Place {
    enum class At : std::uint8_t { arguments, ready, worker, here } at = At::arguments;
    ProcessIndex worker;     ///< worker
    bool is_oldest = false;  ///< worker: no earlier task of this process is there
    Time since{};            ///< worker: its last progress
  };
  Place find(const Task& task) const;
  /// Returns the worker that has the task in flight; 0: none. Linear in the leases.
  ProcessIndex worker_of(const Task& task) const;
  std::size_t live() const noexcept { return live_count_; }
  std::size_t queued() const noexcept { return queued_; }
  std::size_t second_attempts() const noexcept { return second_.begun(); }
  /// The number of tasks that ran in this process, on the threads that awaited them.
  std::size_t run_here() const noexcept { return run_here_; }
  std::size_t keys() const noexcept { return pools_.size(); }
  bool has_worker(ProcessIndex worker) const { return leases_.count(worker) != 0; }

 private:
  struct Lease {
    LeaseId id;
    LeaseKey key;
    ProcessIndex worker;
    FlightQueue<Task*> in_flight;
    Time since{};  ///< time of the last progress
    bool reclaimed = false;
    bool full = false;  ///< its ring had no room for the last call
    bool recalled = false;
  };
  struct Pool {
    ReadyQueue<Task, &Task::sequence> ready;
    std::vector<Lease*> leases;
    std::size_t tasks = 0;  ///< all tasks of this key, wherever they are
    double run_ns = -1;     ///< smoothed run time; negative: unknown
    std::uint32_t requested = 0;
    Time asked{};  ///< when the request was sent last
    RecentClaims claims;
  };

  /// An idle lease of another demand is kept only for this long when a task begins to wait for a
  /// lease. Its resources would make this node look full, and the task would be placed elsewhere.
  /// One that becomes idle while tasks of other demands wait is not kept at all.
  static constexpr Duration kWarmForOthers = std::chrono::milliseconds(1);

  void dispatch(LeaseKey key, Pool& pool, const LazyTime& now);
  void granted_again(Lease& lease, LeaseKey key, Pool& pool, LeaseId id, Time now);
  void take_over(Task& task);
  Lease* best_lease(const Pool& pool) const;
  Lease* best_lease_without(Pool& pool, const Task& task) const;
  Lease* lease_on(ProcessIndex worker);
  void ask_for_leases(LeaseKey key, Pool& pool, Time now);
  void give_back_others(LeaseKey key, const Pool& pool, Time now);
  void ask(LeaseKey key, Pool& pool, std::size_t want, Time now);
  void give_back(Lease& lease);
  bool is_spare(const Lease& lease, const Pool& pool) const noexcept;
  void give_back_spare(ProcessIndex worker);
  Duration ask_again_after() const noexcept;
  Time look_at_request(LeaseKey key, Pool& pool, Time now);
  Time look_at_leases(LeaseKey key, Pool& pool, Time now, std::vector<Lease*>& idle,
                      std::vector<Task*>& slow);
  std::unique_ptr<Task> take(Task& task, Pool& pool);
  void forget(Task& task) { take(task, pools_.at(lease_key(task))); }
  void forget_unused();
  void requeue(Pool& pool, Task& task);
  bool goes_to_waiter(Task& task);
  Task& runs_here(Task& task, Time now);
  Task* leave(Lease& lease, std::uint64_t sequence, Time now);
  void settle_lease(Lease& lease, Time now);
  Time when_slow(const Lease& lease) const;
  void attempt_again(Task& slow, Time now);
  void supersede(Task& late);
  static void unname(const Task& task) noexcept;
  static std::size_t depth(const Pool& pool) noexcept;

  Out& out_;
  std::map<LeaseKey, Pool> pools_;
  std::map<ProcessIndex, std::unique_ptr<Lease>> leases_;  ///< by worker
  Lease* lately_ = nullptr;                                ///< cache of lease_on()
  Task* first_ = nullptr;
  observe::ListWalk<Task> walk_;
  std::size_t live_count_ = 0;
  std::size_t queued_ = 0;
  Claim claim_;
  std::size_t run_here_ = 0;
  SecondAttempts second_;
  Time requests_due_{};  ///< when tick() must look at requests again
  Time forget_due_{};    ///< when it may look for unused keys again
};

}  // namespace troupe::client
