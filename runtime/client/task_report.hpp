/// Answers an agent's questions about the unfinished tasks and calls of this process, a piece of work
/// at a time: a million tasks may wait, and the caller's lock must be free in between. Driven by
/// ClientEngine.
///
///     report.ask(message, payload);
///     next = report.step(steady_now());        // under the lock, until it returns Time::max()
///
/// One question is answered after the other. More than kMostQuestions are refused.
#pragma once

#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/tasks.hpp"
#include "troupe/runtime/client/waiting_threads.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::client {

class TaskReport {
 public:
  static constexpr std::size_t kMostQuestions = 16;
  static constexpr std::size_t kTasksOfStep = 1024;
  static constexpr std::size_t kMostOwn = 4096;
  static constexpr std::size_t kThreadsOfStep = 256;
  static constexpr std::size_t kObjectsOfThread = 1024, kObjectsOfStep = 8192;  ///< awaited ones
  /// What the report needs of the engine.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void give(const wire::GiveRows& message, BlobView piece) = 0;
    /// Whether the ring to the agent is empty: an answer never fills it.
    virtual bool has_room() = 0;
    /// Whether the worker has begun the task. A worker of another node may have: not known.
    enum class Begun : std::uint8_t { no, yes, unknown };
    virtual Begun has_begun(ProcessIndex worker, const Task& task) = 0;
    /// Calls look_at with each object for which a coroutine of a task or method waits, until it
    /// returns false, if nothing else runs or could run in the process.
    virtual void each_awaited(const std::function<bool(const detail::ObjectHandle&)>& look_at) = 0;
    /// Calls look_at with large objects that this process alone knows, at most kMostOwn, and the
    /// lines that made them.
    virtual void each_own(
        const std::function<void(const Entry&, const std::string& site)>& look_at) = 0;
  };
  /// `zero`: the Unix time in nanoseconds at which steady_now() was zero. It stays as it is, so that a
  /// row keeps its place from page to page.
  TaskReport(Out& out, JobId job, TaskManager& tasks, const ActorCalls& calls,
             const WaitingThreads& threads, std::int64_t zero);

  void ask(const wire::AskRows& question, BlobView surroundings);
  /// Does the next piece of work. Returns when to call it again; Time::max(): after ask().
  Time step(Time now);

 private:
  struct Question {
    std::uint64_t request = 0;
    observe::Query query;
    observe::Surroundings around;
  };
  /// The question that is being answered.
  struct Open {
    explicit Open(Question&& q) : question(std::move(q)), selection(question.query) {}
    Question question;
    observe::Selection selection;
    std::map<std::string, observe::Row> sums;  ///< of functions and reasons
    Time as_of{};                              ///< the time to which ages refer
    std::uint64_t age_of(Time since) const {
      return static_cast<std::uint64_t>(std::max<std::int64_t>((as_of - since).count(), 0));
    }
    bool begun = false, walked = false;
    std::optional<std::string_view> state;  ///< of all tasks that match; none: of several
    Blob bytes;
    std::size_t sent = 0;
  };
  class TaskFields;
  void look_at(const Task& task, Time now);
  void add(const observe::Row& row);
  void add_sums(const Task& task, TaskFields& fields);
  void add_waits(const Task& task, TaskFields& fields);
  void add_threads(Time now);
  void add_calls();
  void add_queues();
  void add_own_objects();
  bool send();

  Out& out_;
  const std::string job_;
  TaskManager& tasks_;
  const ActorCalls& calls_;
  const WaitingThreads& threads_;
  const std::int64_t zero_;
  std::deque<Question> questions_;
  std::unique_ptr<Open> open_;
};

}  // namespace troupe::client
