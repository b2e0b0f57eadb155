/// Runs a scenario over many seeds, checks that it is deterministic, and summarizes the runs.
///
///     sim::Summary s = sim::run_seeds("Link.Delivers", 2000, run_one);
///     ASSERT_TRUE(s.ok()) << s.text();     // names the seed, the reason and how to replay it
///
/// Every twentieth seed runs twice in this process. The same seeds run again in another process,
/// which is the same test program with the scenario's name as its gtest filter. All trace hashes
/// must agree.
///
/// TROUPE_SIM_SEED=n runs that seed alone, TROUPE_SIM_SEEDS=n sets the number of seeds, and
/// TROUPE_SIM_FIRST=n sets the first one. Builds with a sanitizer run fewer seeds: see scaled().
#pragma once

#include "tests/simulation/kernel/world.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace troupe::sim {

struct Summary {
  std::uint64_t seeds = 0, counted = 0, events = 0, calls = 0, repeated = 0, elsewhere = 0;
  FaultCounts faults;
  Duration virtual_time{};
  std::string failure;  ///< of the first bad seed; empty when all is well
  std::uint64_t bad_seed = 0;

  bool ok() const noexcept { return failure.empty(); }
  /// Returns the figures of the run as one paragraph for the log.
  std::string text() const;
};

/// Returns how many of `seeds` seeds run in this build. A build with a sanitizer runs a tenth,
/// since it is about ten times slower and looks for other mistakes than the schedules do.
constexpr std::uint64_t scaled(std::uint64_t seeds) noexcept {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return seeds <= 100 ? seeds : seeds / 10 < 100 ? 100 : seeds / 10;
#else
  return seeds;
#endif
}

namespace detail {

inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace detail

/// The seeds of a test that loops over them itself. The environment variables above override the
/// default `otherwise`.
struct Seeds {
  explicit Seeds(std::uint64_t otherwise)
      : first(detail::number_from_environment("TROUPE_SIM_FIRST", 1)),
        count(detail::number_from_environment("TROUPE_SIM_SEEDS", scaled(otherwise))) {}
  std::uint64_t first, count;
};

namespace detail {

/// Runs this program again for one scenario and reads "hash <seed> <trace>" lines from it.
inline std::vector<std::pair<std::uint64_t, std::uint64_t>> hashes_elsewhere(
    const std::string& scenario, std::uint64_t first, std::uint64_t count, std::uint64_t step) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return {};
  self[length] = 0;
  const std::string plan = scenario + ":" + std::to_string(first) + ":" + std::to_string(count) +
                           ":" + std::to_string(step);
  const std::string filter = "--gtest_filter=" + scenario;
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_fds[1], 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    setenv("TROUPE_SIM_CHILD", plan.c_str(), 1);
    execl(self, self, filter.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(pipe_fds[1]);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
  FILE* in = fdopen(pipe_fds[0], "r");
  char line[256];
  while (in != nullptr && std::fgets(line, sizeof line, in) != nullptr) {
    std::uint64_t seed = 0, trace = 0;
    if (std::sscanf(line, "hash %" SCNu64 " %" SCNx64, &seed, &trace) == 2)
      found.emplace_back(seed, trace);
  }
  if (in != nullptr) std::fclose(in);
  int status = 0;
  waitpid(child, &status, 0);
  return found;
}

/// In the other process: prints the hashes that were asked for and exits.
template <class Run>
void answer_if_child(const std::string& scenario, Run& run) {
  const char* plan = std::getenv("TROUPE_SIM_CHILD");
  if (plan == nullptr || std::string_view(plan).substr(0, scenario.size() + 1) != scenario + ":")
    return;
  std::uint64_t first = 0, count = 0, step = 1;
  std::sscanf(plan + scenario.size(), ":%" SCNu64 ":%" SCNu64 ":%" SCNu64, &first, &count, &step);
  for (std::uint64_t i = 0; i < count; ++i)
    std::printf("hash %" PRIu64 " %" PRIx64 "\n", first + i * step, run(first + i * step).trace);
  std::fflush(stdout);
  _exit(0);
}

}  // namespace detail

inline std::string Summary::text() const {
  char line[512];
  std::snprintf(line, sizeof line,
                "%" PRIu64 " seeds (%" PRIu64 " count), %" PRIu64 " events, %" PRIu64
                " calls, %.0f s of virtual time, %" PRIu64 " seeds run twice, %" PRIu64
                " in another process\nfaults:",
                seeds, counted, events, calls, std::chrono::duration<double>(virtual_time).count(),
                repeated, elsewhere);
  std::string out = line;
  for (std::size_t i = 0; i < fault_kinds; ++i)
    if (faults.count[i] > 0)
      out +=
          " " + std::string(name_of(static_cast<Fault>(i))) + " " + std::to_string(faults.count[i]);
  if (!ok())
    out += "\nseed " + std::to_string(bad_seed) + ": " + failure +
           "\nreplay: TROUPE_SIM_SEED=" + std::to_string(bad_seed);
  return out;
}

/// Runs `run(seed) -> Report` for `count` seeds from `first` on, stopping at the first failure.
/// `scenario` is the gtest name, Suite.Test, of the test that calls this.
template <class Run>
Summary run_seeds(const std::string& scenario, std::uint64_t count, Run run,
                  std::uint64_t first = 1) {
  detail::answer_if_child(scenario, run);
  Summary summary;
  count = detail::number_from_environment("TROUPE_SIM_SEEDS", scaled(count));
  first = detail::number_from_environment("TROUPE_SIM_FIRST", first);
  const std::uint64_t only = detail::number_from_environment("TROUPE_SIM_SEED", 0);
  if (only != 0) {
    first = only;
    count = 1;
  }
  auto bad = [&](std::uint64_t seed, std::string why) {
    summary.failure = std::move(why);
    summary.bad_seed = seed;
    return summary;
  };
  constexpr std::uint64_t twice_every = 20;
  std::vector<std::uint64_t> traces;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Report report = run(seed);
    ++summary.seeds;
    summary.counted += report.counts() ? 1 : 0;
    summary.events += report.events;
    summary.calls += report.calls;
    summary.faults += report.faults;
    summary.virtual_time += report.virtual_time;
    if (!report.violation.empty()) return bad(seed, report.violation);
    if ((seed - first) % twice_every != 0) continue;
    if (run(seed).trace != report.trace) return bad(seed, "the same seed gave another trace");
    ++summary.repeated;
    traces.push_back(report.trace);
  }
  const auto there = detail::hashes_elsewhere(scenario, first, traces.size(), twice_every);
  if (there.size() != traces.size()) return bad(first, "the other process did not answer");
  for (std::size_t i = 0; i < traces.size(); ++i)
    if (there[i].second != traces[i])
      return bad(there[i].first, "another trace in another process");
  summary.elsewhere = there.size();
  return summary;
}

/// Returns the first seed whose world reports a broken promise, or 0 when none of `most` seeds
/// does.
template <class World, class... More>
std::uint64_t first_broken(std::uint64_t most, const More&... more) {
  for (std::uint64_t seed = 1; seed <= most; ++seed) {
    World world(seed, more...);
    world.run();
    if (!world.broken().empty()) return seed;
  }
  return 0;
}

/// Returns how many seeds it takes to find a planted mutant, or 0 when `most` seeds did not find
/// it.
template <class Run>
std::uint64_t seeds_to_find(const char* mutant, std::uint64_t most, Run run) {
  MutantScope planted(mutant);
  for (std::uint64_t seed = 1; seed <= most; ++seed)
    if (!run(seed).violation.empty()) return seed;
  return 0;
}

}  // namespace troupe::sim
