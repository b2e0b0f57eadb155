#include "troupe/runtime/agent/jobs.hpp"

#include "troupe/runtime/control/ending_jobs.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

/// Most ends of drivers that are sent again to a new control.
constexpr std::size_t kMaxDriverEnds = 64;
/// A job is over this long after the end of its driver at the latest, even if control does not say
/// so.
constexpr Duration kJobEnds = control::EndingJobs::kAllKilled + std::chrono::seconds(1);

}  // namespace

std::string why_not_here(const std::string& node_name, const std::string& why) {
  return (node_name.empty() ? "this node" : "node " + node_name) +
         " cannot start workers of this job; place its tasks and actors on other nodes, or mend "
         "the cause and run the program again: " +
         why;
}

// --- records

Job& Jobs::of(JobId id) {
  const auto [at, fresh] = numbers_.try_emplace(id);
  if (fresh) at->second = ++last_number_;
  Job& job = jobs_[at->second];
  job.id = id;
  job.number = at->second;
  return job;
}

Job* Jobs::find(JobNumber number) {
  const auto at = jobs_.find(number);
  return at == jobs_.end() ? nullptr : &at->second;
}

Job* Jobs::find(JobId id) {
  const auto number = numbers_.find(id);
  return number == numbers_.end() ? nullptr : &jobs_.at(number->second);
}

Jobs::Table::iterator Jobs::forget(Table::iterator job) {
  numbers_.erase(job->second.id);
  return jobs_.erase(job);
}

// --- drivers of this node

Job& Jobs::add(ProcessIndex driver, const wire::Hello& hello, NodeId self, std::int64_t now_ns) {
  Job& job = of(JobId::random());
  job.driver = driver;
  job.record.id = job.id;
  job.record.name = hello.job_name;
  job.record.pid = hello.pid;
  job.record.node = self;
  job.record.started_ns = now_ns;
  job.record.program = hello.program;
  job.record.arguments = hello.arguments;
  job.record.ignored_signals = hello.ignored_signals;
  job.record.blocked_signals = hello.blocked_signals;
  job.state = Job::State::ready;
  return job;
}

void Jobs::start(Job& job, Epoch epoch) {
  job.described = true;
  if (epoch == 0) return;  // follows when this node is registered
  job.record.epoch = epoch;
  control_.send(control::StartJob{job.record.node, job.number.value, job.record});
}

ProcessIndex Jobs::driver_of(const control::JobReply& reply) {
  const Job* job = find(JobNumber::of(reply.request));
  if (job == nullptr || (reply.error && reply.error->code == Code::unavailable)) return {};
  return job->driver;
}

Result<ProcessIndex> Jobs::stop(JobId id, const std::string& user) {
  Job* job = find(id);
  if (job == nullptr || job->driver == 0)
    return Error(Code::invalid_argument,
                 "it has no driver at the node, because it has ended: see 'troupe list jobs'");
  if (job->stopped_why.empty())
    job->stopped_why =
        "stopped by " + (user.empty() ? std::string("somebody") : user) + " with troupe job stop";
  return job->driver;
}

void Jobs::driver_ended(Job& job, bool finished, const std::string& why, Time now) {
  job.driver = 0;
  job.end_by = now + kJobEnds;
  if (kind_.is_private) return control_.send(control::FinishJob{job.id});
  control::ToControl end = control::FinishJob{job.id};
  if (!job.stopped_why.empty())
    end = control::FinishJob{job.id, job.stopped_why};
  else if (!finished)
    end = control::DriverDied{job.id, why};
  control_.send(end);
  driver_ends_.push_back(std::move(end));
  if (driver_ends_.size() > kMaxDriverEnds) driver_ends_.pop_front();
}

void Jobs::registered(Epoch epoch) {
  for (auto& [number, job] : jobs_) {
    if (job.driver != 0 && job.described) start(job, epoch);
    if (job.state == Job::State::asked) control_.send(control::GetJob{job.number.value, job.id});
  }
  for (const control::ToControl& end : driver_ends_) control_.send(end);
}

// --- programs

bool Jobs::wants_worker(Job& job, bool dedicated) {
  if (job.state == Job::State::unknown && kind_.is_embedded) job.state = Job::State::ready;
  if (job.state == Job::State::ready) return true;
  job.waiting.push_back(dedicated);
  if (job.state != Job::State::unknown) return false;
  job.state = Job::State::asked;
  control_.send(control::GetJob{job.number.value, job.id});
  return false;
}

Job* Jobs::asked_for(const control::JobInfo& info) {
  Job* job = find(JobNumber::of(info.request));
  return job != nullptr && job->state == Job::State::asked ? job : nullptr;
}

std::vector<bool> Jobs::ready(Job& job) {
  job.state = Job::State::ready;
  return std::exchange(job.waiting, {});
}

std::vector<bool> Jobs::failed(Job& job, const std::string& why) {
  job.state = Job::State::failed;
  job.why = why;
  return std::exchange(job.waiting, {});
}

// --- ends

std::vector<JobId> Jobs::late(Time now) const {
  std::vector<JobId> late;
  for (const auto& [number, job] : jobs_)
    if (job.end_by <= now) late.push_back(job.id);
  return late;
}

std::size_t Jobs::end(Job& job) {
  job.ended = true;
  job.end_by = Time::max();
  return std::erase_if(job.waiting, [](bool dedicated) { return !dedicated; });
}

Time Jobs::next_deadline() const {
  Time until = Time::max();
  for (const auto& [number, job] : jobs_) until = std::min(until, job.end_by);
  return until;
}

}  // namespace troupe::agent
