/// Answers the agent's questions about what this process knows alone: its tasks and calls, the
/// threads and coroutines that wait, and its own large objects. Serves ClientEngine, under its lock.
///
///     reports.ask(message, payload);               // a question has come
///     Time next = reports.step(now);               // the next piece of work
///
/// Invariants: REPORT-1 A process that is never asked does no work for this. REPORT-2 An answer goes
/// out only while the ring to the agent is empty. REPORT-3 Whether another node's worker has begun a
/// task is not known here. REPORT-4 What coroutines wait for is told only while nothing else runs or
/// could run.
#pragma once

#include "troupe/runtime/client/agent_link.hpp"
#include "troupe/runtime/client/call_sites.hpp"
#include "troupe/runtime/client/calls.hpp"
#include "troupe/runtime/client/identity.hpp"
#include "troupe/runtime/client/peers.hpp"
#include "troupe/runtime/client/resumes.hpp"
#include "troupe/runtime/client/task_report.hpp"
#include "troupe/runtime/client/values.hpp"
#include "troupe/runtime/client/waits.hpp"
#include "troupe/runtime/client/work_queue.hpp"

#include <functional>
#include <optional>
#include <string>

namespace troupe::client {

class Reports final : private TaskReport::Out {
 public:
  /// The parts that know what is asked.
  struct Sources {
    const Identity& self;
    AgentLink& agent;
    const Peers& peers;
    Calls& calls;
    const WorkQueue& work;
    const Resumes& resumes;
    Values& values;
    const CallSites& sites;
    const Waits& waits;
  };
  Reports(Calls::Out& out, const Sources& from) : out_(out), from_(from) {}

  void ask(const wire::AskRows& question, BlobView surroundings);
  /// Does the next piece of work. Returns when to call it again; Time::max(): after ask().
  Time step(Time now) { return report_ ? report_->step(now) : Time::max(); }

 private:
  // TaskReport::Out
  void give(const wire::GiveRows& message, BlobView piece) override { out_.tell(message, piece); }
  bool has_room() override { return from_.agent.channel().waiting() == 0; }
  Begun has_begun(ProcessIndex worker, const Task& task) override;
  void each_awaited(const std::function<bool(const detail::ObjectHandle&)>& look_at) override;
  void each_own(const std::function<void(const Entry&, const std::string& site)>& look_at) override;

  Calls::Out& out_;
  const Sources from_;
  std::optional<TaskReport> report_;
};

}  // namespace troupe::client
