// Tests random experiments in virtual time: every kind of option at once, with failures, scores
// that are NaN, trials that ignore requests to stop, and interruptions. Each experiment ends,
// keeps the checkpoints of its best report and its trials and no others, and is rebuilt from its
// log.
#include "troupe/runtime/base/random.hpp"
#include "tests/leeway.hpp"
#include "troupe/tune/simulate.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <set>

namespace troupe::tune::random_test {
namespace {

constexpr std::uint64_t kSeeds = kLeeway > 2 ? 400 : 1500;  ///< fewer under sanitizers

AnyScheduler any_scheduler(Random& random, long max_steps) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random.below(n)); };
  switch (below(8)) {
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
                 .clamp = random.chance(0.8),
                 .save_all = random.chance(0.7),
                 .synchronous = random.chance(0.5)};
  }
}

AnySearcher any_searcher(Random& random) {
  switch (random.below(4)) {
    case 0: return RandomSearch{};
    case 1: return GridSearch{1 + static_cast<int>(random.below(4))};
    case 2: return Halton{};
    default: return Tpe{.startup_trials = static_cast<int>(random.below(4))};
  }
}

ExperimentOptions any_options(Random& random, std::uint64_t seed) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random.below(n)); };
  ExperimentOptions o{.goal = random.chance(0.5) ? minimize : maximize};
  o.trials = 2 + below(8);
  o.concurrent = below(5);
  o.max_failures = below(5) - 1;
  o.fail_fast = random.chance(0.1);
  o.max_steps = 1 + below(20);
  o.save_every = below(4);
  o.save_at_end = random.chance(0.3);
  o.seed = seed;
  // With unlimited retries, only the time limit ends trials that fail again and again.
  if (o.max_failures < 0 || random.chance(0.3))
    o.time_limit = std::chrono::milliseconds(1 + below(60'000));
  if (random.chance(0.6)) o.stop_grace = std::chrono::milliseconds(below(4000));
  if (random.chance(0.1)) o.target = random.uniform();
  o.scheduler = any_scheduler(random, o.max_steps);
  o.searcher = any_searcher(random);
  return o;
}

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"w", integers(1, 4)}, {"k", choices({"a", "b"})}}};
}

/// The weight is the score, so a loaded model shows to which report it belongs.
Simulation any_trial(Random& random, Random& luck) {
  const double sick = random.chance(0.5) ? 0 : 0.4 * random.uniform();
  const double infinite = random.chance(0.7) ? 0 : 0.1;
  const double fails = random.chance(0.4) ? 0 : 0.3 * random.uniform();
  Simulation s;
  s.weights = {1};
  s.can_save = random.chance(0.85);
  s.obeys = random.chance(0.6);
  s.save_seconds = random.chance(0.5) ? 0 : 0.3;
  s.train = [&luck, sick, infinite](std::vector<double>& w, const Point& p, long) {
    if (std::isnan(w[0])) return w[0];
    w[0] *= 1 - 0.1 * p[0];
    if (luck.chance(sick)) w[0] = NAN;
    if (luck.chance(infinite)) w[0] = luck.chance(0.5) ? HUGE_VAL : -HUGE_VAL;
    return w[0];
  };
  s.fault = [&luck, fails](int, int, long) -> std::string {
    if (!luck.chance(fails)) return {};
    return luck.chance(0.5) ? "boom" : "bang";
  };
  s.step_seconds = [&luck](const Point& p, long) { return p[0] + luck.uniform(); };
  return s;
}

void expect_kept(const Experiment& e, const Simulator& sim) {
  const Board& board = e.board();
  std::set<std::string> wanted;
  if (board.best_report && board.best_report->checkpoint)
    wanted.insert(board.best_report->checkpoint->key);
  for (const TrialInfo& t : board.trials) {
    EXPECT_TRUE(is_over(t.state)) << t.number << " is " << name_of(t.state);
    if (t.checkpoint) wanted.insert(t.checkpoint->key);
  }
  std::set<std::string> stored;
  for (const auto& [key, weights] : sim.stored()) stored.insert(key);
  EXPECT_EQ(stored, wanted);
  if (!board.best_report || !board.best_report->checkpoint) return;
  const auto found = sim.stored().find(board.best_report->checkpoint->key);
  ASSERT_NE(found, sim.stored().end());
  EXPECT_EQ(found->second[0], board.best_report->score);
}

void expect_rebuilt(const ExperimentOptions& options, const Experiment& e,
                    const std::vector<std::string>& log) {
  const auto again = Experiment::restore(space(), options, log);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(again->over());
  EXPECT_EQ(again->board().best, e.board().best);
  ASSERT_EQ(again->board().trials.size(), e.board().trials.size());
  for (std::size_t i = 0; i < e.board().trials.size(); ++i) {
    EXPECT_EQ(again->board().trials[i].state, e.board().trials[i].state) << i;
    EXPECT_EQ(again->board().trials[i].params, e.board().trials[i].params) << i;
  }
}

TEST(RandomExperiments, EndAndKeepWhatIsNeededAndCanBeRebuilt) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Random luck(seed * 77 + 1);
    const ExperimentOptions options = any_options(random, seed);
    const Simulation simulation = any_trial(random, luck);
    std::vector<std::string> log;
    std::map<std::string, std::vector<double>> stored;
    if (random.chance(0.3)) {  // the program is killed in the middle
      Experiment first(space(), options);
      Simulator sim(first, simulation);
      sim.run(random.below(60));
      log = sim.log();
      stored = sim.stored();
    }
    auto e = Experiment::restore(space(), options, log);
    ASSERT_TRUE(e.ok()) << e.error().message();
    Simulator sim(*e, simulation);
    sim.load(stored);
    ASSERT_NO_THROW(sim.run(100'000)) << show(options.scheduler);
    ASSERT_TRUE(e->over()) << show(options.scheduler);
    log.insert(log.end(), sim.log().begin(), sim.log().end());
    expect_kept(*e, sim);
    expect_rebuilt(options, *e, log);
    if (HasFailure()) return;
  }
}

