/// Questions for the stacks of processes of this node, answered one process at a time by a child
/// that attaches to it (os::LiveStack).
///
///     stacks.ask(asker, {{"worker 8185 runs mix(int)", 8185}}, now);   // → out.answer_stacks()
///     poll(stacks.fd()) → stacks.serve(now);  timer.set(stacks.next_deadline());
///
/// A question ends kLimit after its turn has come: processes that were not reached have their state
/// in /proc.
#pragma once

#include "troupe/runtime/agent/asker.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/os/live_stack.hpp"

#include <sys/types.h>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

class StackAsks {
 public:
  static constexpr Duration kLimit = os::LiveStack::kLimit;
  static constexpr std::size_t kMostWaiting = 16;
  static constexpr std::size_t kMostProcesses = 16;  ///< of one question

  class Out {
   public:
    virtual ~Out() = default;
    virtual void answer_stacks(const Asker& asker, const std::string& text) = 0;
  };
  struct Target {
    std::string title;  ///< a line for people
    pid_t process = 0;
  };

  explicit StackAsks(Out& out, os::StackLines::By by = os::StackLines::By::role)
      : out_(out), by_(by) {}

  /// Returns false when too many questions wait. Processes beyond kMostProcesses are counted in the
  /// answer.
  bool ask(const Asker& asker, std::vector<Target> targets, Time now);
  /// The process has ended, or the node has: nobody waits for the answers to its questions.
  void process_died(ProcessIndex process, Time now);
  void node_died(NodeId node, Time now);

  int fd() const noexcept { return live_ ? live_->fd() : -1; }
  /// The child that reads stacks now; -1: none.
  pid_t child() const noexcept { return live_ ? live_->child() : -1; }
  void serve(Time now);
  Time next_deadline() const noexcept;

 private:
  struct Question {
    Asker asker;
    std::vector<Target> targets;
    std::string text;
    std::size_t next = 0;  ///< of targets
    std::size_t more = 0;  ///< processes that are left out
    Time until = Time::max();
  };
  void begin_next(Time now);
  template <class Died>
  void drop(const Died& has_died, Time now);

  Out& out_;
  const os::StackLines::By by_;
  std::deque<Question> questions_;  ///< the first one is being answered
  std::optional<os::LiveStack> live_;
};

}  // namespace troupe::agent
