#include "troupe/runtime/control/jobs.hpp"

#include "troupe/runtime/control/codec.hpp"

#include <algorithm>

namespace troupe::control {
namespace {

constexpr std::uint8_t kJobFormat = 4;  // format 1 ends with ended_ns, 2 has no signals, 3 no user
constexpr const char* kJobPrefix = "job/";

std::string encode(const JobRecord& job) {
  RecordWriter out(kJobFormat);
  out.id(job.id)
      .bytes(job.name)
      .u64(static_cast<std::uint64_t>(job.state))
      .id(job.node)
      .u64(job.epoch)
      .bytes(job.why)
      .i64(job.started_ns)
      .i64(job.ended_ns)
      .bytes(job.program);
  out.u64(job.arguments.size());
  for (const std::string& argument : job.arguments) out.bytes(argument);
  out.u64(job.files.size());
  for (const auto& [path, digest] : job.files) out.bytes(path).bytes(digest);
  out.u64(job.ignored_signals).u64(job.blocked_signals);
  out.bytes(job.user).u64(job.pid);
  return out.take();
}

bool decode(std::string_view bytes, JobRecord& job) {
  RecordReader in(bytes);
  job.id = in.id<JobId>();
  job.name = in.bytes();
  const std::uint64_t state = in.u64();
  job.state = static_cast<JobState>(state);
  job.node = in.id<NodeId>();
  job.epoch = in.u64();
  job.why = in.bytes();
  job.started_ns = in.i64();
  job.ended_ns = in.i64();
  if (in.version() >= 2) {
    job.program = in.bytes();
    for (auto n = in.count(8); n > 0; --n) job.arguments.push_back(in.bytes());
    for (auto n = in.count(16); n > 0; --n) {
      std::string path = in.bytes();
      job.files.emplace_back(std::move(path), in.bytes());
    }
  }
  if (in.version() >= 3) {
    job.ignored_signals = in.u64();
    job.blocked_signals = in.u64();
  }
  if (in.version() >= 4) {
    job.user = in.bytes();
    job.pid = static_cast<std::uint32_t>(in.u64());
  }
  return in.ok() && in.version() >= 1 && in.version() <= kJobFormat &&
         state <= static_cast<std::uint64_t>(JobState::stopped);
}

}  // namespace

std::string_view name_of(JobState state) noexcept {
  switch (state) {
    case JobState::running: return "running";
    case JobState::finished: return "finished";
    case JobState::failed: return "failed";
    case JobState::stopped: return "stopped";
  }
  return "unknown";
}

Result<Jobs> Jobs::recover(Store& store, JobOptions options) {
  Jobs jobs(options);
  bool readable = true;
  std::vector<std::pair<std::int64_t, JobId>> ended;
  auto read = store.scan(kJobPrefix, [&](std::string_view, std::string_view value) {
    JobRecord job;
    readable = readable && decode(value, job);
    if (job.state != JobState::running) ended.emplace_back(job.ended_ns, job.id);
    jobs.jobs_[job.id] = std::move(job);
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "a record of a job cannot be read: it was written by a newer build");
  std::sort(ended.begin(), ended.end());
  for (const auto& [when, id] : ended) jobs.ended_.push_back(id);
  return jobs;
}

Jobs::Out Jobs::on_start(const StartJob& message) {
  Out out;
  JobReply reply{message.from, message.request, nullptr};
  const auto [at, is_new] = jobs_.emplace(message.job.id, message.job);
  if (is_new) {
    at->second.state = JobState::running;
    out.writes.put(kJobPrefix + message.job.id.str(), encode(at->second));
  } else if (at->second.state != JobState::running) {
    reply.error = Error(Code::invalid_argument,
                        "the job " + message.job.id.str() + " has ended already: " + at->second.why)
                      .shared_info();
  }
  out.after_sync.emplace_back(std::move(reply));
  return out;
}

void Jobs::end(JobRecord& job, JobState state, const std::string& why, std::int64_t wall_ns,
               Out& out) {
  job.state = state;
  job.why = why;
  job.ended_ns = wall_ns;
  out.writes.put(kJobPrefix + job.id.str(), encode(job));
  out.after_sync.emplace_back(JobEnded{job.id, state, why});
  ended_.push_back(job.id);
  if (ended_.size() <= options_.ended_kept) return;
  out.writes.del(kJobPrefix + ended_.front().str());
  jobs_.erase(ended_.front());
  ended_.pop_front();
}

Jobs::Out Jobs::on_finish(JobId id, std::int64_t wall_ns) {
  Out out;
  if (is_running(id)) end(jobs_.at(id), JobState::finished, "its driver returned", wall_ns, out);
  return out;
}

Jobs::Out Jobs::on_stopped(JobId id, const std::string& why, std::int64_t wall_ns) {
  Out out;
  if (is_running(id)) end(jobs_.at(id), JobState::stopped, why, wall_ns, out);
  return out;
}

Jobs::Out Jobs::on_driver_died(JobId id, const std::string& why, std::int64_t wall_ns) {
  Out out;
  if (is_running(id)) end(jobs_.at(id), JobState::failed, "its driver died: " + why, wall_ns, out);
  return out;
}

Jobs::Out Jobs::on_node_dead(NodeId node, Epoch epoch, const std::string& why,
                             std::int64_t wall_ns) {
  Out out;
  std::vector<JobId> ids;
  for (const auto& [id, job] : jobs_)
    if (job.state == JobState::running && job.node == node && job.epoch == epoch) ids.push_back(id);
  for (const JobId id : ids)
    end(jobs_.at(id), JobState::failed, "its driver's node died: " + why, wall_ns, out);
  return out;
}

bool Jobs::is_running(JobId id) const {
  const auto at = jobs_.find(id);
  return at != jobs_.end() && at->second.state == JobState::running;
}

const JobRecord* Jobs::find(JobId id) const {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? nullptr : &at->second;
}

std::vector<JobRecord> Jobs::list() const {
  std::vector<JobRecord> all;
  for (const auto& [id, job] : jobs_) all.push_back(job);
  return all;
}

}  // namespace troupe::control
