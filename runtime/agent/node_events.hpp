/// The events of a node: what its agent decides, hears or logs, kept for `troupe events` in memory
/// and, in a cluster with logs, in a small file.
///
///     NodeEvents events("node-0", id);
///     events.keep_in(log_files_in(folder));                 // events.N.log there
///     events.tell({EventKind::out_of_memory, Severity::warning, "…"});   // a line of the log, too
///     events.worker_gone({.reason = "killed by signal 11 …", .pid = 12});
///     events.offer(selection);                              // rows of kind events
///
/// No function waits for the disk: a thread writes the file, and lines that it has no room for are
/// dropped.
#pragma once

#include "troupe/runtime/agent/cluster_news.hpp"
#include "troupe/runtime/agent/event_log.hpp"
#include "troupe/runtime/agent/log_writer.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/observe/answer.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::agent {

/// How a worker ended, for its event.
struct WorkerEnd {
  std::string reason;    ///< as in Death
  std::string function;  ///< what it ran last; empty: unknown
  JobId job{};
  ActorId actor{};  ///< that it hosted
  std::int64_t pid = 0;
  std::string stack{}, last_lines{};
  bool expected = false;  ///< it was told to end, or its job has ended
};

class NodeEvents {
 public:
  NodeEvents(std::string node, NodeId id, EventLog::Limits limits = {});

  /// Writes each event to these files from now on.
  void keep_in(std::unique_ptr<LogFiles> files);

  void note(Event event);
  /// Notes the event, and logs its text as a line.
  void tell(Event event);
  void worker_gone(const WorkerEnd& end);
  void job_started(const control::JobRecord& job, std::int64_t pid);
  void job_ended(const control::JobEnded& ended);
  void registered(Epoch control_epoch);
  void nodes(const std::vector<control::ClusterRow>& rows);
  void node_dead(NodeId node, const std::string& why);
  void heard(const control::Notice& notice);
  /// Returns whether spilled() is to be called: once a second, on an idle node within 10 s.
  bool is_spill_due(Time now) noexcept;
  void spilled(const SpillNews::Seen& seen);

  void offer(const observe::Query& query, observe::Selection& selection) const;
  const EventLog& log() const noexcept { return log_; }

 private:
  observe::Row row_of(const Event& event, std::int64_t as_of) const;

  const std::string node_, id_;
  EventLog log_;
  ClusterNews news_;
  SpillNews spills_;
  std::unique_ptr<LogWriter> file_;
  Time next_spill_{};
};

}  // namespace troupe::agent
