/// What a worker's thread is to do next: coroutines to resume, actors to become and calls to run.
/// Says which calls go back to their callers because this worker cannot run them soon. A plain
/// state machine, driven by ClientEngine.
///
///     work.take(incoming, peer.refused);                    // a call has arrived
///     if (work.has_any()) work.next(call, actor, resume);   // the worker's thread takes one thing
///     work.answered();                                      // it has answered the call
///     work.block(); … work.unblock();                       // its CPU is free meanwhile (RUN-5)
///
/// Invariants: WORK-1 Coroutines go first, then actors, then calls, each in order of arrival. An
/// actor alone is not begun after end(). WORK-2 A task's call that would wait while the worker is
/// blocked is handed back at once. Calls of actors stay. WORK-3 Calls of one caller that go back
/// together make one HandBack. Their refs are dropped before it, and none of them has begun. WORK-4
/// A task's call of a refused caller waits for judge_refused(), which takes it or hands it back.
/// WORK-5 Blocked is told with the first reason and Unblocked after the last.
#pragma once

#include "troupe/runtime/client/small_buffer.hpp"
#include "troupe/runtime/wire/messages.hpp"
#include "troupe/runtime/wire/plain.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace troupe::client {

/// A call that has arrived and has not begun. Views of a plain call's arguments keep this record
/// alive.
struct Incoming {
  ProcessIndex from;        ///< process index of the caller
  wire::Call call;          ///< without the arguments if the call is plain
  std::uint32_t count = 0;  ///< plain: number of arguments, whose bytes are in `payload`
  std::array<wire::PlainRange, wire::kPlainArguments> ranges;
  SmallBuffer<72> payload;
};

/// The agent's order to become an actor.
struct ActorStart {
  wire::StartActor start;
  Blob payload;
};

class WorkQueue {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Sends the calls back to their caller, if it lives.
    virtual void hand_back(ProcessIndex caller, const wire::HandBack& calls) = 0;
    /// Returns the counts that the caller took for this process.
    virtual void drop_refs(const wire::Call& call) = 0;
    /// Returns whether the caller's calls go back: its lease was taken away, or it is gone.
    virtual bool is_refused(ProcessIndex caller) = 0;
    /// Tells the agent that the worker's CPU is free, or no longer.
    virtual void tell_blocked(bool is_blocked) = 0;
  };
  explicit WorkQueue(Out& out) : out_(out) {}
  /// Names this process. Call it before the first call arrives.
  void belongs_to(ProcessIndex self) noexcept { self_ = self; }

  // --- what arrives
  /// Takes a call that has arrived. `refused`: the agent took the caller's lease back. Returns
  /// false when the call waits for judge_refused(): all that precedes it has to be read first,
  /// since the agent may have granted the caller another lease.
  bool take(std::shared_ptr<Incoming> call, bool refused) {
    const bool is_of_task = call->call.actor_low == 0;
    if (refused && is_of_task) {
      refused_.push_back(std::move(call));
      return false;
    }
    const ProcessIndex from = call->from;
    calls_.push_back(std::move(call));
    if (is_of_task && would_wait(from)) hand_back_unstarted();
    return true;
  }
  void become(ActorStart start) { starts_.push_back(std::move(start)); }
  void resume(std::function<void()> coroutine) { resumable_.push_back(std::move(coroutine)); }
  bool has_refused() const noexcept { return !refused_.empty(); }
  /// Hands back the calls of callers that are refused. Takes the others; returns whether there was
  /// one.
  bool judge_refused();
  /// Hands all calls of tasks back.
  void hand_back_unstarted() { hand_back(calls_); }
  /// Drops the calls of a process that is gone.
  void drop_calls_of(ProcessIndex caller);

  // --- what runs
  /// Moves the next thing into its argument. Precondition: has_any(), and all arguments are empty.
  void next(std::shared_ptr<Incoming>& call, std::optional<ActorStart>& actor,
            std::function<void()>& coroutine);
  bool has_any() const noexcept {
    return !calls_.empty() || !resumable_.empty() || !(is_ending_ || starts_.empty());
  }
  bool has_calls() const noexcept { return !calls_.empty(); }
  /// What next() returned last has answered, or has suspended.
  void answered() noexcept { is_serving_ = false; }
  bool is_serving() const noexcept { return is_serving_; }
  /// Returns whether user code runs, or is about to.
  bool is_busy() const noexcept { return is_serving_ || !calls_.empty() || !resumable_.empty(); }

  // --- waiting and the end
  /// Notes one more reason why the worker's CPU is free, and hands all calls of tasks back.
  void block();
  /// Ends one of the reasons.
  void unblock();
  bool is_blocked() const noexcept { return blocked_ != 0; }
  /// Says whether the thread that runs calls waits for a value.
  void executor_waits(bool waits) noexcept { executor_waits_ = waits; }
  bool executor_waits() const noexcept { return executor_waits_; }
  /// The agent ends this process. Calls that were accepted before still run.
  void end() noexcept { is_ending_ = true; }
  /// Drops what has not begun. Coroutines may still reach the engine meanwhile.
  void clear();
  bool is_ending() const noexcept { return is_ending_; }

 private:
  using Calls = std::deque<std::shared_ptr<Incoming>>;
  /// Returns whether a call of that process would wait here, while the CPU is given back. It would
  /// not when the executor is free, although a thread beside it has not noticed that yet. Handed
  /// back, the call of an owner with nothing else in flight would come again at once, and a call
  /// of this process for ever, under the lock. So own calls also stay while the worker ends.
  bool would_wait(ProcessIndex from) const noexcept {
    return blocked_ != 0 && (is_serving_ || executor_waits_ || (is_ending_ && from != self_));
  }
  void hand_back(Calls& calls);

  Out& out_;
  ProcessIndex self_;
  Calls calls_;
  Calls refused_;  ///< calls of refused peers
  std::deque<ActorStart> starts_;
  std::deque<std::function<void()>> resumable_;
  std::uint32_t blocked_ = 0;    ///< reasons why the agent was told Blocked
  bool is_serving_ = false;      ///< what next() returned runs and has not answered
  bool executor_waits_ = false;  ///< the thread that runs calls waits for a value
  bool is_ending_ = false;
};

}  // namespace troupe::client
