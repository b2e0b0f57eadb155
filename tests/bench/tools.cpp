#include "tools.hpp"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace troupe::bench {
namespace {

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

struct Seen {
  pid_t parent = 0;
  double ticks = 0;  ///< of CPU time
};

/// Reads a process's entry in /proc. Returns nothing when the process has ended.
std::optional<Seen> look_at(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(in, text, '\0');  // getline() does not throw if the process ends meanwhile
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Seen seen;
  std::string word;
  double user = 0, system = 0;
  fields >> word >> seen.parent;
  for (int i = 5; i < 14; ++i) fields >> word;  // fields count from 1; utime is the 14th
  fields >> user >> system;
  if (!fields) return std::nullopt;
  seen.ticks = user + system;
  return seen;
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "troupe-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder to measure in");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("a measurement is wrong: ") + what);
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void go_to(const std::vector<int>& cpus) {
  const cpu_set_t set = set_of(cpus);
  expect(sched_setaffinity(0, sizeof set, &set) == 0, "a process cannot be pinned");
}

void pin(pid_t pid, int cpu) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* tasks = opendir(folder.c_str());
  expect(tasks != nullptr, "a process to pin has ended");
  const cpu_set_t set = set_of({cpu});
  while (const dirent* entry = readdir(tasks))
    if (const int thread = std::atoi(entry->d_name); thread > 0)
      sched_setaffinity(thread, sizeof set, &set);
  closedir(tasks);
}

pid_t parent_of(pid_t pid) {
  const auto seen = look_at(pid);
  expect(seen.has_value(), "a parent is not known");
  return seen->parent;
}

std::vector<pid_t> family() {
  std::map<pid_t, pid_t> parents;
  DIR* processes = opendir("/proc");
  expect(processes != nullptr, "the processes to look at");
  while (const dirent* entry = readdir(processes))
    if (const pid_t pid = std::atoi(entry->d_name); pid > 0)
      if (const auto seen = look_at(pid)) parents.emplace(pid, seen->parent);
  closedir(processes);
  std::vector<pid_t> ours;
  for (const auto& [pid, parent] : parents) {
    pid_t at = pid;
    while (at > 1 && at != getpid()) at = parents.count(at) != 0 ? parents.at(at) : 0;
    if (at > 1) ours.push_back(pid);
  }
  return ours;
}

double cpu_seconds() {
  double ticks = 0;
  for (const pid_t pid : family())
    if (const auto seen = look_at(pid)) ticks += seen->ticks;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_bytes() {
  double kilobytes = 0;
  for (const pid_t pid : family()) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(in, line);)
      if (line.rfind("RssAnon:", 0) == 0) kilobytes += std::atof(line.c_str() + 8);
  }
  return 1024 * kilobytes;
}

}  // namespace troupe::bench
