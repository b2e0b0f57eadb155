/// This node's records of jobs: one for each driver whose work runs here, with the program of its
/// workers, from the driver's Hello until nothing of the job runs here. A plain state machine of
/// the agent.
///
///     Job& job = jobs.add(driver, hello, self, now_ns);      // a driver of this node
///     jobs.start(job, epoch);                                // → StartJob; JobReply answers
///     if (jobs.wants_worker(job, dedicated)) …;              // else it starts with the program
///     jobs.stop(id, "alice");                                 // a person stops it → its driver
///     jobs.driver_ended(job, finished, why, now);            // → FinishJob or DriverDied
///     jobs.end(job);                                         // at JobEnded, or when it is late()
///
/// Invariants: JOBS-1 A job has one number at this node as long as its record lives, and no other
/// job ever has that number. JOBS-2 A worker starts when the program is here, or its start fails;
/// each start that waits for the program gets one of both. JOBS-3 What control was told of a driver
/// of this node is said again to each new control: that the job runs, and the last 64 ends. JOBS-4
/// A job ends a fixed time after its driver at the latest, also without word of control.
#pragma once

#include "troupe/runtime/agent/control_port.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace troupe::agent {

/// A node's record of a job, the work of one driver on any node.
struct Job {
  JobId id;
  JobNumber number;
  /// Whether the program of its workers is unknown, asked for, here, or not to be had.
  enum class State : std::uint8_t { unknown, asked, ready, failed } state = State::unknown;
  os::Program program;
  std::string why;            ///< for State::failed
  bool ended = false;         ///< the job is over; kept for what still runs, as detached actors
  Time end_by = Time::max();  ///< set when its driver has ended: its end follows at this time
  ProcessIndex driver;        ///< 0: not a process of this node, or it has ended
  control::JobRecord record;  ///< what StartJob tells control, for a driver of this node
  bool described = false;     ///< the record is complete
  std::string stopped_why;    ///< not empty: a person stops the job
  std::vector<bool> waiting;  ///< workers to start when the program is here → dedicated
  int failed_starts = 0;      ///< since a worker last came up
};

/// Returns what users read whose work waits for a worker that this node can never start. `why`: the
/// cause.
std::string why_not_here(const std::string& node_name, const std::string& why);

class Jobs {
 public:
  using Table = std::map<JobNumber, Job>;
  struct Kind {
    bool is_private = false;   ///< control is in this process
    bool is_embedded = false;  ///< all nodes run this process's own executable
  };
  Jobs(ControlPort& control, Kind kind) : control_(control), kind_(kind) {}

  // --- records
  /// Returns the record of the job; the first call makes it.
  Job& of(JobId id);
  Job* find(JobNumber number);
  Job* find(JobId id);
  const Job* find(JobNumber number) const { return const_cast<Jobs*>(this)->find(number); }
  const Job* find(JobId id) const { return const_cast<Jobs*>(this)->find(id); }
  const Table& all() const noexcept { return jobs_; }
  Table& all() noexcept { return jobs_; }
  /// Returns whether a job of which nothing runs here may be forgotten. `is_wanted`: a lease
  /// request names it.
  static bool is_over(const Job& job, bool is_wanted) {
    return job.ended || (job.state == Job::State::unknown && !is_wanted);
  }
  /// Forgets the record. Returns the next one.
  Table::iterator forget(Table::iterator job);

  // --- drivers of this node
  /// Makes the job of a driver that has said Hello.
  Job& add(ProcessIndex driver, const wire::Hello& hello, NodeId self, std::int64_t now_ns);
  /// Sends StartJob. Without an epoch, registered() sends it.
  void start(Job& job, Epoch epoch);
  /// Returns the driver to which control's reply is to be passed on; 0: none. A reply that control
  /// is unavailable is none: the job is started again once this node is registered.
  ProcessIndex driver_of(const control::JobReply& reply);
  /// Notes that a person stops the job of a driver of this node: however the driver ends, control
  /// records the job as stopped. The first person counts. Returns the driver. Error:
  /// invalid_argument, because the job has no driver here.
  Result<ProcessIndex> stop(JobId id, const std::string& user);
  /// The driver has ended, `finished` or as `why` says. Tells control, and sets when the job ends.
  void driver_ended(Job& job, bool finished, const std::string& why, Time now);
  /// Sends again what concerns jobs: control may be another process, which got none of it.
  void registered(Epoch epoch);

  // --- programs
  /// Notes that a worker of the job is to start. Returns true if it can start now. Else it waits
  /// for the program, which control is asked for if it is unknown.
  bool wants_worker(Job& job, bool dedicated);
  /// Returns the job whose record control sends, if the job asked for it.
  Job* asked_for(const control::JobInfo& info);
  /// The program is here, or cannot be had. Returns the starts that waited for it → dedicated.
  std::vector<bool> ready(Job& job);
  std::vector<bool> failed(Job& job, const std::string& why);

  // --- ends
  /// Returns the jobs whose time is over since their drivers have ended.
  std::vector<JobId> late(Time now) const;
  /// Ends the job. Returns how many starts of workers for tasks waited for its program: none of
  /// them follows. Starts for actors wait on.
  std::size_t end(Job& job);
  Time next_deadline() const;

 private:
  ControlPort& control_;
  const Kind kind_;
  Table jobs_;
  std::map<JobId, JobNumber> numbers_;
  JobNumber last_number_;
  std::deque<control::ToControl> driver_ends_;  ///< sent again at each registration
};

}  // namespace troupe::agent
