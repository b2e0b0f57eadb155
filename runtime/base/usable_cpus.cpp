#include "troupe/runtime/base/usable_cpus.hpp"

#include "troupe/runtime/base/control_groups.hpp"
#include "troupe/runtime/base/machine.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

namespace troupe {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

/// Returns the CPU time of a group for each second of time.
double quota_of(const ControlGroup& group) {
  std::uint64_t quota = 0, period = 0;
  if (group.is_v2) {  // "150000 100000", or "max 100000"
    std::istringstream text(group.text("cpu.max").value_or(""));
    if (!(text >> quota >> period)) return kNoQuota;
  } else {
    quota = group.number("cpu.cfs_quota_us").value_or(0);  // -1: none
    period = group.number("cpu.cfs_period_us").value_or(0);
  }
  return quota == 0 || period == 0 ? kNoQuota
                                   : static_cast<double>(quota) / static_cast<double>(period);
}

/// Returns a number of CPUs in a variable of a batch system; 0 for any other text, since the
/// variable is not troupe's.
unsigned cpus_in(const std::string& text) {
  unsigned value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? value : 0;
}

/// Returns the number of LSB_MCPU_HOSTS ("host 4") if the job has one host.
unsigned cpus_of_only_host(const std::string& hosts) {
  std::istringstream words(hosts);
  std::string host, cpus, other;
  words >> host >> cpus;
  return words >> other ? 0 : cpus_in(cpus);
}

}  // namespace

unsigned cpu_quota(const std::string& root) {
  double least = kNoQuota;
  for (const ControlGroup& group : control_groups("cpu", root))
    least = std::min(least, quota_of(group));
  return least < 1e6 ? std::max(1U, static_cast<unsigned>(least)) : 0;
}

unsigned allocated_cpus(const Environment& environment) {
  const auto text = [&](const char* name) { return environment.text(name).value_or(""); };
  if (!text("SLURM_JOB_ID").empty() || !text("SLURM_CPUS_ON_NODE").empty())
    return cpus_in(text("SLURM_CPUS_ON_NODE"));
  if (!text("PBS_JOBID").empty())  // NCPUS is of PBS Professional, the other of Torque
    return std::max(cpus_in(text("NCPUS")), cpus_in(text("PBS_NUM_PPN")));
  if (!text("LSB_JOBID").empty()) return cpus_of_only_host(text("LSB_MCPU_HOSTS"));
  if (text("NHOSTS") == "1") return cpus_in(text("NSLOTS"));  // Grid Engine
  return 0;
}

unsigned usable_cpus() {
  unsigned least = affine_cpus();
  for (const unsigned limit : {cpu_quota(), allocated_cpus(Environment())})
    if (limit != 0) least = std::min(least, limit);
  return std::max(1U, least);
}

}  // namespace troupe
