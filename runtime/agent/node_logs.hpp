/// The logs of a node: what its workers and zygotes write, split into lines, kept in files, and
/// read by drivers and observers.
///
///     NodeLogs logs(out, options);
///     os::OutputEnds ends = logs.add_worker(index, job);   // goes with the fork order
///     logs.forked(index, pid);  logs.ended(index, job);
///     logs.ask({.asker = …, .job = job, .after = 0});       // → out.answer_logs()
///     poll(logs.fd()) → logs.serve(now);  timer.set(logs.next_deadline());
///
/// While the writer has no room, pipes are left full, so that workers wait. After kPatience their
/// lines are read and counted instead, until the writer has room again.
#pragma once

#include "troupe/runtime/agent/asker.hpp"
#include "troupe/runtime/agent/last_lines.hpp"
#include "troupe/runtime/agent/log_reader.hpp"
#include "troupe/runtime/agent/log_writer.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/os/output_pipes.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::agent {

class NodeLogs {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(5);
  static constexpr std::size_t kMostQuestions = 4096;

  struct Question {
    Asker asker;
    JobId job;
    std::uint64_t after = 0;      ///< offset
    std::uint32_t most = 0;       ///< bytes
    Duration wait{};              ///< for something after the offset
    bool until_complete = false;  ///< answered at once when nothing can follow
  };
  class Out {
   public:
    virtual ~Out() = default;
    virtual void answer_logs(const Asker& asker, const wire::LogBatch& batch) = 0;
    /// Returns whether a process of the job may write more here, beside detached actors.
    virtual bool may_write(JobId job) = 0;
    /// Returns the name of what the worker runs; empty: unknown.
    virtual std::string name_of(ProcessIndex worker) = 0;
  };
  struct Options {
    std::string node;
    std::unique_ptr<LogFiles> files;
    LogStore::Limits limits;
  };

  NodeLogs(Out& out, Options options);

  /// Makes the pipes of a new worker. Without ends it writes to those of its zygote: half of this
  /// process's descriptors are taken, or there is none.
  os::OutputEnds add_worker(ProcessIndex worker, JobNumber number, JobId job);
  os::OutputEnds add_zygote(JobNumber number, JobId job);
  void forked(ProcessIndex worker, pid_t pid);
  void zygote_started(JobNumber number, pid_t pid);
  /// The process has ended: its pipes are read until they are empty, and closed. Returns its last
  /// lines; empty if it wrote none, or wrote to the pipes of its zygote.
  std::string ended(ProcessIndex worker, JobNumber number);
  /// Returns the last lines of the zygote, for an error; empty if it wrote none.
  std::string zygote_ended(JobNumber number);
  /// Nothing of the job runs here any more.
  void job_over(JobNumber number);
  /// The node ends, and all its processes have: reads what they have written.
  void end();
  /// Out::may_write() may have another answer: looks at all questions again.
  void look_again() noexcept { looks_again_ = true; }

  void ask(const Question& question, Time now);
  /// The asker has ended: its questions get no answer.
  void forget(ProcessIndex process);
  void forget(NodeId node);

  int fd() const noexcept { return events_.get(); }
  void serve(Time now);
  Time next_deadline() const;
  /// Returns of how many processes last lines are kept.
  std::size_t kept_last_lines() const noexcept {
    return last_of_worker_.size() + last_of_zygote_.size();
  }

 private:
  struct Source {
    Fd pipe;
    JobNumber number;
    std::string job;
    ProcessIndex worker;  ///< 0: the job's zygote
    pid_t pid = 0;
    bool is_error = false;
    bool ending = false;  ///< closed when it is empty
    bool told = false;    ///< its last lines were given away, or nobody asks for them
  };
  using Sources = std::map<std::uint64_t, Source>;
  struct Waiting {
    Question question;
    Time until{};
    bool reading = false;
  };
  enum class Valve { open, waiting, dropping };
  /// What decides whether pipes are read.
  struct Flow {
    Valve valve = Valve::open;
    Time drops_at = Time::max();  ///< of a waiting valve
    Time rests_until{};           ///< 0: pipes do not rest
    bool watched = true;          ///< `pipes_` is in `events_`
  };
  os::OutputEnds add(ProcessIndex worker, JobNumber number, JobId job);
  bool add_source(Fd pipe, Source source);
  enum class Pipe { more, empty, closed };
  Pipe read(std::uint64_t id, Source& source, std::size_t most);
  void keep(std::uint64_t id, const Source& source, std::string_view bytes, bool ends);
  void drain(Sources::iterator at);
  Sources::iterator close(Sources::iterator at);
  void read_pipes(Time now);
  void watch_pipes();
  void end_sources(const std::function<bool(const Source&)>& which);
  void forget_last(const std::function<bool(const Source&)>& which);
  void set_valve(Time now);
  void look(std::uint64_t number, Time now);
  bool is_complete(const std::string& job, JobId id, std::uint64_t offset) const;
  std::string name_of(const Source& source) const;

  Out& out_;
  LogWriter writer_;
  LogReader reader_;
  Fd events_, pipes_;  ///< epoll sets; see Flow
  Sources sources_;
  std::uint64_t next_source_ = 1, next_question_ = 1;
  std::map<std::uint64_t, Waiting> questions_;
  Flow flow_;
  bool looks_again_ = false;
  std::map<std::string, std::uint64_t> dropped_;  ///< lines of each job
  std::map<JobNumber, LastLines> last_of_zygote_;
  std::map<ProcessIndex, LastLines> last_of_worker_;
};

}  // namespace troupe::agent
