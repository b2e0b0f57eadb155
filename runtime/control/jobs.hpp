/// Control's table of jobs and how they ended. A plain state machine; every record is durable
/// before a message shows it.
///
///     auto jobs = Jobs::recover(store, {}).value();
///     auto out = jobs.on_start({from, request, {.id = id, .name = "train", .node = node}});
///     out = jobs.on_driver_died(id, "killed by signal 9", wall_now);      // JobEnded
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/output.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::control {

enum class JobState : std::uint8_t { running = 0, finished = 1, failed = 2, stopped = 3 };
std::string_view name_of(JobState state) noexcept;

struct JobRecord {
  JobId id;
  std::string name;
  JobState state = JobState::running;
  NodeId node;                                ///< of its driver
  Epoch epoch = 0;                            ///< of that node
  std::string why;                            ///< why it ended, in a few words
  std::int64_t started_ns = 0, ended_ns = 0;  ///< wall clock, for people
  // From here on: what any node needs to start its workers.
  std::string program;                 ///< path of the executable on the driver's host
  std::vector<std::string> arguments;  ///< of the driver's main
  std::vector<std::pair<std::string, std::string>>
      files;  ///< executable first, then its own shared objects: path, SHA-256 in hex
  std::uint64_t ignored_signals = 0;  ///< as the driver was started; bit n - 1: signal n
  std::uint64_t blocked_signals = 0;
  std::string user;       ///< that the driver's node runs as; at most wire::kMaxUser bytes
  std::uint32_t pid = 0;  ///< of the driver, on its host
};

struct StartJob {
  NodeId from;
  std::uint64_t request = 0;
  JobRecord job;
};
struct JobReply {
  NodeId to;
  std::uint64_t request = 0;
  std::shared_ptr<const ErrorInfo> error;
};
/// The job is over: Directory::on_job_ended kills its actors, and the agents end its leases.
struct JobEnded {
  JobId job;
  JobState state = JobState::finished;
  std::string why;
};
using JobEvent = std::variant<JobReply, JobEnded>;

struct JobOptions {
  std::size_t ended_kept = 1000;
};

class Jobs {
 public:
  using Out = Output<JobEvent>;
  explicit Jobs(JobOptions options) : options_(options) {}
  static Result<Jobs> recover(Store& store, JobOptions options);

  /// Records a running job. The reply is invalid_argument if the job has ended already. Repeating a
  /// request is harmless.
  Out on_start(const StartJob& message);
  Out on_finish(JobId job, std::int64_t wall_ns);
  Out on_stopped(JobId job, const std::string& why, std::int64_t wall_ns);
  Out on_driver_died(JobId job, const std::string& why, std::int64_t wall_ns);
  Out on_node_dead(NodeId node, Epoch epoch, const std::string& why, std::int64_t wall_ns);

  bool is_running(JobId job) const;
  /// Returns null when the job is not known.
  const JobRecord* find(JobId job) const;
  std::vector<JobRecord> list() const;

 private:
  void end(JobRecord& job, JobState state, const std::string& why, std::int64_t wall_ns, Out& out);

  JobOptions options_;
  std::map<JobId, JobRecord> jobs_;
  std::deque<JobId> ended_;
};

}  // namespace troupe::control
