/// The workers of this node: their starts, and what follows when one has ended. A zygote forks a
/// worker on request, the worker sends its Hello, and Out::end() removes it when the zygote has
/// reaped it.
///
///     workers.start_worker(dedicated, job);            // → a process, or a failed start
///     workers.end_tasks(job);                          // workers of tasks end in order
///     workers.on_timer(now);                           // those that are late are killed
///     workers.gone(index, why);                        // dead, or never forked → Out::end()
///
/// Invariants: WORKER-1 Each start that was asked for ends once at the lease table: as started, as
/// failed, or as refused at a limit. WORKER-2 Ten failed starts in a row end the job on this node,
/// or a private node. WORKER-3 A worker whose end was decided before its pid was known is killed
/// when it is. WORKER-4 A worker that was told to end and does not is killed.
#pragma once

#include "troupe/runtime/agent/ending_workers.hpp"
#include "troupe/runtime/agent/jobs.hpp"
#include "troupe/runtime/agent/leases.hpp"
#include "troupe/runtime/agent/node_events.hpp"
#include "troupe/runtime/agent/node_logs.hpp"
#include "troupe/runtime/agent/process_pages.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/agent/programs.hpp"
#include "troupe/runtime/agent/stack_asks.hpp"
#include "troupe/runtime/agent/zygotes.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::agent {

class Workers final : public Leases::Processes, public Zygotes::Out {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    /// Removes a worker that has ended, and tells every table.
    virtual void end(Process& worker) = 0;
    /// Refuses everything that waits for a worker of the job: this node cannot start any.
    virtual void job_failed(Job& job, const std::string& why) = 0;
    /// Ends the node, which cannot serve any more.
    virtual void go_down(const std::string& why) = 0;
    virtual bool is_over() const = 0;
  };
  /// The parts below this one. `node`: its name, for texts. `programs`: null on a private node.
  struct Below {
    const std::string& node;
    NodeEvents& events;
    agent::Processes& processes;
    Jobs& jobs;
    scheduling::LeaseTable& leases;
    const ActorHost& actors;
    const std::unique_ptr<Programs>& programs;
    const std::unique_ptr<NodeLogs>& logs;
    const StackAsks& stacks;
    Out& out;
  };
  explicit Workers(const Below& below) : below_(below) {}

  Zygotes& zygotes() noexcept { return zygotes_; }
  const Zygotes& zygotes() const noexcept { return zygotes_; }
  const ProcessPages& pages() const noexcept { return pages_; }

  // --- ends
  /// Ends the job's workers on this node, except those of actors. Each reads that this side of its
  /// connection is closed. It then ends at once if it runs a call, and in order if it does not.
  void end_tasks(JobNumber job);
  /// Ends what is left of a job that has ended: its zygote, and the workers that were not forked.
  void end_unborn(JobNumber job, const std::string& why);
  void process_died(ProcessIndex index) { ending_.forget(index); }
  /// Ends all workers at the end of the node, with their zygotes. Blocks until they have ended.
  void end_all();
  /// Kills workers that are late to end.
  void on_timer(Time now);
  Time next_deadline() const { return std::min(zygotes_.next_deadline(), ending_.next_deadline()); }

  // --- Leases::Processes
  void start_worker(bool dedicated, JobNumber job) override;
  void end_worker(ProcessIndex worker) override {
    if (Process* process = below_.processes.find(worker)) below_.processes.leave(*process);
  }
  void connect(ProcessIndex owner, ProcessIndex worker) override {
    below_.processes.connect(owner, worker);
  }
  std::optional<std::pair<JobId, JobNumber>> job_of(ProcessIndex process) override;
  JobNumber number_of(JobId job) override { return below_.jobs.of(job).number; }
  std::string why_none_starts(JobId job) override;
  std::optional<ProcessIndex> lasting_process(JobNumber job) override {
    return below_.processes.lasting_process(job);
  }

  // --- Zygotes::Out
  /// Notes the pid of a worker. The worker may have served for a while before this report; if its
  /// end was decided meanwhile, it is killed now. An unknown worker was removed before and is
  /// killed too: nothing else would end it.
  void forked(JobNumber job, ProcessIndex index, pid_t pid) override;
  void ended(ProcessIndex index, pid_t pid, int status) override;
  void not_forked(ProcessIndex index, int error) override;
  void gone(ProcessIndex index, const std::string& why) override;
  void zygote_gone(JobNumber job, bool was_ready) override;

 private:
  void start_failed(bool dedicated, JobNumber job, const std::string& why, bool at_limit = false);
  void note_end(const Process& process, const std::string& function);

  const Below below_;
  EndingWorkers ending_;
  ProcessPages pages_;
  Zygotes zygotes_{{below_.programs, below_.logs, below_.stacks, *this}};
};

}  // namespace troupe::agent
