/// Which task a waiting thread may run itself, instead of waiting for another worker. Plain state
/// machines.
///
/// A worker's own thread that awaits a task of this process claims it. A task that is ready is the
/// waiter's at once. One that is elsewhere (in a worker's ring, behind its arguments) is the
/// waiter's when it comes back, before anything else is done with it:
///
///     switch (tasks.claim(task, now)) {
///       case Claim::Answer::run: …                    // run it, then tasks.ended_here(task)
///       case Claim::Answer::wait: …                   // until it is settled or claim.returned()
///       case Claim::Answer::no: …                     // wait as for any other value
///     }
///
/// Only the awaited task is run, by the thread that awaits it. So the frames of a stack are a path
/// in the graph of who waits for whom, and no wait arises that was not there before.
///
/// Invariants: IN-PLACE-1 a process has one claim at most. IN-PLACE-2 a claimed task is never ready
/// and never sent: it is elsewhere, or returned. IN-PLACE-3 a task runs here only if it has never
/// been begun.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace troupe::client {

struct Task;

/// Whether a task that has begun nowhere may run in the process that awaits it: its first attempt,
/// with no other attempt beside it, of a plain function whose caller did not ask for another
/// process.
bool may_run_in_place(const Task& task) noexcept;

/// Whether a lease of this demand on this node also is enough for the task's. GPUs never are: a
/// process sees the devices of its lease.
bool covers(const wire::ResourceDemand& lease, const wire::ResourceDemand& task, NodeId here);

/// The one claim of a process, from the wait to the run.
class Claim {
 public:
  enum class Answer : std::uint8_t { no, wait, run };

  /// Precondition: there is none.
  void take(Task& task) noexcept;
  /// The task would be ready now. True: it is the waiter's, and nobody else's.
  bool returns(Task& task) noexcept;
  /// The task ends, or another attempt of it begins: nobody waits to run it any more.
  void gone(const Task& task) noexcept {
    if (task_ == &task) *this = {};
  }
  /// A task that has come back, to be run now; or nullptr. The claim is over with it.
  Task* take_returned() noexcept;
  bool has_returned() const noexcept { return returned_; }
  /// Of whom a recall is due: said once.
  Task* to_recall() noexcept;
  /// The waiter gives up. Returns the task if it has come back: it is to be ready again.
  Task* leave() noexcept;

 private:
  Task* task_ = nullptr;
  bool returned_ = false;
  bool recalled_ = false;
};

/// How many tasks a pool pipelines: what waits in a ring cannot be run by who awaits it. For a
/// while after one of its tasks was run in place the pool sends a worker a small part of what is
/// ready at most. In a recursion that is one call; where many tasks are ready they stream.
class RecentClaims {
 public:
  static constexpr Duration kRecent = std::chrono::milliseconds(10);
  static constexpr std::size_t kPart = 8;
  static constexpr std::size_t limit(std::size_t depth, std::size_t ready) noexcept {
    return std::clamp<std::size_t>(ready / kPart, 1, depth);
  }
  void note(Time now) noexcept { until_ = now + kRecent; }
  bool any() const noexcept { return until_ != Time{}; }
  /// Looks at the time. Returns when to look again; Time::max(): there are none.
  Time look(Time now) noexcept {
    if (!any()) return Time::max();
    if (now < until_) return until_;
    until_ = Time{};
    return Time::max();
  }

 private:
  Time until_{};
};

/// How much of a thread's stack is left.
class StackRoom {
 public:
  StackRoom() noexcept = default;
  StackRoom(std::uintptr_t low, std::size_t size) noexcept : low_(low), size_(size) {}
  /// Of the calling thread; nothing is left when that is unknown.
  static StackRoom of_this_thread() noexcept;
  /// Whether the frame at this address leaves max(256 KiB, an eighth) of it. Not on another stack:
  /// a fiber's, or another thread's.
  bool is_enough(std::uintptr_t frame) const noexcept;

 private:
  std::uintptr_t low_ = 0;
  std::size_t size_ = 0;
};

/// The worker's side: runs a task on the thread that awaits it.
class InPlaceRunner {
 public:
  virtual ~InPlaceRunner() = default;
  /// Whether the calling thread is inside a task that may run others.
  virtual bool is_allowed() noexcept = 0;
  /// Runs it and hands its results to the engine. Without the lock.
  virtual void run(Task& task) noexcept = 0;
};

}  // namespace troupe::client
