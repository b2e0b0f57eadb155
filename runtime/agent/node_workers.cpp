/// Node's zygotes and workers. A zygote forks a worker on request, the worker sends its Hello, and
/// end() removes it when the zygote has reaped it.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/role.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

namespace troupe::agent {
namespace {

constexpr Duration kZygoteEnds = os::kWorkersEnd + std::chrono::milliseconds(750);
/// How long a program that becomes a daemon may take from the end of its first process until
/// troupe::run.
constexpr Duration kZygoteGoesOn = std::chrono::seconds(10);

constexpr Duration kOrphansEnd = std::chrono::milliseconds(10);  ///< pause of end_orphans()

/// Returns whether the error goes away when processes, memory or descriptors come free.
bool is_limit(int error) {
  return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE;
}

std::string why_not_forked(int error) {
  return "fork failed: " + why_no_process(error);
}

}  // namespace

/// Returns the zygote of the job, which is started if there is none.
Result<Node::Zygote*> Node::start_zygote(const Job& job) {
  if (const auto at = zygotes_.find(job.number); at != zygotes_.end() && at->second.link)
    return &at->second;
  auto ends = os::LocalSocket::pair();
  if (!ends) return ends.error();
  // Uses the very file that a local driver was started from, even if another has its path by now.
  os::Program program = job.program;
  if (auto local = programs_ ? programs_->local(job.id) : std::nullopt) {
    program.path = std::move(local->path);
    program.libraries = std::move(local->libraries);
  }
  const os::OutputEnds output = logs_ ? logs_->add_zygote(job.number, job.id) : os::OutputEnds();
  program.out = output.out.get();
  program.err = output.err.get();
  auto pid = os::start_zygote(std::move(ends->second), program);
  if (!pid) return pid.error();
  Zygote& zygote = zygotes_[job.number];
  zygote.job = job.number;
  zygote.link = os::ZygoteLink(std::move(ends->first));
  zygote.ready = false;
  watch_zygote(zygote, *pid);
  return &zygote;
}

void Node::watch_zygote(Zygote& zygote, pid_t pid) {
  zygote.pid = pid;
  if (logs_) logs_->zygote_started(zygote.job, pid);
  zygote.life = os::handle_of(pid);
  zygote.due = Time::max();
}

/// Handles the end of the zygote's process; its socket may stay open in a process that it forked. A
/// zygote that exits with 0 before it is ready may have left a child in its place, as daemon()
/// does. That child has kZygoteGoesOn to report that it is ready.
void Node::zygote_process_ended(Zygote& zygote) {
  if (!zygote.life || !is_ready(zygote.life.get())) return;  // the child has just reported
  zygote.life.reset();
  if (zygote.ready || !os::exited_well(zygote.pid)) return zygote_gone(zygote);
  zygote.due = steady_now() + kZygoteGoesOn;
}

/// Takes the zygote away from the job and lets it end, and with it every worker of the job on this
/// node. It ends by itself when its socket closes, or is killed after kZygoteEnds.
void Node::leave_zygote(Zygote& zygote, std::vector<ProcessIndex> orphans, std::string why) {
  if (!zygote.link) return;
  zygote.link = os::ZygoteLink();
  zygote.life.reset();
  zygote.due = Time::max();
  EndingZygote& ending = ending_zygotes_.emplace_back();
  ending.pid = zygote.pid;
  ending.handle = os::handle_of(zygote.pid);
  ending.until = steady_now() + (ending.handle ? kZygoteEnds : Duration(0));
  ending.orphans = std::move(orphans);
  ending.why = std::move(why);
}

/// Ends the workers of zygotes that have ended, and kills zygotes that are late. Does not block.
void Node::reap_zygotes() {
  const Time now = steady_now();
  for (std::size_t i = 0; i < ending_zygotes_.size();) {
    EndingZygote& ending = ending_zygotes_[i];
    if (os::has_ended(ending.pid, ending.handle)) {
      const EndingZygote over = std::move(ending);
      ending_zygotes_.erase(ending_zygotes_.begin() + static_cast<std::ptrdiff_t>(i));
      orphans_due_ = now;
      for (const ProcessIndex index : over.orphans) worker_gone(index, over.why);
      continue;
    }
    if (now >= ending.until) {
      os::send_signal(ending.pid, SIGKILL);
      ending.until = now + std::chrono::milliseconds(10);
    }
    ++i;
  }
}

bool Node::is_zygote(pid_t pid) const {
  const auto ends = [pid](const EndingZygote& ending) { return ending.pid == pid; };
  const auto has = [pid](const auto& one) { return one.second.link && one.second.pid == pid; };
  return std::any_of(ending_zygotes_.begin(), ending_zygotes_.end(), ends) ||
         std::any_of(zygotes_.begin(), zygotes_.end(), has);
}

/// Ends processes that a killed zygote left behind, as children of this one. Does not block. Waits
/// while a zygote starts: one that becomes a daemon is such a child until it reports that it is
/// ready.
void Node::end_orphans() {
  const auto starts = [](const auto& one) { return one.second.link && !one.second.ready; };
  if (std::any_of(zygotes_.begin(), zygotes_.end(), starts)) {
    orphans_due_ = steady_now() + kOrphansEnd;
    return;
  }
  const std::size_t left =
      os::end_orphans([this](pid_t pid) { return is_zygote(pid) || pid == stacks_.child(); });
  orphans_due_ = left == 0 ? Time::max() : steady_now() + kOrphansEnd;
}

/// Ends every zygote at the end of the node. Waits for them, kZygoteEnds each at most, since their
/// workers must not outlive the node.
void Node::end_zygotes() {
  for (const auto& [index, process] : processes_)
    if (process->kind == wire::ProcessKind::worker) process->socket.shut_down();
  for (auto& [number, zygote] : zygotes_) leave_zygote(zygote, {}, {});
  for (EndingZygote& ending : ending_zygotes_) {
    pollfd entry{ending.handle.get(), POLLIN, 0};
    if (!ending.handle || wait_for({&entry, 1}, ending.until - steady_now()) <= 0)
      os::send_signal(ending.pid, SIGKILL);
    os::reap_at_end(ending.pid);
  }
  ending_zygotes_.clear();
  const Time until = steady_now() + kZygoteEnds;
  while (os::end_orphans([](pid_t) { return false; }) != 0 && steady_now() < until)
    sleep_for(std::chrono::milliseconds(1));
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
  const auto started = start_zygote(job);
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
  starting_[index] = dedicated;
  // The link keeps the request until the zygote has come up.
  os::OutputEnds output = logs_ ? logs_->add_worker(index, job.number, job.id) : os::OutputEnds();
  output.page = pages_.add(index);
  if ((*started)->link.fork_worker(index.value, std::move(ends->second), std::move(output))) return;
  if (logs_) logs_->ended(index, job.number);
  pages_.ended(index);
  starting_.erase(index);
  processes_.remove(index);
  start_failed(dedicated, number, "the zygote is gone");
}

void Node::on_zygote(Zygote& zygote) {
  bool gone = false;
  for (const os::ZygoteEvent& event : zygote.link.read(gone)) {
    const auto index = ProcessIndex::of(event.token);  // of the worker that the event is about
    switch (event.kind) {
      case os::ZygoteEvent::Kind::ready:
        zygote.ready = true;
        if (event.pid == zygote.pid) break;
        os::reap(zygote.pid);
        watch_zygote(zygote, event.pid);
        break;
      case os::ZygoteEvent::Kind::note: break;
      case os::ZygoteEvent::Kind::forked: worker_forked(zygote.job, index, event.pid); break;
      case os::ZygoteEvent::Kind::exited:
        if (Process* worker = processes_.find(index); worker && starting_.count(index) != 0)
          processes_.read_socket(
              *worker);  // its Shutdown may say which limit kept it from starting
        worker_gone(index, os::describe_status(event.status) + ", process " +
                               std::to_string(event.pid) + " of " + options_.name);
        break;
      case os::ZygoteEvent::Kind::failed:
        if (Process* worker = processes_.find(index); worker && is_limit(event.status)) {
          worker->at_limit = true;
          worker->sentence = why_not_forked(event.status);
        }
        worker_gone(index, why_not_forked(event.status));
        break;
    }
  }
  if (gone && !over_) zygote_gone(zygote);
}

void Node::zygote_gone(Zygote& zygote) {
  std::string why =
      "its zygote is gone: the program ended or crashed before it reached troupe::run, in the "
      "copy of it that workers are forked from";
  if (!network_) return go_down(why);
  const bool was_ready = zygote.ready;
  const std::string said = logs_ ? logs_->zygote_ended(zygote.job) : "";
  if (!was_ready && !said.empty()) why += ". Its last lines are:\n" + said;
  if (was_ready) why = "its zygote was killed, and all workers of its job on this node with it";
  // Its workers die with it, and nothing else reports their deaths.
  std::vector<ProcessIndex> orphans;
  for (const auto& [index, process] : processes_)
    if (process->job_number == zygote.job && process->kind == wire::ProcessKind::worker)
      orphans.push_back(index);
  leave_zygote(zygote, std::move(orphans), why);
  // A zygote that once came up may come up again; start_failed() counts if it does not.
  if (Job* job = jobs_.find(zygote.job); job != nullptr && !was_ready && !job->ended)
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
  if (++job->failed_starts == 1) log_line("a worker could not be started: %s", why.c_str());
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
  for (auto& [index, process] : processes_)
    if (process->kind != wire::ProcessKind::worker) processes_.send(*process, wire::Shutdown{why});
}

/// Notes the pid of a worker. The worker may have served for a while before this report; if its end
/// was decided meanwhile, it is killed now. An unknown worker was removed before and is killed too:
/// nothing else would end it.
void Node::worker_forked(JobNumber number, ProcessIndex index, pid_t pid) {
  const Job* job = jobs_.find(number);
  Process* const worker = processes_.record(index);
  if (worker != nullptr) worker->pid = pid;
  if (logs_) logs_->forked(index, pid);
  if (worker == nullptr || worker->killed ||
      (job != nullptr && job->ended && !has_purpose(*worker)))
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

/// Removes a worker that is dead, or that will not be forked.
void Node::worker_gone(ProcessIndex index, const std::string& reason) {
  Process* const found = processes_.record(index);
  if (found == nullptr) return;
  Process& process = *found;
  if (logs_) process.last_lines = logs_->ended(index, process.job_number);
  process.stack = pages_.ended(index);
  const auto starting = starting_.find(index);
  if (starting != starting_.end()) {
    const bool dedicated = starting->second;
    starting_.erase(starting);
    start_failed(
        dedicated, process.job_number,
        process.sentence.empty() ? "it ended while it started: " + reason : process.sentence,
        process.at_limit);
  }
  process.pid = 0;
  process.reason = process.sentence.empty() ? reason : process.sentence;
  end(process);
}

}  // namespace troupe::agent
