/// Node's jobs: one for each driver whose work runs here, with the program of its workers, from the
/// driver's Hello until nothing of the job runs here.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/os/child.hpp"

#include <csignal>
#include <cstdio>
#include <ctime>
#include <utility>

namespace troupe::agent {
namespace {

/// Most ends of drivers that are sent again to a new control.
constexpr std::size_t kMaxDriverEnds = 64;
/// A job is over this long after the end of its driver at the latest, even if control does not say
/// so.
constexpr Duration kJobEnds = control::EndingJobs::kAllKilled + std::chrono::seconds(1);

}  // namespace

Node::Job& Node::job_of(JobId id) {
  const auto [at, fresh] = job_numbers_.try_emplace(id);
  if (fresh) at->second = ++next_job_;
  Job& job = jobs_[at->second];
  job.id = id;
  job.number = at->second;
  return job;
}

// --- drivers of this node

/// Begins the job of a driver. The driver gets its Welcome once control knows the job.
void Node::on_driver(Process& from, const wire::Hello& hello, std::vector<Fd> descriptors) {
  Job& job = job_of(JobId::random());
  job.driver = from.index;
  job.record.id = job.id;
  job.record.name = hello.job_name;
  job.record.node = id_;
  job.record.started_ns = unix_nanoseconds();
  job.record.program = hello.program;
  job.record.arguments = hello.arguments;
  job.record.ignored_signals = hello.ignored_signals;
  job.record.blocked_signals = hello.blocked_signals;
  job.state = Job::State::ready;
  from.job = job.id;
  from.job_number = job.number;
  from.waiting = std::move(descriptors);
  if (config_.embedded || hello.program.empty()) {
    job.record.program.clear();
    return start_job(job);
  }
  job.program = Programs::program_of(job.record);
  programs_->describe(job.id, hello.program, hello.libraries, steady_now());
}

void Node::described(JobId id, const Result<Programs::Files>& files) {
  const auto number = job_numbers_.find(id);
  if (number == job_numbers_.end()) return;
  Job& job = jobs_.at(number->second);
  if (!files) {
    if (Process* driver = find(job.driver)) refuse(*driver, files.error().message());
    return;
  }
  job.record.files = files.value();
  if (job.driver != 0) start_job(job);  // else the driver is gone, and nothing would end the job
}

/// Sends StartJob to control. registered() calls this again, since control may be another process
/// then.
void Node::start_job(Job& job) {
  job.described = true;
  if (network_->epoch() == 0) return;  // follows when this node is registered
  job.record.epoch = network_->epoch();
  say_to_control(control::StartJob{id_, job.number.value, job.record});
}

void Node::on_job_reply(const control::JobReply& reply) {
  const auto at = jobs_.find(JobNumber::of(reply.request));
  if (at == jobs_.end()) return;
  Process* driver = find(at->second.driver);
  if (driver == nullptr || driver->waiting.empty()) return;
  if (!reply.error) return welcome(*driver, std::exchange(driver->waiting, {}));
  if (reply.error->code == Code::unavailable) return;  // asked again once registered
  refuse(*driver, reply.error->message);
}

/// Ends the job of a driver that has finished, or whose process is gone. A private node or an
/// embedded cluster ends with a driver that went without Shutdown, since its launcher was in that
/// process.
void Node::driver_gone(Process& driver, bool finished) {
  const auto at = jobs_.find(driver.job_number);
  if (at == jobs_.end() || at->second.driver != driver.index) return;
  Job& job = at->second;
  job.driver = 0;
  if (!driver.said_end && (!network_ || config_.embedded)) {
    over_ = true;
    return;
  }
  // Its tasks are killed now. Its actors may finish; control sends JobEnded when they have ended.
  end_tasks(job);
  lineage_cache_.job_over(job.number, "its job has ended");
  job.end_by = steady_now() + kJobEnds;
  if (!network_) return control_->send(control::FinishJob{job.id});
  control::ToControl end = control::FinishJob{job.id};
  if (!finished) end = control::DriverDied{job.id, driver.reason};
  say_to_control(end);
  driver_ends_.push_back(std::move(end));
  if (driver_ends_.size() > kMaxDriverEnds) driver_ends_.pop_front();
}

/// Sends again what concerns jobs: control may be another process, which got none of it.
void Node::registered() {
  for (auto& [number, job] : jobs_) {
    if (job.driver != 0 && job.described) start_job(job);
    if (job.state == Job::State::asked) say_to_control(control::GetJob{job.number.value, job.id});
  }
  for (const control::ToControl& end : driver_ends_) say_to_control(end);
}

// --- jobs of drivers elsewhere

/// Asks control for the job, since workers of it are wanted here. Their program then comes from the
/// driver's node. In an embedded cluster it is this process's own executable.
void Node::need_program(Job& job) {
  if (job.state != Job::State::unknown) return;
  if (config_.embedded) {
    job.state = Job::State::ready;
    for (const bool dedicated : std::exchange(job.waiting, {})) start_worker(dedicated, job.number);
    return;
  }
  job.state = Job::State::asked;
  say_to_control(control::GetJob{job.number.value, job.id});
}

void Node::on_job_info(const control::JobInfo& info) {
  const auto at = jobs_.find(JobNumber::of(info.request));
  if (at == jobs_.end() || at->second.state != Job::State::asked) return;
  Job& job = at->second;
  if (!info.job) return job_failed(job, "control does not know the job");
  // Of an ended job only detached actors may have workers.
  if (info.job->state != control::JobState::running) end_job(job.id, "it has ended");
  programs_->want(*info.job, steady_now());
}

void Node::program(JobId id, const Result<os::Program>& program) {
  const auto number = job_numbers_.find(id);
  if (number == job_numbers_.end()) return;
  Job& job = jobs_.at(number->second);
  if (!program) return job_failed(job, program.error().message());
  job.program = program.value();
  job.state = Job::State::ready;
  for (const bool dedicated : std::exchange(job.waiting, {})) start_worker(dedicated, job.number);
}

/// Refuses everything that waits for a worker of the job: this node cannot start any.
void Node::job_failed(Job& job, const std::string& why) {
  if (job.state != Job::State::failed && !job.ended)
    log_line("%s: workers of a job cannot be started here: %s", options_.name.c_str(), why.c_str());
  const Time now = steady_now();
  job.state = Job::State::failed;
  job.why = why;
  for (const bool dedicated : std::exchange(job.waiting, {}))
    leases_.worker_start_failed(now, dedicated, job.number);
  for (auto& [index, process] : processes_) {
    if (process->job_number != job.number || process->doomed) continue;
    if (process->kind == wire::ProcessKind::driver) {
      send(*process, wire::Shutdown{why});
      continue;
    }
    for (const LeaseKey key : leases_.keys_of(index)) send(*process, wire::LeaseRefused{key, why});
  }
  leases_.job_ended(job.number, now);
  lineage_cache_.job_over(job.number, why);
  remote_.refuse_job(job.id, why);
  const Error error(Code::unavailable, why);
  for (const std::uint64_t life : leasing_.waiting_lives(job.number))
    actors_.no_worker(life, error);
}

// --- ends

/// Returns whether the worker hosts an actor, or was started for one.
bool Node::has_purpose(const Process& worker) const {
  const auto starting = starting_.find(worker.index);
  return actors_.hosts(worker.index) || (starting != starting_.end() && starting->second);
}

/// Drops the lease requests of a job that has ended. Those of other nodes are refused, since a node
/// counts on each request that was not. Processes of this node that live on ask again by
/// themselves.
void Node::drop_lease_requests(const Job& job) {
  leases_.job_ended(job.number, steady_now());
  remote_.refuse_job(job.id, "its job has ended");
}

/// Ends the job's workers on this node, except those of actors.
void Node::end_tasks(const Job& job) {
  for (const auto& [index, process] : processes_)
    if (process->job_number == job.number && !process->doomed && process->pid > 0 &&
        process->kind == wire::ProcessKind::worker && !has_purpose(*process))
      end_now(*process);
}

/// Ends jobs whose drivers ended kJobEnds ago and of which control has sent no JobEnded.
void Node::end_late_jobs(Time now) {
  std::vector<JobId> late;
  for (const auto& [number, job] : jobs_)
    if (job.end_by <= now) late.push_back(job.id);
  for (const JobId id : late) end_job(id, "its driver has ended");
}

/// Ends the job on this node. Its tasks are killed. Its actors have ended, or are killed when
/// control sends StopActorAt; detached actors live on. A driver that waits for the end of its job
/// (`farewell`) learns of it when its connection closes.
void Node::end_job(JobId id, const std::string& why) {
  const auto number = job_numbers_.find(id);
  if (number == job_numbers_.end()) return;
  Job& job = jobs_.at(number->second);
  job.end_by = Time::max();
  if (!network_) {
    over_ = true;
    return;
  }
  job.ended = true;
  job.farewell = os::LocalSocket();
  for (const auto& [index, process] : processes_)
    if (process->job_number == job.number && process->kind == wire::ProcessKind::driver &&
        !process->said_end)  // one that has said so still reads its last lines
      send(*process, wire::Shutdown{why});
  end_tasks(job);
  if (logs_) logs_->look_again();
  const Time now = steady_now();
  drop_lease_requests(job);
  lineage_cache_.job_over(job.number, "its job has ended");
  std::erase_if(job.waiting, [&](bool dedicated) {
    if (!dedicated) leases_.worker_start_failed(now, dedicated, job.number);
    return !dedicated;
  });
}

/// Forgets ended jobs of which nothing runs, or is to run, on this node. Also forgets jobs that
/// only a lease request has named, once no request asks for them: their JobEnded may have come
/// before that request. The zygote of a forgotten job is killed: it has no workers worth waiting
/// for, and may hang before it reaches troupe::run.
void Node::forget_ended_jobs() {
  if (!network_) return;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = at->second;
    const bool merely_named = job.state == Job::State::unknown && !leases_.is_wanted(job.number);
    bool needed = (!job.ended && !merely_named) || leasing_.has_waiting_life(job.number);
    for (const auto& [index, process] : processes_)
      needed = needed ||
               (process->job_number == job.number && (process->kind != wire::ProcessKind::worker ||
                                                      process->pid > 0 || has_purpose(*process)));
    if (needed) {
      ++at;
      continue;
    }
    std::vector<ProcessIndex> unborn;  // workers that the zygote has not forked yet
    for (const auto& [index, process] : processes_)
      if (process->job_number == job.number) unborn.push_back(index);
    if (job.zygote) {
      os::send_signal(job.zygote_pid, SIGKILL);
      leave_zygote(job, std::move(unborn), "its job has ended");
    } else {
      for (const ProcessIndex index : unborn) worker_gone(index, "its job has ended");
    }
    for (const bool dedicated : std::exchange(job.waiting, {}))
      leases_.worker_start_failed(steady_now(), dedicated, job.number);
    // A request of another node may have come after the job's end. It is refused: no worker of a
    // forgotten job can be started, and each vain start would delay those of other jobs.
    if (leases_.is_wanted(job.number)) drop_lease_requests(job);
    programs_->forget(job.id);
    if (logs_) logs_->job_over(job.number);
    job_numbers_.erase(job.id);
    at = jobs_.erase(at);
  }
}

}  // namespace troupe::agent
