/// The verb `troupe job stop`.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/os/user_name.hpp"

#include <cstdio>
#include <thread>
#include <utility>

namespace troupe::cli {
namespace {

using namespace std::chrono_literals;
using What = control::ListRequest::What;

constexpr Duration kJobLooks = 100ms;
/// A driver has 10 s to end, and its actors have a few more.
constexpr Duration kJobEnds = 20s;
constexpr Duration kControlTells = 2s;

/// Returns the job as people know it: "job 3f2a91c0 (train)".
std::string title_of(const control::JobRecord& job) {
  return "job " + job.id.str().substr(0, 8) + " (" + visible_text(job.name, 80) + ")";
}

/// Returns what control knows of the job. An error: it does not answer now.
Result<control::JobRecord> record_of(Asked& asked, JobId id) {
  auto told = asked.try_list(What::jobs, kControlTells);
  if (!told) return told.error();
  for (auto& job : told->jobs)
    if (job.id == id) return std::move(job);
  throw Failure{Exit::failed, Error(Code::unavailable, "control has forgotten the job")};
}

}  // namespace

Exit stop_job(const Request& request, const std::string& text) {
  if (text.empty()) throw_usage("the JOB is empty: give a name or id as in 'troupe list jobs'");
  Asked asked(request);
  const auto jobs = asked.list(What::jobs);
  control::JobRecord job = find_job(jobs, text);
  if (job.name != text && text.size() < kLeastDigits)
    throw_usage("no job has the name '" + visible_text(text, 40) +
                "': to stop a job, give its name or 8 digits of its id or more, as in 'troupe list "
                "jobs'");
  if (job.state != control::JobState::running)
    throw_usage(title_of(job) + " has ended: it is " + std::string(name_of(job.state)) +
                ", since " + visible_text(job.why, 200) +
                "; 'troupe list jobs' shows those that run");
  const Time begin = steady_now();
  if (const auto told = asked.stop_job(job.node, {job.id, os::user_name()}); !told)
    throw Failure{
        Exit::failed,
        Error(told.error().code(), title_of(job) + " is not stopped: " + told.error().message())};
  if (!request.json) {
    std::printf("troupe: %s is told to stop; its driver is killed if it lives after 10 s\n",
                title_of(job).c_str());
    std::fflush(stdout);
  }
  bool is_silence_told = false;
  while (job.state == control::JobState::running) {
    if (steady_now() - begin >= kJobEnds)
      throw Failure{Exit::failed,
                    Error(Code::timed_out, title_of(job) + " was told to stop and has not ended in "
                                                           "20 s: see 'troupe list jobs'")};
    std::this_thread::sleep_for(kJobLooks);
    auto now = record_of(asked, job.id);
    if (now) {
      job = std::move(*now);
    } else if (!std::exchange(is_silence_told, true)) {
      std::fprintf(
          stderr,
          "troupe: control does not answer, so whether %s has ended is not known: %s; it is "
          "asked again until 20 s are over\n",
          title_of(job).c_str(), visible_text(now.error().message(), 200).c_str());
    }
  }
  const double seconds = std::chrono::duration<double>(steady_now() - begin).count();
  if (request.json)
    print(Json{{"id", job.id.str()},
               {"name", job.name},
               {"state", std::string(name_of(job.state))},
               {"why", job.why},
               {"seconds", seconds}});
  else
    std::printf("troupe: %s is %s after %.1f s\n", title_of(job).c_str(),
                std::string(name_of(job.state)).c_str(), seconds);
  return Exit::ok;
}

}  // namespace troupe::cli
