/// Decides which task a waiting thread may run itself, instead of waiting for another worker.
/// Plain state machines.
///
/// The thread of a worker claims the task of this process that it awaits. A ready task is the
/// waiter's at once. A task that is elsewhere (in a worker's ring, or waiting for arguments)
/// becomes the waiter's when it comes back, before anything else is done with it:
///
///     switch (tasks.claim(task, now)) {
///       case Claim::Answer::run: …                    // run it, then tasks.ended_here(task)
///       case Claim::Answer::wait: …                   // until it is settled or claim.returned()
///       case Claim::Answer::no: …                     // wait as for any other value
///     }
///
/// A thread runs only the task that it awaits. So the frames of a stack are a path in the graph
/// of waits, and no new wait arises.
///
/// Invariants: IN-PLACE-1 a process has one claim at most. IN-PLACE-2 a claimed task is never
/// ready and never sent: it is elsewhere, or has come back. IN-PLACE-3 a task runs in place only
/// if it has never begun before.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace troupe::client {

struct Task;

/// Returns whether a task that has begun nowhere may run in the process that awaits it. It must
/// be a first attempt without another attempt beside it, of a plain function whose caller did not
/// ask for another process.
bool may_run_in_place(const Task& task) noexcept;

/// Returns whether a lease of this demand on this node is enough for the task's demand as well.
/// Never true with GPUs: a process sees the devices of its lease.
bool covers(const wire::ResourceDemand& lease, const wire::ResourceDemand& task, NodeId here);

/// The one claim of a process, from the wait to the run.
class Claim {
 public:
  enum class Answer : std::uint8_t { no, wait, run };

  /// Opens a claim. Precondition: there is none.
  void take(Task& task) noexcept;
  /// Called when the task would become ready. Returns true when it belongs to the waiter instead.
  bool returns(Task& task) noexcept;
  /// The task has ended, or another attempt of it begins: the claim is over.
  void gone(const Task& task) noexcept {
    if (task_ == &task) *this = {};
  }
  /// Returns a task that has come back, to be run now, and closes the claim; or nullptr.
  Task* take_returned() noexcept;
  bool has_returned() const noexcept { return returned_; }
  /// Returns the task that must be recalled, once; or nullptr.
  Task* to_recall() noexcept;
  /// Closes the claim without a run. Returns the task if it has come back: it must become ready
  /// again.
  Task* leave() noexcept;

 private:
  Task* task_ = nullptr;
  bool returned_ = false;
  bool recalled_ = false;
};

/// Limits how many tasks a pool sends ahead to a worker, since the thread that awaits a task
/// cannot run it while it waits in a ring. For kRecent after one of its tasks ran in place, the
/// pool sends each worker at most a kPart-th of its ready tasks. In a recursion that is one call;
/// where many tasks are ready, they still stream.
class RecentClaims {
 public:
  static constexpr Duration kRecent = std::chrono::milliseconds(10);
  static constexpr std::size_t kPart = 8;
  static constexpr std::size_t limit(std::size_t depth, std::size_t ready) noexcept {
    return std::clamp<std::size_t>(ready / kPart, 1, depth);
  }
  void note(Time now) noexcept { until_ = now + kRecent; }
  bool any() const noexcept { return until_ != Time{}; }
  /// Ends the limit when its time has passed. Returns when to call it again; Time::max(): there
  /// is no limit.
  Time look(Time now) noexcept {
    if (!any()) return Time::max();
    if (now < until_) return until_;
    until_ = Time{};
    return Time::max();
  }

 private:
  Time until_{};
};

/// The room that is left on a thread's stack.
class StackRoom {
 public:
  StackRoom() noexcept = default;
  StackRoom(std::uintptr_t low, std::size_t size) noexcept : low_(low), size_(size) {}
  /// Returns the calling thread's stack; an empty one, without room, when it is unknown.
  static StackRoom of_this_thread() noexcept;
  /// Returns whether the frame at this address leaves max(256 KiB, an eighth) of the stack. False
  /// for a frame on another stack: a fiber's, or another thread's.
  bool is_enough(std::uintptr_t frame) const noexcept;

 private:
  std::uintptr_t low_ = 0;
  std::size_t size_ = 0;
};

/// The worker's side: runs a task on the thread that awaits it.
class InPlaceRunner {
 public:
  virtual ~InPlaceRunner() = default;
  /// Returns whether the calling thread is inside a task that may run others.
  virtual bool is_allowed() noexcept = 0;
  /// Runs the task and hands its results to the engine. Called without the lock.
  virtual void run(Task& task) noexcept = 0;
};

}  // namespace troupe::client
