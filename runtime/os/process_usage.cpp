#include "troupe/runtime/os/process_usage.hpp"

#include <unistd.h>
#include <fstream>
#include <iterator>
#include <sstream>

namespace troupe::os {
namespace {

std::string proc_text(pid_t process, const char* file) {
  std::ifstream in("/proc/" + std::to_string(process) + "/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns the bytes behind "NAME:   12 kB" in /proc/PID/status; nullopt without such a line.
std::optional<std::int64_t> bytes_in(const std::string& status, const std::string& name) {
  const auto at = status.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream line(status.substr(at + name.size() + 2, 64));
  std::int64_t kilobytes = 0;
  if (!(line >> kilobytes)) return std::nullopt;
  return kilobytes * 1024;
}

const char* state_name(char letter) {
  switch (letter) {
    case 'R': return "runs";
    case 'S': return "sleeps";
    case 'D': return "in_kernel";
    case 'T':
    case 't': return "stopped";
    case 'Z': return "ended";
    default: return "other";
  }
}

}  // namespace

ProcessUsage usage_of(pid_t process) {
  ProcessUsage usage;
  const std::string status = proc_text(process, "status");
  usage.anonymous = bytes_in(status, "RssAnon");
  usage.shared = bytes_in(status, "RssShmem");
  const std::string stat = proc_text(process, "stat");
  const auto name_end = stat.rfind(')');  // the name may have spaces and parentheses
  if (name_end == std::string::npos) return usage;
  std::istringstream fields(stat.substr(name_end + 1));
  char state = '?';
  fields >> state;
  usage.state = state_name(state);
  constexpr int kBeforeTimes = 10;  // fields between the state and the user time
  std::string skipped;
  for (int i = 0; i < kBeforeTimes; ++i) fields >> skipped;
  std::uint64_t user = 0, system = 0;
  if (fields >> user >> system)
    usage.cpu_seconds =
        static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return usage;
}

}  // namespace troupe::os