// Single cases of interruptions and retries.

Time at(double seconds) {
  return Time{} + std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

/// Reports a step and saves it, after which the trial is told to return.
void run_once(Experiment& e, int trial, int attempt, long step, double seconds) {
  e.reported(trial, attempt, {.step = step, .score = 1, .can_save = true}, at(seconds));
  e.saved(trial, attempt, {std::to_string(trial) + "-" + std::to_string(step), "aa", 1, step},
          at(seconds));
}

template <class C>
int count(const std::vector<Command>& commands, int trial) {
  int n = 0;
  for (const Command& command : commands) {
    const auto* one = std::get_if<C>(&command);
    n += one != nullptr && one->trial == trial;
  }
  return n;
}

TEST(Interrupting, TheGraceOfAnEarlierAttemptKillsNobody) {
  Experiment e(space(), {.goal = minimize,
                         .trials = 3,
                         .scheduler = Pbt{.perturb_every = 1},
                         .concurrent = 1,
                         .stop_grace = std::chrono::seconds(5)});
  e.begin(at(0));
  for (int trial = 0; trial < 3; ++trial) {  // each hands its slot to the next trial
    run_once(e, trial, 1, 1, trial);
    e.ended(trial, 1, "", at(trial + 0.5));
  }
  EXPECT_EQ(count<Start>(e.take_commands(), 0), 2);
  run_once(e, 0, 2, 2, 4.9);
  e.take_commands();
  e.tick(at(5.5));  // the grace of the first attempt would end here
  EXPECT_EQ(count<Kill>(e.take_commands(), 0), 0);
  ASSERT_TRUE(e.next_tick());
  EXPECT_EQ(*e.next_tick(), at(9.9));
  e.tick(at(9.9));
  EXPECT_EQ(count<Kill>(e.take_commands(), 0), 1);
}

TEST(Interrupting, ATrialThatMakesRoomWhenAllEndsIsStopped) {
  Experiment e(space(), {.goal = minimize,
                         .trials = 2,
                         .scheduler = Pbt{.perturb_every = 1, .synchronous = true},
                         .concurrent = 1});
  e.begin(at(0));
  run_once(e, 0, 1, 1, 1);  // on hold, so it leaves its slot to trial 1
  EXPECT_EQ(e.board().trials[0].state, TrialState::leaving);
  e.cancel(at(2));
  e.ended(0, 1, "", at(3));
  EXPECT_TRUE(e.over());
  EXPECT_EQ(e.board().trials[0].state, TrialState::stopped);
}

TEST(Interrupting, TheLastPointOfAGridLetsThoseOnHoldGoOn) {
  Experiment e({{{"x", uniform(0, 1)}}}, {.goal = minimize,
                                          .trials = 2,
                                          .scheduler = Pbt{.perturb_every = 1, .synchronous = true},
                                          .searcher = GridSearch{1},
                                          .concurrent = 1});
  e.begin(at(0));
  run_once(e, 0, 1, 1, 1);
  e.take_commands();
  e.ended(0, 1, "", at(2));
  EXPECT_EQ(count<Start>(e.take_commands(), 0), 1);
}

/// A trial on hold dies while it makes room. When it is resumed, it waits for the time of its
/// retry.
TEST(Interrupting, ARetryThatIsResumedBeforeItsTimeStartsThen) {
  Experiment e(space(), {.goal = minimize,
                         .trials = 2,
                         .scheduler = Pbt{.perturb_every = 1, .synchronous = true},
                         .concurrent = 1,
                         .max_failures = -1});
  e.begin(at(0));
  e.reported(0, 1, {.step = 1, .score = 1, .can_save = true}, at(1));
  e.ended(0, 1, "boom", at(1));
  run_once(e, 0, 2, 1, 2);  // no further than before
  e.ended(0, 2, "boom", at(2));
  EXPECT_EQ(e.board().trials[0].state, TrialState::paused);
  e.ended(1, 1, "", at(2.05));  // it fails without a report, and the barrier opens
  EXPECT_EQ(e.board().trials[0].state, TrialState::waiting);
  e.take_commands();
  ASSERT_TRUE(e.next_tick());
  EXPECT_EQ(*e.next_tick(), at(2.1));
  e.tick(at(2.1));
  EXPECT_EQ(count<Start>(e.take_commands(), 0), 1);
}

/// An attempt that makes no progress and dies again and again must wait between retries.
TEST(Interrupting, RetriesThatComeNoFurtherWait) {
  const ExperimentOptions options{
      .goal = minimize, .trials = 1, .max_failures = -1, .time_limit = std::chrono::seconds(100)};
  Experiment e(space(), options);
  Simulation s;
  s.weights = {1};
  s.train = [](std::vector<double>& w, const Point&, long) { return w[0]; };
  s.step_seconds = [](const Point&, long) { return 0.0; };
  s.fault = [](int, int, long step) { return step == 3 ? "out of luck" : ""; };
  Simulator sim(e, s);
  sim.run(100'000);
  ASSERT_TRUE(e.over());
  EXPECT_NEAR(e.board().seconds, 100, 1);
  EXPECT_LE(e.board().trials[0].attempt, 110) << "100 s in pauses of up to 1 s";
  int said = 0;
  for (const Event& event : e.board().events)
    said += event.kind == Event::Kind::repeated &&
            event.text.find("without getting further, each time with: out of luck") !=
                std::string::npos;
  EXPECT_EQ(said, 1);
}

}  // namespace
}  // namespace troupe::tune::random_test
