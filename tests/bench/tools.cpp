#include "tools.hpp"

#include <dirent.h>
#include <sched.h>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace troupe::bench {
namespace {

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

}  // namespace

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
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto name_end = text.rfind(')');
  expect(name_end != std::string::npos && text.size() > name_end + 4, "a parent is not known");
  return std::atoi(text.c_str() + name_end + 4);
}

}  // namespace troupe::bench
