/// Waits for objects that hold no thread: coroutines, and callbacks of other threads. Serves
/// ClientEngine, under its lock.
///
///     resumes.add(object, std::move(fire), true);    // fires later, on the worker's thread
///     resumes.give_up_notices();                     // no answer comes any more
///
/// Invariants: RESUME-1 A callback runs once, when the value or its error can be opened in this
/// process, or never. RESUME-2 One for the executor runs through the work queue, in order; the
/// others run at once, under the lock. RESUME-3 give_up_notices() runs those others, and what comes
/// later does not run them again. RESUME-4 Lost bytes are asked for again before a callback runs.
#pragma once

#include "troupe/runtime/client/recovery.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/client/work_queue.hpp"

#include <functional>
#include <unordered_set>

namespace troupe::client {

class Resumes {
 public:
  Resumes(Values& values, Recovery& recovery, WorkQueue& work)
      : values_(values), recovery_(recovery), work_(work) {}
  ~Resumes() { clear(); }
  Resumes(const Resumes&) = delete;
  Resumes& operator=(const Resumes&) = delete;

  /// Waits for the object, and asks for its bytes. `on_executor`: the worker's thread runs `fire`.
  /// Precondition: it cannot be opened yet.
  void add(const detail::ObjectHandle& object, std::function<void()> fire, bool on_executor);
  /// Runs the callbacks that are not for the executor: they learn the reason when they look.
  void give_up_notices();
  /// Drops all that have not fired.
  void clear() noexcept;
  /// Calls look_at(object) with what coroutines wait for, until it returns false.
  template <class F>
  void each_on_executor(F look_at) const {
    for (const Resume* resume : all_)
      if (resume->on_executor && !look_at(resume->object)) return;
  }

 private:
  struct Resume {
    Resumes* all;
    std::function<void()> fire;
    detail::ObjectHandle object;
    bool on_executor;
  };
  void wait(Entry& entry, Resume* resume);
  void look_again(Entry& entry);
  void run(const Resume& resume);

  Values& values_;
  Recovery& recovery_;
  WorkQueue& work_;
  std::unordered_set<Resume*> all_;
};

}  // namespace troupe::client
