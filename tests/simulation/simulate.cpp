/// The program behind `./dev simulate` (see --help). Seeds run in child processes, so a broken
/// invariant that aborts is a failure like any other, with its seed.
#include "tests/simulation/cluster/cluster.hpp"
#include "tests/simulation/cluster/harness.hpp"
#include "tests/simulation/machine/world.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using namespace troupe::sim;
using cluster::Batch;
using cluster::Tuning;

struct Options {
  std::uint64_t seeds = 1000, from = 1, replay = 0, nodes = 1;
  std::string report;
  bool shrink = true, first_failure = false, machine = false, traces = false;
  Tuning tuning;
};

void usage() {
  std::puts(
      "usage: cluster_simulate [--seeds N] [--from S] [--replay SEED] [--report FILE]\n"
      "                        [--no-shrink] [--first-failure] [--off KIND,...] [--mute "
      "NUMBER,...] [--actions N]\n"
      "                        [--canary] [--verbose]\n"
      "                        [--machine [--nodes 3] [--traces N]]\n"
      "exit codes: 0 every seed kept every promise, and the load was above its floor; 1 one did\n"
      "not; 2 wrong usage; 3 the load was below its floor");
}

/// Splits a list at its commas.
std::vector<std::string> words_of(const char* text) {
  std::vector<std::string> words;
  std::string word;
  for (const char* c = text;; ++c) {
    if (*c != ',' && *c != 0) {
      word += *c;
      continue;
    }
    if (!word.empty()) words.push_back(std::exchange(word, {}));
    if (*c == 0) return words;
  }
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--verbose") {
      options.tuning.verbose = true;
      continue;
    }
    if (name == "--canary") {
      options.tuning.canary = true;
      continue;
    }
    if (name == "--first-failure") {
      options.first_failure = true;
      continue;
    }
    if (name == "--machine") {
      options.machine = true;
      continue;
    }
    if (name == "--no-shrink") {
      options.shrink = false;
      continue;
    }
    if (i + 1 >= argc) return false;
    const char* value = argv[++i];
    if (name == "--seeds")
      options.seeds = std::strtoull(value, nullptr, 10);
    else if (name == "--traces")
      options.traces = true, options.seeds = std::strtoull(value, nullptr, 10);
    else if (name == "--from")
      options.from = std::strtoull(value, nullptr, 10);
    else if (name == "--nodes")
      options.nodes = std::clamp<std::uint64_t>(std::strtoull(value, nullptr, 10), 1, 5);
    else if (name == "--replay")
      options.replay = std::strtoull(value, nullptr, 10);
    else if (name == "--report")
      options.report = value;
    else if (name == "--actions")
      options.tuning.most_actions = std::strtoull(value, nullptr, 10);
    else if (name == "--off")
      for (std::string& word : words_of(value)) options.tuning.off.insert(std::move(word));
    else if (name == "--mute")
      for (const std::string& word : words_of(value))
        options.tuning.muted.insert(std::strtoull(word.c_str(), nullptr, 10));
    else
      return false;
  }
  return true;
}

int replay(const Options& options) {
  const auto one = cluster::run_isolated(options.replay, options.tuning);
  std::printf("seed %" PRIu64 "%s: %" PRIu64 " events, %" PRIu64 " calls, trace %016" PRIx64
              "\n%s\n",
              options.replay, options.tuning.text().c_str(), one.events, one.calls, one.trace,
              one.violation.empty() ? "every promise was kept" : one.violation.c_str());
  return one.violation.empty() ? 0 : 1;
}

int run_machine(const Options& options) {
  machine::Options chosen;
  chosen.from = options.from;
  chosen.seeds = options.seeds;
  chosen.nodes = options.nodes;
  chosen.off = options.tuning.off;
  chosen.muted = options.tuning.muted;
  chosen.most_actions = options.tuning.most_actions;
  chosen.verbose = options.tuning.verbose;
  if (options.first_failure) chosen.most_failures = 1;
  if (options.replay != 0) {
    const machine::Outcome one = machine::run_isolated(options.replay, chosen);
    std::printf("seed %" PRIu64 ": %" PRIu64 " turns, %" PRIu64 " calls, trace %016" PRIx64
                "\n%s\n",
                options.replay, one.turns, one.did.calls, one.trace,
                one.violation.empty() ? "every promise was kept" : one.violation.c_str());
    return one.violation.empty() ? 0 : 1;
  }
  const machine::Batch batch = machine::run_batch(chosen);
  if (options.traces && batch.failures.empty())
    std::printf("%016" PRIx64 "\n", batch.trace.value());
  else
    std::fputs(batch.text().c_str(), stdout);
  if (!batch.failures.empty() && options.shrink) {
    const auto& [seed, why] = batch.failures.front();
    const std::string less = machine::shrink(seed, chosen, why).replay(seed);
    std::printf("the first of them still fails with less:\n  %s\n", less.c_str());
  }
  if (!batch.failures.empty()) return 1;
  return batch.floor().empty() ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    usage();
    return 2;
  }
  if (options.machine) return run_machine(options);
  if (options.replay != 0) return replay(options);
  const Batch batch = cluster::run_batch(options.from, options.seeds, options.tuning,
                                         options.first_failure ? 1 : 20);
  std::fputs(batch.text().c_str(), stdout);
  if (!options.report.empty())
    if (FILE* file = std::fopen(options.report.c_str(), "w")) {
      std::fputs(batch.json().c_str(), file);
      std::fclose(file);
    }
  if (batch.failures.empty()) return batch.floor().empty() ? 0 : 3;
  if (options.shrink) {
    const auto& [seed, why] = *batch.failures.begin();
    const Tuning small = cluster::shrink(seed, options.tuning, why);
    std::printf("the first of them still fails with less:\n  ./dev simulate --replay %" PRIu64
                "%s\n",
                seed, small.text().c_str());
  }
  return 1;
}
