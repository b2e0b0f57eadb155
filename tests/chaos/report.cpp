#include "tests/chaos/chaos.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace chaos {

using nlohmann::json;

namespace {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)));
  return values[at];
}

/// Prints the last lines of the logs of a bad run's clusters.
void print_logs(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".log") continue;
    std::ifstream file(entry.path());
    std::deque<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line);
      if (lines.size() > 30) lines.pop_front();
    }
    for (const std::string& line : lines)
      std::printf("%s: %s\n", entry.path().filename().c_str(), line.c_str());
  }
}

double load_of_machine() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

}  // namespace

int Chaos::report() {
  const double rate =
      static_cast<double>(total_.tasks + total_.calls) / std::max(load_seconds_, 1.0);
  if (rate < options_.floor)
    bad("load", "wrong",
        "only " + std::to_string(static_cast<int>(rate)) +
            " operations a second: too little load to prove anything");
  std::uint64_t injected = 0, wrong = 0;
  json kinds = json::object();
  std::printf("%-22s %8s %6s %9s %5s %5s %5s %5s %9s %9s\n", "KIND", "INJECTED", "MISSED", "WORK",
              "LOST", "DUPL", "HUNG", "WRONG", "P50 MS", "P99 MS");
  for (const auto& [name, row] : rows_) {
    const auto work = row.work.tasks + row.work.calls + row.work.objects + row.work.records;
    const double p50 = quantile(row.recovery, 0.5), p99 = quantile(row.recovery, 0.99);
    injected += row.injected;
    wrong += row.lost + row.duplicated + row.hung + row.wrong;
    kinds[name] = {{"injected", row.injected},
                   {"missed", row.missed},
                   {"work", work},
                   {"lost", row.lost},
                   {"duplicated", row.duplicated},
                   {"hung", row.hung},
                   {"wrong", row.wrong},
                   {"recovery_p50_ms", p50},
                   {"recovery_p99_ms", p99},
                   {"recovery_ms", row.recovery},
                   {"skipped", row.skipped}};
    if (!row.skipped.empty()) {
      std::printf("%-22s skipped: %s\n", name.c_str(), row.skipped.c_str());
      continue;
    }
    std::printf(
        "%-22s %8llu %6llu %9llu %5llu %5llu %5llu %5llu %9.0f %9.0f\n", name.c_str(),
        static_cast<unsigned long long>(row.injected), static_cast<unsigned long long>(row.missed),
        static_cast<unsigned long long>(work), static_cast<unsigned long long>(row.lost),
        static_cast<unsigned long long>(row.duplicated), static_cast<unsigned long long>(row.hung),
        static_cast<unsigned long long>(row.wrong), p50, p99);
  }
  const double seconds = ms_since(begun_) / 1000;
  const bool good = wrong == 0 && injected > 0;
  std::printf(
      "seed %llu: %llu faults in %.0f s on %d clusters of %d nodes; %llu tasks, %llu calls (%llu "
      "unknown), %llu objects (%llu gone with their node), %llu records; %.0f operations a second; "
      "load of "
      "the machine %.1f, %.0f%% of its CPU time used\n",
      static_cast<unsigned long long>(options_.seed), static_cast<unsigned long long>(injected),
      seconds, rounds_, options_.nodes, static_cast<unsigned long long>(total_.tasks),
      static_cast<unsigned long long>(total_.calls),
      static_cast<unsigned long long>(total_.unknown),
      static_cast<unsigned long long>(total_.objects), static_cast<unsigned long long>(total_.gone),
      static_cast<unsigned long long>(total_.records), rate, load_of_machine(),
      busy_cpus_.measured());
  for (const std::string& message : messages_) std::printf("BAD %s\n", message.c_str());
  if (!good) print_logs(folder_);
  if (injected == 0) std::printf("BAD no fault took effect\n");
  std::string only;
  for (const std::string& name : options_.only) only += (only.empty() ? " --only " : ",") + name;
  if (options_.busy > 0) only += " --busy " + std::to_string(options_.busy);
  std::printf("repeat: ./dev chaos --minutes %g --seed %llu --nodes %d%s\n", options_.minutes,
              static_cast<unsigned long long>(options_.seed), options_.nodes, only.c_str());
  if (!options_.report.empty())
    std::ofstream(options_.report) << json{{"seed", options_.seed},
                                           {"minutes", options_.minutes},
                                           {"seconds", seconds},
                                           {"nodes", options_.nodes},
                                           {"clusters", rounds_},
                                           {"faults", injected},
                                           {"tasks", total_.tasks},
                                           {"calls", total_.calls},
                                           {"unknown", total_.unknown},
                                           {"objects", total_.objects},
                                           {"gone", total_.gone},
                                           {"records", total_.records},
                                           {"operations_per_second", rate},
                                           {"load", load_of_machine()},
                                           {"cpu_percent", busy_cpus_.measured()},
                                           {"good", good},
                                           {"kinds", kinds},
                                           {"bad", messages_}}
                                          .dump(2, ' ', false, json::error_handler_t::replace)
                                   << '\n';
  return good ? 0 : 1;
}

}  // namespace chaos
