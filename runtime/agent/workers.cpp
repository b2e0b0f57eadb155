#include "troupe/runtime/agent/workers.hpp"

#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/role.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

namespace troupe::agent {
namespace {

/// Returns whether the error goes away when processes, memory or descriptors come free.
bool is_limit(int error) {
  return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE;
}

std::string why_not_forked(int error) {
  return "fork failed: " + why_no_process(error);
}

}  // namespace

void Workers::end_all() {
  for (const auto& [index, process] : below_.processes)
    if (process->kind == wire::ProcessKind::worker) process->socket.shut_down();
  zygotes_.end_all();
}

void Workers::start_worker(bool dedicated, JobNumber number) {
  Job* const known = below_.jobs.find(number);
  if (known == nullptr) return below_.leases.worker_start_failed(steady_now(), dedicated, number);
  Job& job = *known;
  if (job.state == Job::State::failed) {
    below_.leases.worker_start_failed(steady_now(), dedicated, number);
    return below_.out.job_failed(job, std::string(job.why));
  }
  if (!below_.jobs.wants_worker(job, dedicated)) return;  // it starts when the program is here
  auto ends = os::LocalSocket::pair();
  if (!ends) return start_failed(dedicated, number, ends.error().message(), true);
  const auto started = zygotes_.start(job);
  if (!started) {
    const bool at_limit = started.error().code() == Code::out_of_memory;
    if (!at_limit) below_.out.job_failed(job, started.error().message());
    return start_failed(dedicated, number, started.error().message(), at_limit);
  }
  Process& process = below_.processes.add(os::LocalSocket(std::move(ends->first)));
  process.kind = wire::ProcessKind::worker;
  process.job = job.id;
  process.job_number = job.number;
  const ProcessIndex index = process.index;
  process.starting = true;
  process.dedicated = dedicated;
  // The link keeps the request until the zygote has come up.
  os::OutputEnds output =
      below_.logs ? below_.logs->add_worker(index, job.number, job.id) : os::OutputEnds();
  output.page = pages_.add(index);
  if (zygotes_.fork_worker(job.number, index, std::move(ends->second), std::move(output))) return;
  if (below_.logs) below_.logs->ended(index, job.number);
  pages_.ended(index);
  below_.processes.remove(index);
  start_failed(dedicated, number, "the zygote is gone");
}

void Workers::ended(ProcessIndex index, pid_t pid, int status) {
  if (Process* worker = below_.processes.find(index); worker && worker->starting)
    below_.processes.read_socket(
        *worker);  // its Shutdown may say which limit kept it from starting
  gone(index,
       os::describe_status(status) + ", process " + std::to_string(pid) + " of " + below_.node);
}

void Workers::not_forked(ProcessIndex index, int error) {
  if (Process* worker = below_.processes.find(index); worker && is_limit(error)) {
    worker->at_limit = true;
    worker->sentence = why_not_forked(error);
  }
  gone(index, why_not_forked(error));
}

void Workers::zygote_gone(JobNumber number, bool was_ready) {
  if (below_.out.is_over()) return;
  std::string why =
      "its zygote is gone: the program ended or crashed before it reached troupe::run, in the "
      "copy of it that workers are forked from";
  if (!below_.programs) return below_.out.go_down(why);
  const std::string said = below_.logs ? below_.logs->zygote_ended(number) : "";
  if (!was_ready && !said.empty()) why += ". Its last lines are:\n" + said;
  if (was_ready) why = "its zygote was killed, and all workers of its job on this node with it";
  // Its workers die with it, and nothing else reports their deaths.
  std::vector<ProcessIndex> orphans;
  for (const auto& [index, process] : below_.processes)
    if (process->job_number == number && process->kind == wire::ProcessKind::worker)
      orphans.push_back(index);
  zygotes_.leave(number, std::move(orphans), why);
  // A zygote that once came up may come up again; start_failed() counts if it does not.
  if (Job* job = below_.jobs.find(number); job != nullptr && !was_ready && !job->ended)
    below_.out.job_failed(*job, why);
}

/// Tells the lease table that a worker could not be started. At a limit of processes, memory or
/// descriptors, only the requests that wait for the worker are refused, after a while. Another
/// failure may pass; ten in a row end the job on this node, or a private node.
void Workers::start_failed(bool dedicated, JobNumber number, const std::string& why,
                           bool at_limit) {
  if (at_limit)
    return below_.leases.worker_start_refused(steady_now(), dedicated, number,
                                              "a worker could not be started: " + why);
  below_.leases.worker_start_failed(steady_now(), dedicated, number);
  Job* job = below_.jobs.find(number);
  if (job == nullptr || job->ended) return;
  if (++job->failed_starts == 1)
    below_.events.tell({EventKind::worker_not_started, Severity::error,
                        "a worker could not be started: " + why, job->id});
  if (job->failed_starts < 10) return;
  if (!below_.programs) return below_.out.go_down("workers cannot be started: " + why);
  below_.out.job_failed(*job, why);
}

void Workers::forked(JobNumber number, ProcessIndex index, pid_t pid) {
  const Job* job = below_.jobs.find(number);
  Process* const worker = below_.processes.record(index);
  if (worker != nullptr) worker->pid = pid;
  if (below_.logs) below_.logs->forked(index, pid);
  if (worker == nullptr || worker->killed || worker->ending ||
      (job != nullptr && job->ended && !below_.processes.has_purpose(*worker)))
    os::send_signal(pid, SIGKILL);
}

// --- ends

void Workers::end_tasks(JobNumber job) {
  for (const auto& [index, process] : below_.processes) {
    if (process->job_number != job || process->ending || process->pid <= 0) continue;
    if (process->kind != wire::ProcessKind::worker || below_.processes.has_purpose(*process))
      continue;
    if (!process->introduced) {
      os::send_signal(process->pid, SIGKILL);
    } else if (ending_.told(index, steady_now())) {
      process->socket.end_sending();
    }
  }
}

void Workers::end_unborn(JobNumber job, const std::string& why) {
  std::vector<ProcessIndex> unborn;  // workers that the zygote has not forked yet
  for (const auto& [index, process] : below_.processes)
    if (process->job_number == job) unborn.push_back(index);
  if (zygotes_.kill(job, unborn, why)) return;
  for (const ProcessIndex index : unborn) gone(index, why);
}

void Workers::on_timer(Time now) {
  for (const ProcessIndex late : ending_.take_late(now))
    if (Process* worker = below_.processes.find(late)) below_.processes.kill(*worker);
}

/// Leaves an event of a worker that has ended without having been told to.
void Workers::note_end(const Process& process, const std::string& function) {
  const Job* job = below_.jobs.find(process.job_number);
  WorkerEnd end;
  end.reason = process.reason;
  end.function = function;
  end.job = process.job;
  end.actor = below_.actors.actor_on(process.index);
  end.pid = process.told_pid;
  end.stack = process.stack;
  end.last_lines = process.last_lines;
  end.expected = !process.introduced ||  // start_failed() tells of it
                 below_.out.is_over() || process.leaving || ending_.has(process.index) ||
                 (process.killed && process.sentence.empty()) || job == nullptr || job->ended;
  below_.events.worker_gone(end);
}

void Workers::gone(ProcessIndex index, const std::string& reason) {
  Process* const found = below_.processes.record(index);
  if (found == nullptr) return;
  Process& process = *found;
  const std::string function = pages_.name(index);
  if (below_.logs) process.last_lines = below_.logs->ended(index, process.job_number);
  process.stack = pages_.ended(index);
  if (std::exchange(process.starting, false))
    start_failed(
        process.dedicated, process.job_number,
        process.sentence.empty() ? "it ended while it started: " + reason : process.sentence,
        process.at_limit);
  process.pid = 0;
  process.reason = process.sentence.empty() ? reason : process.sentence;
  note_end(process, function);
  below_.out.end(process);
}

// --- Leases::Processes

std::optional<std::pair<JobId, JobNumber>> Workers::job_of(ProcessIndex process) {
  const Process* one = below_.processes.find(process);
  if (one == nullptr) return std::nullopt;
  return std::pair(one->job, one->job_number);
}

std::string Workers::why_none_starts(JobId id) {
  const Job* job = below_.jobs.find(id);
  if (job == nullptr || job->state != Job::State::failed) return {};
  return why_not_here(below_.node, job->why);
}

}  // namespace troupe::agent
