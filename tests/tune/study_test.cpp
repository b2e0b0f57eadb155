// Tests studies in virtual time: the core writes to a store, files of checkpoints are slow, and the
// driver dies. A second core follows each record, and the study goes on from the store of any
// moment.
#include "troupe/runtime/base/random.hpp"
#include "troupe/tune/simulate.hpp"

#include "tests/leeway.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <set>

namespace troupe::tune::study_test {
namespace {

constexpr std::uint64_t kStudies = kLeeway > 2 ? 60 : 300;  ///< fewer under sanitizers
constexpr std::size_t kCuts = 10;

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"w", integers(1, 4)}, {"k", choices({"a", "b"})}}};
}

AnyScheduler scheduler_of(std::uint64_t number, Random& random, long max_steps) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random.below(n)); };
  switch (number % 8) {
    case 0: return Fifo{};
    case 1:
      return AsyncHyperBand{
          .max_steps = max_steps, .eta = 1.5 + 3 * random.uniform(), .brackets = 1 + below(4)};
    case 2: return SuccessiveHalving{.eta = 2 + below(3), .rate = below(2), .bootstrap = below(3)};
    case 3: return MedianStopping{.grace = below(5), .min_samples = 1 + below(3)};
    case 4:
      return PercentileStopping{.percentile = 100 * random.uniform(), .startup_trials = below(4)};
    case 5: return Patience{.patience = below(4)};
    default:
      return Pbt{.perturb_every = 1 + below(6),
                 .burn_in = below(5),
                 .quantile = 0.1 + 0.4 * random.uniform(),
                 .save_all = random.chance(0.7),
                 .synchronous = number % 8 == 7};
  }
}

AnySearcher searcher_of(std::uint64_t number) {
  switch (number % 4) {
    case 0: return RandomSearch{};
    case 1: return GridSearch{3};
    case 2: return Halton{};
    default: return Tpe{.startup_trials = 2};
  }
}

