/// The zygotes of this node's jobs: starts them, orders workers of them, hears how workers end, and
/// waits for their own ends.
///
///     zygotes.start(job);                                     // unless it has one
///     zygotes.fork_worker(job, index, socket, output);        // → Out::forked(), then Out::ended()
///     zygotes.on_timer(); zygotes.wait_for(set); zygotes.serve(set);     // each pass
///     zygotes.leave(job, orphans, why);                       // it ends → Out::gone() for each
///     zygotes.end_all();                                      // at the end of the node
///
/// Invariants: ZYGOTE-1 A job has at most one zygote that takes orders. ZYGOTE-2 Each worker that
/// was ordered is reported as ended or gone once: by its zygote while that lives, else after the
/// zygote's end. ZYGOTE-3 A zygote that was told to end and does not is killed. ZYGOTE-4 A zygote
/// that exits with 0 before it is ready may leave a child in its place, which has 10 s to report.
/// ZYGOTE-5 Processes that a zygote left behind are killed, but not while a zygote starts.
#pragma once

#include "troupe/runtime/agent/jobs.hpp"
#include "troupe/runtime/agent/node_logs.hpp"
#include "troupe/runtime/agent/poll_set.hpp"
#include "troupe/runtime/agent/programs.hpp"
#include "troupe/runtime/agent/stack_asks.hpp"
#include "troupe/runtime/os/zygote.hpp"

#include <sys/types.h>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::agent {

class Zygotes {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    virtual void forked(JobNumber job, ProcessIndex worker, pid_t pid) = 0;
    /// The worker has ended, with a status as waitpid gives it.
    virtual void ended(ProcessIndex worker, pid_t pid, int status) = 0;
    /// The worker could not be forked: errno.
    virtual void not_forked(ProcessIndex worker, int error) = 0;
    /// The worker is dead with its zygote, or was never forked.
    virtual void gone(ProcessIndex worker, const std::string& why) = 0;
    /// The zygote has ended though nothing told it to. leave() is to follow.
    virtual void zygote_gone(JobNumber job, bool was_ready) = 0;
  };
  /// The parts beside this one; null as long as the node has none.
  struct Below {
    const std::unique_ptr<Programs>& programs;
    const std::unique_ptr<NodeLogs>& logs;
    const StackAsks& stacks;  ///< whose child is no orphan
    Out& out;
  };
  /// The zygote of a job.
  struct Zygote {
    JobNumber job;
    os::ZygoteLink link;
    pid_t pid = 0;
    Fd life;                 ///< readable when it has ended
    bool ready = false;      ///< it has reached troupe::run
    Time due = Time::max();  ///< it ended too early: a child may take over until this time
  };
  using Table = std::map<JobNumber, Zygote>;
  explicit Zygotes(const Below& below) : below_(below) {}

  const Table& all() const noexcept { return zygotes_; }
  /// Starts the zygote of the job if there is none. Errors: out_of_memory at a limit of the system;
  /// those of os::start_zygote().
  Result<void> start(const Job& job);
  /// Orders a worker. Returns false when the zygote is gone. Precondition: start().
  bool fork_worker(JobNumber job, ProcessIndex worker, Fd socket, os::OutputEnds output) {
    return zygotes_.at(job).link.fork_worker(worker.value, std::move(socket), std::move(output));
  }
  /// Takes the zygote away from the job and lets it end, and with it every worker of the job on
  /// this node. It ends by itself when its socket closes, or is killed after a while. Nothing else
  /// reports the deaths of `orphans`, also of those that it has not forked yet.
  void leave(JobNumber job, std::vector<ProcessIndex> orphans, std::string why);
  /// Kills the zygote and leaves it. Returns false if there is none.
  bool kill(JobNumber job, const std::vector<ProcessIndex>& orphans, const std::string& why);
  void forget(JobNumber job) { zygotes_.erase(job); }
  /// Ends every zygote at the end of the node. Blocks until they have ended, for a few seconds each
  /// at most, since their workers must not outlive the node.
  void end_all();

  // --- the loop
  void wait_for(PollSet& set);
  /// Reports the orphans of zygotes that have ended, and kills what is late.
  void on_timer();
  /// Handles what the zygotes report, then the ends of their processes.
  void serve(const PollSet& set);
  Time next_deadline() const;

 private:
  /// A zygote that was told to end.
  struct Ending {
    pid_t pid = 0;
    Fd handle;
    Time until{};  ///< it is killed at this time
    std::vector<ProcessIndex> orphans;
    std::string why;
  };
  void leave(Zygote& zygote, std::vector<ProcessIndex> orphans, std::string why);
  void watch(Zygote& zygote, pid_t pid);
  void read(Zygote& zygote);
  void process_ended(Zygote& zygote);
  void reap();
  void end_orphans();
  bool is_zygote(pid_t pid) const;

  const Below below_;
  Table zygotes_;
  std::vector<Ending> ending_;
  Time orphans_due_ = Time::max();  ///< when end_orphans() looks for children of dead zygotes
  std::size_t first_link_ = 0, first_life_ = 0, end_ = 0;  ///< of the last wait_for()
};

}  // namespace troupe::agent
