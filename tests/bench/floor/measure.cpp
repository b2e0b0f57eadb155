#include "measure.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace troupe::bench {

const char* name_of(Placement placement) noexcept {
  return placement == Placement::one_cpu ? "one_cpu" : "two_cpus";
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

bool possible(Placement placement) {
  return placement == Placement::one_cpu || allowed_cpus().size() >= 2;
}

int cpu_of(Placement placement, int side) {
  // Read once, before any thread is pinned: a pinned thread would see only its own CPU.
  static const std::vector<int> cpus = allowed_cpus();
  return cpus.at(placement == Placement::one_cpu ? 0 : static_cast<std::size_t>(side));
}

namespace {

void go_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    throw std::runtime_error("cannot pin a measurement to a CPU (sched_setaffinity)");
}

}  // namespace

Pinned::Pinned(int cpu) : before_(allowed_cpus()) {
  go_to({cpu});
}
Pinned::~Pinned() {
  try {
    go_to(before_);
  } catch (const std::exception&) {
    std::fputs("a measurement stays pinned to its CPU\n", stderr);
  }
}

Other::Other(int cpu, const std::function<void()>& body) : pid_(fork()) {
  if (pid_ < 0) throw std::runtime_error("cannot start the other side of a measurement (fork)");
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    go_to({cpu});
    body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    _exit(1);
  }
  _exit(0);
}

Other::~Other() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Sample median_of(int runs, const std::function<double()>& run) {
  run();
  std::vector<double> values;
  for (int i = 0; i < runs; ++i) values.push_back(run());
  std::sort(values.begin(), values.end());
  const double median = values[values.size() / 2];
  return {median, median == 0 ? 0 : (values.back() - values.front()) / median};
}

Row row(std::string name, Placement placement, const Sample& sample, std::string unit,
        double floor) {
  return {std::move(name), name_of(placement),
          sample.value,    std::move(unit),
          floor,           floor == 0 ? 0 : sample.value / floor,
          sample.spread};
}

Row floor_row(std::string name, Placement placement, const Sample& sample, std::string unit) {
  return row(std::move(name), placement, sample, std::move(unit), sample.value);
}

std::string to_json(const std::vector<Row>& rows) {
  std::string text = "[";
  char line[512];
  for (const Row& r : rows) {
    std::snprintf(line, sizeof line,
                  "%s\n  {\"name\": \"%s\", \"placement\": \"%s\", \"value\": %.6g, \"unit\": "
                  "\"%s\", \"floor\": %.6g, \"ratio\": %.4g, \"spread\": %.3g}",
                  text.size() == 1 ? "" : ",", r.name.c_str(), r.placement.c_str(), r.value,
                  r.unit.c_str(), r.floor, r.ratio, r.spread);
    text += line;
  }
  return text + "\n]\n";
}

std::string to_table(const std::vector<Row>& rows) {
  std::string text;
  char line[256];
  std::snprintf(line, sizeof line, "%-28s %-9s %12s %-11s %12s %7s %7s\n", "name", "placement",
                "value", "unit", "floor", "ratio", "spread");
  text += line;
  for (const Row& r : rows) {
    std::snprintf(line, sizeof line, "%-28s %-9s %12.4g %-11s %12.4g %7.2f %6.0f%%\n",
                  r.name.c_str(), r.placement.c_str(), r.value, r.unit.c_str(), r.floor, r.ratio,
                  r.spread * 100);
    text += line;
  }
  return text;
}

}  // namespace troupe::bench
