/// Node's workers. A zygote forks a worker on request, the worker sends its Hello, and end() removes
/// it when the zygote has reaped it.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/role.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

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

/// Ends all workers at the end of the node, with their zygotes.
void Node::end_workers() {
  for (const auto& [index, process] : processes_)
    if (process->kind == wire::ProcessKind::worker) process->socket.shut_down();
  zygotes_.end_all();
}

void Node::start_worker(bool dedicated, JobNumber number) {
  Job* const known = jobs_.find(number);
  if (known == nullptr) return leases_.worker_start_failed(steady_now(), dedicated, number);
  Job& job = *known;
  if (job.state == Job::State::failed) {
    leases_.worker_start_failed(steady_now(), dedicated, number);
    return job_failed(job, std::string(job.why));
  }
  if (!jobs_.wants_worker(job, dedicated)) return;  // it starts when the program is here
  auto ends = os::LocalSocket::pair();
  if (!ends) return start_failed(dedicated, number, ends.error().message(), true);
  const auto started = zygotes_.start(job);
  if (!started) {
    const bool at_limit = started.error().code() == Code::out_of_memory;
    if (!at_limit) job_failed(job, started.error().message());
    return start_failed(dedicated, number, started.error().message(), at_limit);
  }
  Process& process = processes_.add(os::LocalSocket(std::move(ends->first)));
  process.kind = wire::ProcessKind::worker;
  process.job = job.id;
  process.job_number = job.number;
  const ProcessIndex index = process.index;
  process.starting = true;
  process.dedicated = dedicated;
  // The link keeps the request until the zygote has come up.
  os::OutputEnds output = logs_ ? logs_->add_worker(index, job.number, job.id) : os::OutputEnds();
  output.page = pages_.add(index);
  if (zygotes_.fork_worker(job.number, index, std::move(ends->second), std::move(output))) return;
  if (logs_) logs_->ended(index, job.number);
  pages_.ended(index);
  processes_.remove(index);
  start_failed(dedicated, number, "the zygote is gone");
}

void Node::ended(ProcessIndex index, pid_t pid, int status) {
  if (Process* worker = processes_.find(index); worker && worker->starting)
    processes_.read_socket(*worker);  // its Shutdown may say which limit kept it from starting
  worker_gone(index, os::describe_status(status) + ", process " + std::to_string(pid) + " of " +
                         options_.name);
}

void Node::not_forked(ProcessIndex index, int error) {
  if (Process* worker = processes_.find(index); worker && is_limit(error)) {
    worker->at_limit = true;
    worker->sentence = why_not_forked(error);
  }
  worker_gone(index, why_not_forked(error));
}

void Node::zygote_gone(JobNumber number, bool was_ready) {
  if (over_) return;
  std::string why =
      "its zygote is gone: the program ended or crashed before it reached troupe::run, in the "
      "copy of it that workers are forked from";
  if (!network_) return go_down(why);
  const std::string said = logs_ ? logs_->zygote_ended(number) : "";
  if (!was_ready && !said.empty()) why += ". Its last lines are:\n" + said;
  if (was_ready) why = "its zygote was killed, and all workers of its job on this node with it";
  // Its workers die with it, and nothing else reports their deaths.
  std::vector<ProcessIndex> orphans;
  for (const auto& [index, process] : processes_)
    if (process->job_number == number && process->kind == wire::ProcessKind::worker)
      orphans.push_back(index);
  zygotes_.leave(number, std::move(orphans), why);
  // A zygote that once came up may come up again; start_failed() counts if it does not.
  if (Job* job = jobs_.find(number); job != nullptr && !was_ready && !job->ended)
    job_failed(*job, why);
}

/// Tells the lease table that a worker could not be started. At a limit of processes, memory or
/// descriptors, only the requests that wait for the worker are refused, after a while. Another
/// failure may pass; ten in a row end the job on this node, or a private node.
void Node::start_failed(bool dedicated, JobNumber number, const std::string& why, bool at_limit) {
  if (at_limit)
    return leases_.worker_start_refused(steady_now(), dedicated, number,
                                        "a worker could not be started: " + why);
  leases_.worker_start_failed(steady_now(), dedicated, number);
  Job* job = jobs_.find(number);
  if (job == nullptr || job->ended) return;
  if (++job->failed_starts == 1)
    events_.tell({EventKind::worker_not_started, Severity::error,
                  "a worker could not be started: " + why, job->id});
  if (job->failed_starts < 10) return;
  if (!network_) return go_down("workers cannot be started: " + why);
  job_failed(*job, why);
}

/// Ends the node, which cannot serve any more. Drivers and observers get Shutdown with the reason,
/// so every wait ends. Workers get none, since they are killed with their zygotes: with a Shutdown
/// it would be left to chance whether an actor's destructor still runs.
void Node::go_down(const std::string& why) {
  if (over_) return;
  over_ = true;
  over_why_ = why;
  events_.note({EventKind::node_ends, Severity::warning, options_.name + " ends: " + why});
  for (auto& [index, process] : processes_)
    if (process->kind != wire::ProcessKind::worker) processes_.send(*process, wire::Shutdown{why});
}

/// Notes the pid of a worker. The worker may have served for a while before this report; if its end
/// was decided meanwhile, it is killed now. An unknown worker was removed before and is killed too:
/// nothing else would end it.
void Node::forked(JobNumber number, ProcessIndex index, pid_t pid) {
  const Job* job = jobs_.find(number);
  Process* const worker = processes_.record(index);
  if (worker != nullptr) worker->pid = pid;
  if (logs_) logs_->forked(index, pid);
  if (worker == nullptr || worker->killed ||
      (job != nullptr && job->ended && !processes_.has_purpose(*worker)))
    os::send_signal(pid, SIGKILL);
}

/// Ends a worker of tasks: it reads that this side of its connection is closed. It then ends at
/// once if it runs a call, and in order if it does not. on_timer() kills it when it is late.
void Node::end_now(Process& worker) {
  if (!worker.introduced) {
    os::send_signal(worker.pid, SIGKILL);
  } else if (ending_workers_.told(worker.index, steady_now())) {
    worker.socket.end_sending();
  }
}

/// Leaves an event of a worker that has ended without having been told to.
void Node::note_end(const Process& process, const std::string& function) {
  const Job* job = jobs_.find(process.job_number);
  WorkerEnd end;
  end.reason = process.reason;
  end.function = function;
  end.job = process.job;
  end.actor = actors_.actor_on(process.index);
  end.pid = process.told_pid;
  end.stack = process.stack;
  end.last_lines = process.last_lines;
  end.expected = !process.introduced ||  // start_failed() tells of it
                 over_ || process.leaving || ending_workers_.has(process.index) ||
                 (process.killed && process.sentence.empty()) || job == nullptr || job->ended;
  events_.worker_gone(end);
}

/// Removes a worker that is dead, or that will not be forked.
void Node::worker_gone(ProcessIndex index, const std::string& reason) {
  Process* const found = processes_.record(index);
  if (found == nullptr) return;
  Process& process = *found;
  const std::string function = pages_.name(index);
  if (logs_) process.last_lines = logs_->ended(index, process.job_number);
  process.stack = pages_.ended(index);
  if (std::exchange(process.starting, false))
    start_failed(
        process.dedicated, process.job_number,
        process.sentence.empty() ? "it ended while it started: " + reason : process.sentence,
        process.at_limit);
  process.pid = 0;
  process.reason = process.sentence.empty() ? reason : process.sentence;
  note_end(process, function);
  end(process);
}

}  // namespace troupe::agent
