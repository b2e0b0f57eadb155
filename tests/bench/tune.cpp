// The suite "tune": trials and reports a second of a study that survives its driver, and what a
// large one costs.
#include "suite.hpp"

#include "tools.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/study/study_disk.hpp"
#include "troupe/tune/tune.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

namespace troupe::bench {
namespace {

namespace fs = std::filesystem;
using tune::Experiment;

struct Hp {
  double rate = 0.1;
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-4, 1));
}

/// Appends of 200 bytes per second, which nobody syncs.
double appends_per_second() {
  const ScratchFolder folder;
  const int file = open((folder.path() / "file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  expect(file >= 0, "a file to write");
  const std::array<char, 200> record{};
  constexpr int kWrites = 20'000;
  const Stopwatch watch;
  for (int i = 0; i < kWrites; ++i) expect(write(file, record.data(), record.size()) == 200, "");
  const double rate = kWrites / watch.seconds();
  close(file);
  return rate;
}

/// Batches of one event and one row per second.
double batches(bool quick) {
  const ScratchFolder folder;
  auto store = tune::StudyStore::open((folder.path() / "study").string(), {}).value();
  const std::string event(120, 'e'), row(150, 'r');
  const std::uint64_t count = quick ? 50 : 100'000;
  const Stopwatch watch;
  for (std::uint64_t i = 1; i <= count; ++i) {
    tune::StudyBatch batch{.first_event = i, .events = {event}};
    batch.trials.push_back({static_cast<std::uint32_t>(i % 1000), row});
    store->write(batch).value();
  }
  return static_cast<double>(count) / watch.seconds();
}

void no_op(tune::Trial& t, Hp hp) {
  static_cast<void>(t.report(hp.rate));
}
tune::Options<> options_of(int trials, const std::string& results) {
  return {.goal = tune::minimize,
          .trials = trials,
          .max_steps = 1'000'000'000,
          .show = false,
          .results = results};
}

/// Trials per second that only report once, in a study.
double no_op_trials(bool quick) {
  const ScratchFolder folder;
  Session session({.cpus = 2});
  Context ctx = session.context();
  const int trials = quick ? 20 : 3000;
  const Stopwatch watch;
  const auto best = tune::optimize<no_op, Hp>(
      ctx, space(), options_of(trials, (folder.path() / "study").string()));
  expect(best.board.best >= 0 && best.board.reports == static_cast<std::uint64_t>(trials),
         "all trials report");
  return trials / watch.seconds();
}

void reports_on(tune::Trial& t, Hp hp, long reports) {
  for (long i = 1; i < reports; ++i)
    if (!t.report(hp.rate)) return;
}

/// Reports per second of two trials, in a study.
double reports(bool quick) {
  const ScratchFolder folder;
  Session session({.cpus = 2});
  Context ctx = session.context();
  const long each = quick ? 50 : 6000;
  const Stopwatch watch;
  const auto best = tune::optimize<reports_on, Hp>(
      ctx, space(), options_of(2, (folder.path() / "study").string()), each);
  expect(best.board.reports == static_cast<std::uint64_t>(2 * (each - 1)), "all reports arrive");
  return static_cast<double>(best.board.reports) / watch.seconds();
}

struct Heavy {
  std::vector<double> weight = std::vector<double>(8u << 20, 0.5);  // 64 MiB
  [[maybe_unused]] friend auto fields(Heavy& h) { return std::tie(h.weight); }
  [[maybe_unused]] friend auto fields(const Heavy& h) { return std::tie(h.weight); }
};

/// Computes for a second, reports with 64 MiB, and does so `steps` times.
void heavy(tune::Trial& t, Hp, int steps, double seconds) {
  Heavy model;
  for (int step = 1; step <= steps; ++step) {
    const Stopwatch watch;
    for (std::size_t i = 0; watch.seconds() < seconds; i = (i + 1) % model.weight.size())
      model.weight[i] += 1e-9;
    if (!t.report(step, model)) return;
  }
}

double heavy_seconds(Context& ctx, const std::string& results, bool quick) {
  tune::Options<> options = options_of(1, results);
  options.goal = tune::maximize;
  options.save_every = 1;
  const Stopwatch watch;
  static_cast<void>(
      tune::optimize<heavy, Hp>(ctx, space(), options, quick ? 2 : 5, quick ? 0.01 : 1.0));
  return watch.seconds();
}

/// The rate of a trial that saves 64 MiB each second: with a folder over without one.
double checkpoint_rate(bool quick) {
  const ScratchFolder folder;
  Session session({.cpus = 2, .memory = Bytes{2ull << 30}});
  Context ctx = session.context();
  const double without = heavy_seconds(ctx, "", quick);
  return without / heavy_seconds(ctx, (folder.path() / "study").string(), quick);
}

double own_cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

void sleeper(tune::Trial& t, Hp hp, double seconds) {
  static_cast<void>(t.report(hp.rate));
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Percent of a CPU that the driver takes while trials sleep.
double idle_driver(bool quick) {
  const ScratchFolder folder;
  Session session({.cpus = 2});
  Context ctx = session.context();
  const int trials = quick ? 4 : 256;
  const double seconds = quick ? 0.1 : 20;
  tune::Options<> options = options_of(trials, (folder.path() / "study").string());
  options.per_trial = {.cpus = 0};
  options.concurrent = trials;
  // The time in the middle counts: all trials have begun, and none has ended.
  double used = 0;
  int seen = 0;
  std::thread watcher;
  const auto middle = std::chrono::duration<double>(seconds / 2);
  options.on_event = [&](const tune::Event& e) {
    if (e.kind != tune::Event::Kind::created || ++seen != trials) return;
    watcher = std::thread([&used, middle] {
      std::this_thread::sleep_for(middle / 2);
      const double before = own_cpu_seconds();
      std::this_thread::sleep_for(middle);
      used = own_cpu_seconds() - before;
    });
  };
  static_cast<void>(tune::optimize<sleeper, Hp>(ctx, space(), options, seconds));
  expect(watcher.joinable(), "all trials begin");
  watcher.join();
  return 100 * used / middle.count();
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Wide {
  std::array<double, 10> x{};
};

/// A large study, made by the core and the store alone.
class LargeStudy {
 public:
  LargeStudy(bool quick, const tune::AnySearcher& searcher, int trials)
      : trials_(quick ? 200 : trials), searcher_(searcher) {
    for (int i = 0; i < 10; ++i)
      space_.parameters.push_back({"x" + std::to_string(i), tune::uniform(0, 1)});
  }
  /// Returns by how many MiB this process grew after the first hundredth of the trials.
  double make() {
    auto store = tune::StudyStore::open(path(), {}).value();
    Experiment core(space_, options());
    core.with_store();
    Time now = steady_now();
    core.wall_clock(now, 1'700'000'000'000'000);
    core.begin(now);
    double early = 0;
    for (int begun = 0; !core.over();) {
      store->write(core.take_batch()).value();
      for (const tune::Command& command : core.take_commands()) {
        const auto* start = std::get_if<tune::Start>(&command);
        const auto* reply = std::get_if<tune::Reply>(&command);
        now += std::chrono::milliseconds(1);
        if (start != nullptr) {
          core.reported(start->trial, start->attempt, {1, start->params[0], {}, false}, now);
          if (++begun == std::max(trials_ / 100, 1)) early = resident_mib();
        } else if (reply != nullptr) {
          core.ended(reply->trial, reply->attempt, "", now);
        }
      }
    }
    const double grown = resident_mib() - early;
    store->write(core.take_batch()).value();
    expect(store->last_event() >= 3 * static_cast<std::uint64_t>(trials_), "three events a trial");
    return grown;
  }
  /// Returns the seconds until an experiment stands again.
  double open(Context ctx) const {
    const Stopwatch watch;
    auto disk = tune::StudyDisk::open(ctx, path(), {}).value();
    const auto again = Experiment::restore(space_, options(), disk->lines()).value();
    const double seconds = watch.seconds();
    expect(again.over(), "the study is complete");
    return seconds;
  }

 private:
  tune::ExperimentOptions options() const {
    tune::ExperimentOptions options{.goal = tune::minimize, .trials = trials_};
    options.searcher = searcher_;
    options.concurrent = 2;
    options.max_steps = 1'000'000;
    return options;
  }
  std::string path() const { return (folder_.path() / "study").string(); }

  ScratchFolder folder_;
  int trials_;
  tune::AnySearcher searcher_;
  tune::SearchSpace space_;
};

double open_large(bool quick) {
  Session session({.cpus = 2});
  LargeStudy study(quick, tune::RandomSearch{}, 100'000);
  static_cast<void>(study.make());
  return study.open(session.context());
}

/// Files and MiB of the folder of many no-op trials, with all exports.
std::pair<double, double> folder_of_trials(bool quick) {
  const ScratchFolder folder;
  Session session({.cpus = 2});
  Context ctx = session.context();
  static_cast<void>(tune::optimize<no_op, Hp>(
      ctx, space(), options_of(quick ? 20 : 10'000, (folder.path() / "study").string())));
  double files = 0, bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    bytes += static_cast<double>(entry.file_size());
  }
  return {files, bytes / (1 << 20)};
}

class Tune final : public Suite {
 public:
  const char* name() const override { return "tune"; }
  std::span<const RowInfo> rows() const override { return rows_; }
  int calm_floor() const override { return 0; }
  Sample measure_floor(int, Placement) override { return median_of(5, appends_per_second); }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement, bool quick) override {
    std::vector<Reading> readings;
    for (const std::size_t row : rows) readings.push_back({reading(row, quick)});
    return readings;
  }

 private:
  static double reading(std::size_t row, bool quick) {
    switch (row) {
      case 0: return batches(quick);
      case 1: return no_op_trials(quick);
      case 2: return reports(quick);
      case 3: return checkpoint_rate(quick);
      case 4: return idle_driver(quick);
      case 5: return LargeStudy(quick, tune::RandomSearch{}, 100'000).make();
      // Each suggestion reads all trials, so that only the last fifty are computed: the history counts.
      case 6:
        return LargeStudy(quick, tune::Tpe{.startup_trials = quick ? 150 : 99'950},
                          quick ? 200 : 100'000)
            .make();
      case 7: return open_large(quick);
      case 8: return folder_of_trials(quick).first;
      default: return folder_of_trials(quick).second;
    }
  }
  static constexpr auto kValue = Goal::Of::value;
  std::array<RowInfo, 10> rows_{{
      {"study_batches", "batches/s", kNoFloor, at_least(kValue, 60e3), false},
      {"study_trials", "trials/s", kNoFloor, at_least(kValue, 1000), false},
      {"study_reports", "reports/s", kNoFloor, at_least(kValue, 3000), false},
      {"study_checkpoints", "x", kNoFloor, at_least(kValue, 0.9), false},
      {"study_idle", "% of a CPU", kNoFloor, at_most(kValue, 2), false},
      {"study_memory", "MiB", kNoFloor, at_most(kValue, 32), false},
      {"study_memory_tpe", "MiB", kNoFloor, at_most(kValue, 64), false},
      {"study_open", "s", kNoFloor, at_most(kValue, 3), false},
      {"study_files", "files", kNoFloor, at_most(kValue, 500), false},
      {"study_bytes", "MiB", kNoFloor, at_most(kValue, 30), false},
  }};
};

}  // namespace

Suite& tune_suite() {
  static Tune suite;
  return suite;
}

}  // namespace troupe::bench
