/// Node's jobs: one for each driver whose work runs here, with the program of its workers, from the
/// driver's Hello until nothing of the job runs here.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/os/user_name.hpp"

#include <utility>

namespace troupe::agent {

// --- drivers of this node

/// Begins the job of a driver. The driver gets its Welcome once control knows the job.
void Node::on_driver(Process& from, const wire::Hello& hello, std::vector<Fd> descriptors) {
  Job& job = jobs_.add(from.index, hello, id_, unix_nanoseconds());
  job.record.user = os::user_name();
  from.job = job.id;
  from.job_number = job.number;
  from.waiting = std::move(descriptors);
  if (config_.embedded || hello.program.empty()) {
    job.record.program.clear();
    return jobs_.start(job, network_->epoch());
  }
  job.program = Programs::program_of(job.record);
  programs_->describe(job.id, hello.program, hello.libraries, steady_now());
}

void Node::described(JobId id, const Result<Programs::Files>& files) {
  Job* job = jobs_.find(id);
  if (job == nullptr) return;
  if (!files) {
    if (Process* driver = processes_.find(job->driver))
      processes_.refuse(*driver, files.error().message());
    return;
  }
  job->record.files = files.value();
  // Without a driver nothing would end the job.
  if (job->driver != 0) jobs_.start(*job, network_->epoch());
}

void Node::on_job_reply(const control::JobReply& reply) {
  Process* driver = processes_.find(jobs_.driver_of(reply));
  if (driver == nullptr || driver->waiting.empty()) return;
  if (!reply.error) {
    if (const Job* job = jobs_.find(driver->job_number))
      events_.job_started(job->record, driver->told_pid);
    return welcome(*driver, std::exchange(driver->waiting, {}));
  }
  processes_.refuse(*driver, reply.error->message);
}

/// Ends the job of a driver that has finished, or whose process is gone. A private node or an
/// embedded cluster ends with a driver that went without Shutdown, since its launcher was in that
/// process.
void Node::driver_gone(Process& driver, bool finished) {
  Job* job = jobs_.find(driver.job_number);
  if (job == nullptr || job->driver != driver.index) return;
  job->driver = 0;
  if (driver.said_end) job_stops_.forget(job->id);
  if (!driver.said_end && (!network_ || config_.embedded)) {
    over_ = true;
    return;
  }
  // Its tasks are killed now. Its actors may finish; control sends JobEnded when they have ended.
  workers_.end_tasks(job->number);
  lineage_cache_.job_over(job->number, "its job has ended");
  jobs_.driver_ended(*job, finished, driver.reason, steady_now());
}

// --- jobs of drivers elsewhere

/// Takes the record of a job of which workers are wanted here. Their program then comes from the
/// driver's node.
void Node::on_job_info(const control::JobInfo& info) {
  Job* job = jobs_.asked_for(info);
  if (job == nullptr) return;
  if (!info.job) return job_failed(*job, "control does not know the job");
  // Of an ended job only detached actors may have workers.
  if (info.job->state != control::JobState::running) end_job(job->id, "it has ended");
  programs_->want(*info.job, steady_now());
}

void Node::program(JobId id, const Result<os::Program>& program) {
  Job* job = jobs_.find(id);
  if (job == nullptr) return;
  if (!program) return job_failed(*job, program.error().message());
  job->program = program.value();
  for (const bool dedicated : jobs_.ready(*job)) workers_.start_worker(dedicated, job->number);
}

/// Refuses everything that waits for a worker of the job: this node cannot start any.
void Node::job_failed(Job& job, const std::string& why) {
  if (job.state != Job::State::failed && !job.ended)
    events_.tell({EventKind::job_refused, Severity::error,
                  "workers of a job cannot be started here: " + why, job.id});
  const Time now = steady_now();
  const std::string told = why_not_here(options_.name, why);
  for (const bool dedicated : jobs_.failed(job, why))
    leases_.worker_start_failed(now, dedicated, job.number);
  for (auto& [index, process] : processes_) {
    if (process->job_number != job.number || process->ending) continue;
    if (process->kind == wire::ProcessKind::driver) {
      processes_.send(*process, wire::Shutdown{why});
      continue;
    }
    for (const LeaseKey key : leases_.keys_of(index))
      processes_.send(*process, wire::LeaseRefused{key, told});
  }
  leases_.job_ended(job.number, now);
  lineage_cache_.job_over(job.number, why);
  remote_.refuse_job(job.id, told, true);
  const Error error(Code::unavailable, told);
  for (const std::uint64_t life : leasing_.waiting_lives(job.number))
    actors_.no_worker(life, error);
}

// --- ends

/// Drops the lease requests of a job that has ended. Those of other nodes are refused, since a node
/// counts on each request that was not. Processes of this node that live on ask again by
/// themselves.
void Node::drop_lease_requests(const Job& job) {
  leases_.job_ended(job.number, steady_now());
  remote_.refuse_job(job.id, "its job has ended", false);
}

/// Ends the job on this node. Its tasks are killed. Its actors have ended, or are killed when
/// control sends StopActorAt; detached actors live on. A driver that waits for the end of its job
/// (Processes::keep_open) learns of it when its connection closes.
void Node::end_job(JobId id, const std::string& why) {
  Job* const ending = jobs_.find(id);
  if (ending == nullptr) return;
  if (!network_) {
    over_ = true;
    return;
  }
  Job& job = *ending;
  const std::size_t unstarted = jobs_.end(job);
  processes_.close(job.number);
  for (const auto& [index, process] : processes_)
    if (process->job_number == job.number && process->kind == wire::ProcessKind::driver &&
        !process->said_end)  // one that has said so still reads its last lines
      processes_.send(*process, wire::Shutdown{why});
  workers_.end_tasks(job.number);
  if (logs_) logs_->look_again();
  const Time now = steady_now();
  drop_lease_requests(job);
  lineage_cache_.job_over(job.number, "its job has ended");
  for (std::size_t i = 0; i < unstarted; ++i) leases_.worker_start_failed(now, false, job.number);
}

/// Forgets ended jobs of which nothing runs, or is to run, on this node. Also forgets jobs that
/// only a lease request has named, once no request asks for them: their JobEnded may have come
/// before that request. The zygote of a forgotten job is killed: it has no workers worth waiting
/// for, and may hang before it reaches troupe::run.
void Node::forget_ended_jobs() {
  if (!network_) return;
  for (auto at = jobs_.all().begin(); at != jobs_.all().end();) {
    Job& job = at->second;
    bool needed =
        !Jobs::is_over(job, leases_.is_wanted(job.number)) || leasing_.has_waiting_life(job.number);
    for (const auto& [index, process] : processes_)
      needed = needed || (process->job_number == job.number &&
                          (process->kind != wire::ProcessKind::worker || process->pid > 0 ||
                           processes_.has_purpose(*process)));
    if (needed) {
      ++at;
      continue;
    }
    workers_.end_unborn(job.number, "its job has ended");
    for (const bool dedicated : std::exchange(job.waiting, {}))
      leases_.worker_start_failed(steady_now(), dedicated, job.number);
    // A request of another node may have come after the job's end. It is refused: no worker of a
    // forgotten job can be started, and each vain start would delay those of other jobs. Nodes that
    // refused the job are forgotten, too.
    drop_lease_requests(job);
    programs_->forget(job.id);
    if (logs_) logs_->job_over(job.number);
    workers_.zygotes().forget(job.number);
    processes_.close(job.number);
    at = jobs_.forget(at);
  }
}

}  // namespace troupe::agent