ExperimentOptions any_options(Random& random, std::uint64_t number) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random.below(n)); };
  ExperimentOptions o{.goal = random.chance(0.5) ? minimize : maximize};
  o.trials = 2 + below(8);
  o.concurrent = below(5);
  o.max_failures = below(5) - 1;
  o.fail_fast = random.chance(0.1);
  o.max_steps = 1 + below(20);
  o.save_every = below(4);
  o.save_at_end = random.chance(0.3);
  o.seed = number;
  if (o.max_failures < 0 || random.chance(0.3))
    o.time_limit = std::chrono::milliseconds(1 + below(60'000));
  if (random.chance(0.6)) o.stop_grace = std::chrono::milliseconds(below(4000));
  if (random.chance(0.1)) o.target = random.uniform();
  o.scheduler = scheduler_of(number, random, o.max_steps);
  o.searcher = searcher_of(number / 8);
  for (int i = below(3); i > 0; --i) o.starts.push_back(space().sample(random));
  return o;
}

/// The first weight is the score, so that a file shows to which report it belongs.
Simulation any_trial(Random& random, Random& luck) {
  const double sick = random.chance(0.7) ? 0 : 0.3 * random.uniform();
  const double fails = random.chance(0.4) ? 0 : 0.3 * random.uniform();
  Simulation s;
  s.weights = {1};
  s.can_save = random.chance(0.9);
  s.obeys = random.chance(0.7);
  s.save_seconds = random.chance(0.5) ? 0 : 0.3;
  s.file_seconds = random.chance(0.3) ? 0 : 3 * random.uniform();
  s.train = [&luck, sick](std::vector<double>& w, const Point& p, long) {
    if (std::isnan(w[0])) return w[0];
    w[0] *= 1 - 0.1 * p[0] - 0.01 * luck.uniform();
    if (luck.chance(sick)) w[0] = NAN;
    return w[0];
  };
  s.fault = [&luck, fails](int, int, long) -> std::string {
    return luck.chance(fails) ? "boom" : "";
  };
  s.step_seconds = [&luck](const Point& p, long) { return p[0] + luck.uniform(); };
  return s;
}

std::vector<Event> events_of(const SimulatedStore& store, Event::Kind kind) {
  const std::string mark = "\"event\":\"" + std::string(name_of(kind)) + "\"";
  std::vector<Event> events;
  for (const std::string& line : store.events)
    if (line.find(mark) != std::string::npos)
      events.push_back(event_from_json(line, space()).value());
  return events;
}

Result<Experiment> restored(const ExperimentOptions& options, const SimulatedStore& store) {
  std::size_t i = 0;
  return Experiment::restore(space(), options, [&]() -> std::optional<std::string> {
    if (i == 0) return ++i, store.meta;
    return i <= store.events.size() ? std::optional(store.events[i++ - 1]) : std::nullopt;
  });
}

/// Parameters and weights of every start belong together (TU-4): a trial goes on with those of its
/// checkpoint, or with those of an exploit and the weights of another trial.
void expect_weights_belong(const Simulator& sim, const SimulatedStore& store) {
  const std::vector<Event> exploits = events_of(store, Event::Kind::exploit);
  std::vector<Event> holders = events_of(store, Event::Kind::started);
  holders.insert(holders.end(), exploits.begin(), exploits.end());
  std::map<int, Point> first;
  for (const Event& e : events_of(store, Event::Kind::created)) first[e.trial] = e.params;
  for (const Start& start : sim.starts()) {
    if (!start.from) {
      EXPECT_EQ(start.params, first.at(start.trial)) << start.trial;
      continue;
    }
    if (store.saved_with.at(start.from->key) == start.params) continue;
    const std::string own = "trial" + std::to_string(start.trial) + "-";
    const bool copied = std::any_of(exploits.begin(), exploits.end(), [&](const Event& e) {
      return e.trial == start.trial && e.params == start.params;
    });
    // Its own weights may come back by way of a trial that had copied them.
    const bool others = std::any_of(holders.begin(), holders.end(), [&](const Event& e) {
      return e.trial != start.trial && e.checkpoint.key == start.from->key;
    });
    EXPECT_TRUE(copied && (others || !start.from->key.starts_with(own)))
        << "trial " << start.trial << " starts from " << start.from->key
        << " with other parameters";
  }
  EXPECT_EQ(sim.without_weights(), 0);
}

void expect_rows_have_files(const SimulatedStore& store) {
  for (const auto& [key, row] : store.checkpoints)
    EXPECT_EQ(store.files.count(key.substr(0, key.find('@'))), 1U) << key << " " << row;
}

/// Only what is needed has a file at the end, and the model of the best report is that report's.
void expect_kept(const Experiment& e, const SimulatedStore& store) {
  const Board& board = e.board();
  std::set<std::string> wanted;
  const bool model = board.best_report && board.best_report->checkpoint;
  if (model) wanted.insert(board.best_report->checkpoint->key);
  for (const TrialInfo& t : board.trials) {
    EXPECT_TRUE(is_over(t.state)) << t.number << " is " << name_of(t.state);
    if (t.checkpoint) wanted.insert(t.checkpoint->key);
  }
  std::set<std::string> files;
  for (const auto& [key, weights] : store.files) files.insert(key);
  EXPECT_EQ(files, wanted);
  if (model && files.count(board.best_report->checkpoint->key) > 0) {
    EXPECT_EQ(store.files.at(board.best_report->checkpoint->key)[0], board.best_report->score);
  }
}

/// Lets go on what a user has paused.
void resume_all(Experiment& e, Time now) {
  if (e.board().over) return;
  if (e.board().paused) {
    EXPECT_TRUE(e.resume({}, now).ok());
  }
  const std::vector<TrialInfo> trials = e.board().trials;
  for (const TrialInfo& t : trials) {
    const bool resumed = !t.paused_by_user || e.resume(t.number, now).ok();
    EXPECT_TRUE(resumed) << t.number;
  }
}

/// A user pauses the study or a trial, and the study runs as far as it can before it is resumed.
void pause_and_resume(Experiment& e, Simulator& sim, Random& random) {
  for (int i = 0; i < 3; ++i) {
    const auto trial =
        random.chance(0.5) ? std::nullopt : std::optional(static_cast<int>(random.below(4)));
    try {
      sim.run(random.below(20));
      static_cast<void>(e.pause(trial, sim.now()));
      sim.run(random.below(60));
    } catch (const InvalidArgument&) {  // all trials wait for the user
    }
    if (random.chance(0.7)) resume_all(e, sim.now());
  }
  resume_all(e, sim.now());
}

/// Continues the study of this store to its end.
void expect_goes_on(const ExperimentOptions& options, const Simulation& simulation,
                    SimulatedStore store) {
  expect_rows_have_files(store);
  auto e = restored(options, store);
  ASSERT_TRUE(e.ok()) << e.error().message();
  const std::optional<BestReport>& best = e->board().best_report;
  if (best && best->checkpoint && e->board().why_over.empty() &&
      is_over(e->board().trials[static_cast<std::size_t>(best->trial)].state)) {
    EXPECT_EQ(store.files.count(best->checkpoint->key), 1U) << "an end before the best's file";
  }
  std::map<int, TrialInfo> finished;
  for (const TrialInfo& t : e->board().trials)
    if (is_over(t.state)) finished[t.number] = t;
  Simulator sim(*e, simulation);
  sim.keep(store);
  ASSERT_NO_THROW(sim.run(0));
  resume_all(*e, sim.now());
  ASSERT_NO_THROW(sim.run(100'000));
  ASSERT_TRUE(e->over());
  for (const Start& start : sim.starts())
    EXPECT_EQ(finished.count(start.trial), 0U) << "finished trial " << start.trial << " ran again";
  for (const auto& [number, before] : finished) {
    const TrialInfo& t = e->board().trials[static_cast<std::size_t>(number)];
    EXPECT_EQ(t.state, before.state);
    EXPECT_EQ(t.params, before.params);
    EXPECT_EQ(t.history.size(), before.history.size());
  }
  if (e->board().why_over == "all trials are done" &&
      !std::holds_alternative<GridSearch>(options.searcher)) {
    EXPECT_EQ(std::ssize(e->board().trials), e->board().planned) << "a trial is missing";
  }
  expect_weights_belong(sim, store);
  expect_rows_have_files(store);
  expect_kept(*e, store);
}

/// Follows the original record by record, and keeps stores of random moments.
class Watcher {
 public:
  Watcher(const ExperimentOptions& options, const Experiment& original, const Simulator& sim,
          SimulatedStore& store, Random& random)
      : options_(options), original_(original), sim_(sim), store_(store), random_(random) {
    store.written = [this](const StudyBatch& batch) { wrote(batch); };
  }
  const std::vector<SimulatedStore>& cuts() const { return cuts_; }

 private:
  void wrote(const StudyBatch& batch) {
    // Whatever left before this batch was recorded before.
    EXPECT_LE(sim_.starts().size(), starts_);
    EXPECT_LE(sim_.replies(), reports_);
    for (const std::string& line : batch.events) {
      if (line.find("\"event\":\"started\"") != std::string::npos) {
        ++starts_;
        EXPECT_FALSE(paused_) << "a start of a paused study";
      }
      if (line.find(R"("event":"pause","trial":-1)") != std::string::npos) paused_ = true;
      if (line.find(R"("event":"resume","trial":-1)") != std::string::npos) paused_ = false;
      reports_ += line.find("\"event\":\"report\"") != std::string::npos;
    }
    follow(batch);
    ++batches_;
    if (cuts_.size() < kCuts) return keep(cuts_.emplace_back());
    if (const std::uint64_t place = random_.below(batches_); place < kCuts) keep(cuts_[place]);
  }
  void follow(const StudyBatch& batch) {
    if (!second_) {
      SimulatedStore only_meta;
      only_meta.meta = store_.meta;
      auto second = restored(options_, only_meta);
      ASSERT_TRUE(second.ok()) << second.error().message();
      second_.emplace(std::move(second).value());
    }
    for (const std::string& line : batch.events) {
      const auto followed = second_->follow(line);
      ASSERT_TRUE(followed.ok()) << followed.error().message();
    }
    ASSERT_EQ(second_->fingerprint(), original_.fingerprint());
    ASSERT_EQ(second_->next_point(), original_.next_point());
  }
  void keep(SimulatedStore& cut) {
    cut = store_;
    cut.written = {};
  }

  const ExperimentOptions& options_;
  const Experiment& original_;
  const Simulator& sim_;
  SimulatedStore& store_;
  Random& random_;
  std::optional<Experiment> second_;
  std::vector<SimulatedStore> cuts_;
  std::size_t batches_ = 0;
  std::size_t starts_ = 0;
  bool paused_ = false;  ///< by the user
  std::size_t reports_ = 0;
};

TEST(Studies, ASecondCoreFollowsAndEveryCutGoesOnToTheEnd) {
  for (std::uint64_t number = 1; number <= kStudies; ++number) {
    SCOPED_TRACE("study " + std::to_string(number));
    Random random(number);
    Random luck(number * 77 + 1);
    const ExperimentOptions options = any_options(random, number);
    const Simulation simulation = any_trial(random, luck);
    Experiment e(space(), options);
    SimulatedStore store;
    Simulator sim(e, simulation);
    sim.keep(store);
    const Watcher watcher(options, e, sim, store, random);
    if (random.chance(0.3)) {  // a user adds a point and stops a trial, where that is possible
      ASSERT_NO_THROW(sim.run(random.below(40)));
      EXPECT_TRUE(e.add(space().sample(random), sim.now()).ok() || e.over() ||
                  std::holds_alternative<Pbt>(options.scheduler));
      const int trial = static_cast<int>(random.below(4));
      const bool stopped = e.stop(trial, sim.now()).ok();
      EXPECT_TRUE(stopped || trial >= std::ssize(e.board().trials) ||
                  is_over(e.board().trials[static_cast<std::size_t>(trial)].state));
    }
    Random whims(number * 31 + 7);
    if (whims.chance(0.3)) pause_and_resume(e, sim, whims);
    ASSERT_NO_THROW(sim.run(100'000)) << show(options.scheduler);
    ASSERT_TRUE(e.over()) << show(options.scheduler);
    expect_weights_belong(sim, store);
    expect_kept(e, store);
    if (HasFailure()) return;
    for (const SimulatedStore& cut : watcher.cuts()) {
      SCOPED_TRACE("cut after event " + std::to_string(cut.events.size()) + " of " +
                   std::to_string(store.events.size()));
      expect_goes_on(options, simulation, cut);
      if (HasFailure()) return;
    }
  }
}

/// The table of a study: what a user reads at its end.
std::string table(const Board& board) {
  std::string text;
  for (const TrialInfo& t : board.trials)
    text += std::to_string(t.number) + " " + std::string(name_of(t.state)) + " " +
            std::to_string(t.step()) + " " + show_number(t.score()) + " " +
            board.space.show(t.params) + " " + t.note + "\n";
  return text;
}

/// With one slot a killed driver changes nothing: the table is that of the uninterrupted study.
TEST(Studies, WithOneSlotTheTableIsTheUninterruptedOne) {
  for (std::uint64_t number = 0; number < 32; ++number) {
    if (number % 8 >= 6) continue;  // populations share their slot by time
    Random random(number + 1);
    ExperimentOptions options{.goal = minimize, .trials = 8, .concurrent = 1, .max_steps = 9};
    options.seed = number;
    options.save_every = 2;
    options.scheduler = scheduler_of(number, random, options.max_steps);
    options.searcher = searcher_of(number / 8);
    options.starts = {{0.5, 1, 0}};
    SCOPED_TRACE(show(options.scheduler) + " " + show(options.searcher));
    Simulation s;
    s.weights = {10};
    s.file_seconds = 1.5;
    s.train = [](std::vector<double>& w, const Point& p, long) {
      return w[0] *= 1 - 0.2 / (1 + std::abs(std::log10(p[0]) + 1 + p[1] / 4));
    };
    Experiment whole(space(), options);
    SimulatedStore store;
    std::vector<SimulatedStore> cuts;
    std::size_t batches = 0;
    store.written = [&](const StudyBatch&) {
      if (batches++ % 7 != 0) return;
      cuts.push_back(store);
      cuts.back().written = {};
    };
    Simulator all(whole, s);
    all.keep(store);
    all.run(100'000);
    const std::string expected = table(whole.board());
    for (SimulatedStore& cut : cuts) {
      SCOPED_TRACE("cut after event " + std::to_string(cut.events.size()));
      auto e = restored(options, cut);
      ASSERT_TRUE(e.ok()) << e.error().message();
      Simulator rest(*e, s);
      rest.keep(cut);
      rest.run(100'000);
      ASSERT_EQ(table(e->board()), expected);
    }
  }
}

}  // namespace
}  // namespace troupe::tune::study_test
