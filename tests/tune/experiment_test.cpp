// Tests Experiment with simulated trials: schedulers, retries, ends, and rebuilding from the log.
#include "troupe/tune/experiment.hpp"
#include "troupe/tune/simulate.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace troupe::tune {
namespace {

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"width", integers(1, 8)}}};
}

/// A loss that falls faster the nearer lr is to 0.1. weights[0] is the distance to the minimum.
Simulation curve() {
  return {.train =
              [](std::vector<double>& w, const Point& p, long) {
                w[0] *= 1 - 0.2 / (1 + std::abs(std::log10(p[0]) + 1));
                return w[0];
              },
          .weights = {10.0}};
}

int count(const Board& board, TrialState state) {
  return static_cast<int>(std::count_if(board.trials.begin(), board.trials.end(),
                                        [&](const TrialInfo& t) { return t.state == state; }));
}
int count(const Board& board, Event::Kind kind) {
  return static_cast<int>(std::count_if(board.events.begin(), board.events.end(),
                                        [&](const Event& e) { return e.kind == kind; }));
}

TEST(Experiment, RunsEveryTrialToItsEndAndFindsTheBest) {
  Experiment e(
      space(),
      {.goal = minimize, .trials = 8, .concurrent = 3, .max_steps = 10, .save_at_end = true});
  Simulator sim(e, curve());
  sim.run();
  EXPECT_EQ(count(e.board(), TrialState::completed), 8);
  ASSERT_GE(e.board().best, 0);
  for (const TrialInfo& t : e.board().trials) {
    EXPECT_EQ(t.step(), 10);
    EXPECT_EQ(t.history.size(), 10U);
    EXPECT_LE(e.board().trials[static_cast<std::size_t>(e.board().best)].score(), t.score());
    ASSERT_TRUE(t.checkpoint);  // save_at_end
    EXPECT_EQ(sim.stored().count(t.checkpoint->key), 1U);
  }
  EXPECT_NEAR(e.board().seconds, 30, 1);  // three waves of ten steps of a second
  EXPECT_EQ(e.board().why_over, "all trials are done");
}

TEST(Experiment, PbtCopiesAreProvenByEqualHashes) {
  Experiment e(space(), {.goal = minimize,
                         .trials = 8,
                         .scheduler = Pbt{.perturb_every = 5},
                         .max_steps = 40,
                         .seed = 3});
  Simulation instant = curve();
  instant.save_seconds = 0;
  Simulator sim(e, instant);
  sim.run();
  EXPECT_EQ(count(e.board(), TrialState::completed), 8);
  int copies = 0;
  for (const TrialInfo& t : e.board().trials) {
    for (const Copy& c : t.copies) {
      EXPECT_TRUE(c.proven);
      EXPECT_EQ(c.hash.size(), 16U);
      EXPECT_NE(c.donor, t.number);
      EXPECT_NE(c.params, c.donor_params);
      EXPECT_GT(c.donor_step, 0);
      ++copies;
    }
  }
  EXPECT_GE(copies, 4);
  EXPECT_EQ(count(e.board(), Event::Kind::copied), copies);
  EXPECT_LE(sim.stored().size(), 16U) << "old checkpoints are dropped";
}

TEST(Experiment, PbtBeatsIndependentTrials) {
  double sums[2] = {};
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    int k = 0;
    for (const AnyScheduler& s : {AnyScheduler(Fifo{}), AnyScheduler(Pbt{.perturb_every = 5})}) {
      Experiment e(space(),
                   {.goal = minimize, .trials = 6, .scheduler = s, .max_steps = 40, .seed = seed});
      Simulator(e, curve()).run();
      double sum = 0;
      for (const TrialInfo& t : e.board().trials) sum += std::log(t.score());
      sums[k++] += sum;
    }
  }
  EXPECT_LT(sums[1], sums[0]);
}

TEST(Experiment, APopulationLargerThanTheSlotsSharesThem) {
  for (const bool synchronous : {false, true}) {
    Experiment e(space(), {.goal = minimize,
                           .trials = 7,
                           .scheduler = Pbt{.perturb_every = 4, .synchronous = synchronous},
                           .concurrent = 2,
                           .max_steps = 16,
                           .seed = 1});
    Simulator sim(e, curve());
    sim.run(100000);
    EXPECT_TRUE(e.over());
    EXPECT_EQ(count(e.board(), TrialState::completed), 7) << synchronous;
    EXPECT_GT(count(e.board(), Event::Kind::copied), 0);
    for (const TrialInfo& t : e.board().trials) EXPECT_EQ(t.step(), 16);
  }
}

TEST(Experiment, SuccessiveHalvingSpendsLess) {
  ExperimentOptions options{.goal = minimize,
                            .trials = 40,
                            .scheduler = AsyncHyperBand{.max_steps = 64, .grace = 1, .eta = 4},
                            .concurrent = 4,
                            .seed = 5};
  Experiment e(space(), options);
  Simulator(e, curve()).run();
  EXPECT_LT(e.board().seconds, 0.5 * 40 * 64 / 4);
  EXPECT_GT(count(e.board(), TrialState::stopped), 20);
  EXPECT_GT(count(e.board(), TrialState::completed), 0);  // they reached the scheduler's max_steps
}

TEST(Experiment, AFailedAttemptIsRetriedFromItsLastCheckpoint) {
  Simulation s = curve();
  s.fault = [](int trial, int attempt, long step) {
    return trial == 1 && attempt == 1 && step == 8 ? "worker killed by signal 9" : "";
  };
  Experiment e(space(), {.goal = minimize,
                         .trials = 2,
                         .max_failures = 1,
                         .max_steps = 12,
                         .save_every = 3,
                         .starts = {{0.1, 1}, {1e-4, 1}}});
  Simulator sim(e, s);
  sim.run();
  const TrialInfo& t = e.board().trials[1];
  EXPECT_EQ(t.state, TrialState::completed);
  EXPECT_EQ(t.attempt, 2);
  EXPECT_EQ(t.failures, 1);
  std::vector<long> steps;
  for (const Sample& x : t.history) steps.push_back(x.step);
  EXPECT_EQ(steps, (std::vector<long>{1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12}));
}

TEST(Experiment, WithoutRetriesItFailsAndTheRestGoesOn) {
  Simulation s = curve();
  s.fault = [](int trial, int, long step) { return trial == 0 && step == 2 ? "boom" : ""; };
  Experiment e(space(), {.goal = minimize, .trials = 3, .max_steps = 5});
  Simulator(e, s).run();
  EXPECT_EQ(e.board().trials[0].state, TrialState::failed);
  EXPECT_EQ(e.board().trials[0].note, "boom");
  EXPECT_EQ(count(e.board(), TrialState::completed), 2);

  Experiment fast(space(), {.goal = minimize, .trials = 3, .fail_fast = true, .max_steps = 5});
  Simulator(fast, s).run();
  EXPECT_EQ(count(fast.board(), TrialState::completed), 0);
  EXPECT_EQ(fast.board().why_over, "trial 0 failed");
}

TEST(Experiment, TargetTimeLimitAndCancelEndIt) {
  Experiment target(space(), {.goal = minimize, .trials = 4, .target = 5.0});
  Simulator(target, curve()).run();
  EXPECT_NE(target.board().why_over.find("reached the target 5"), std::string::npos);

  Experiment limit(space(), {.goal = minimize, .trials = 4, .time_limit = std::chrono::seconds(7)});
  Simulator(limit, curve()).run();
  EXPECT_NEAR(limit.board().seconds, 7, 1);

  Experiment cancelled(space(), {.goal = minimize, .trials = 4});
  Simulator sim(cancelled, curve());
  sim.run(10);
  cancelled.cancel(sim.now());
  sim.run();
  EXPECT_EQ(cancelled.board().why_over, "cancelled");
  EXPECT_EQ(count(cancelled.board(), TrialState::stopped), 4);
}

TEST(Experiment, StartPointsComeFirstAndAGridEnds) {
  Experiment e({{{"x", uniform(0, 1)}}}, {.goal = minimize,
                                          .trials = 10,
                                          .searcher = GridSearch{3},
                                          .max_steps = 1,
                                          .starts = {{0.25}}});
  Simulator(e, {.train = [](std::vector<double>&, const Point& p, long) { return p[0]; }}).run();
  ASSERT_EQ(e.board().trials.size(), 4U);
  EXPECT_EQ(e.board().trials[0].params, (Point{0.25}));
  EXPECT_EQ(e.board().trials[1].params, (Point{0}));
}

TEST(Experiment, OtherWeightsThanWereSavedAreNoticed) {
  Experiment e(space(), {.goal = minimize, .trials = 1, .max_failures = 1, .save_every = 1});
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1, .can_save = true}, Time{});
  e.saved(0, 1, {"k", "aaaa", 8, 1}, Time{});
  e.ended(0, 1, "lost its worker", Time{});
  e.take_commands();
  e.restored(0, 2, "bbbb", Time{});
  const auto commands = e.take_commands();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Kill>(commands[0]));
  EXPECT_EQ(count(e.board(), Event::Kind::mismatch), 1);
}

TEST(Experiment, LateAndForeignMessagesAreIgnored) {
  Experiment e(space(), {.goal = minimize, .trials = 2});
  e.reported(0, 1, {.step = 1}, Time{});  // a report before begin()
  e.begin(Time{});
  const std::size_t lines = e.take_log().size();
  e.take_commands();
  e.reported(7, 1, {.step = 1}, Time{});
  e.reported(-1, 1, {.step = 1}, Time{});
  e.reported(0, 2, {.step = 1}, Time{});
  e.ended(0, 9, "", Time{});
  e.begin(Time{});
  EXPECT_TRUE(e.take_commands().empty());
  EXPECT_TRUE(e.take_log().empty());
  EXPECT_EQ(lines, 6U);  // header, begin, and created + started twice
}

static_assert(!std::is_default_constructible_v<Options<>>, "the goal has no default");

TEST(Options, OfOneSchedulerReadAsInTheFirstExample) {
  const Options<Pbt> options{.goal = maximize, .trials = 8, .scheduler = {.perturb_every = 5}};
  const ExperimentOptions any = options.any();
  EXPECT_EQ(any.trials, 8);
  EXPECT_EQ(std::get<Pbt>(any.scheduler).perturb_every, 5);
  EXPECT_NE(show(any.scheduler).find("perturb_every 5"), std::string::npos);
}

TEST(Experiment, BadOptionsAreNamed) {
  EXPECT_THROW(Experiment(space(), {.goal = minimize, .trials = 0}), InvalidArgument);
  EXPECT_THROW(Experiment(space(), {.goal = minimize, .max_failures = -2}), InvalidArgument);
  EXPECT_THROW(Experiment(space(), {.goal = minimize, .starts = {{7, 1}}}), InvalidArgument);
  try {
    const Experiment empty({}, {.goal = minimize});
    ADD_FAILURE() << "an empty space";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.message().find("the space has no parameter: add one"), std::string::npos)
        << error.message();
  }
}

std::vector<Start> starts_of(Experiment& e) {
  std::vector<Start> starts;
  for (const Command& c : e.take_commands())
    if (const auto* start = std::get_if<Start>(&c)) starts.push_back(*start);
  return starts;
}

TEST(Room, NoMoreAttemptsStartThanFitAndItsChangesAreRecorded) {
  const ExperimentOptions options{.goal = minimize, .trials = 6, .concurrent = 4};
  Experiment e(space(), options);
  e.room(2, Time{});
  e.begin(Time{});
  EXPECT_EQ(starts_of(e).size(), 2U);
  e.room(3, Time{});
  EXPECT_EQ(starts_of(e).size(), 1U);
  std::vector<std::string> log = e.take_log();
  e.room(3, Time{});
  EXPECT_TRUE(e.take_log().empty()) << "only a change is recorded";
  for (const int trial : {0, 1}) {
    e.reported(trial, 1, {.step = 1, .score = 1}, Time{});
    e.ended(trial, 1, "", Time{});
    EXPECT_EQ(starts_of(e).size(), 1U) << "three run: the room, not the slots";
  }
  e.room(-1, Time{});
  for (const int trial : {2, 3, 4}) e.ended(trial, 1, "boom", Time{});
  EXPECT_TRUE(starts_of(e).empty());
  EXPECT_FALSE(e.over());
  e.room(100, Time{});
  EXPECT_EQ(starts_of(e).size(), 1U);
  for (std::string& line : e.take_log()) log.push_back(std::move(line));
  const auto again = Experiment::restore(space(), options, log);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->board().room, 100);
}

TEST(Lost, ANodeIsNoFailureAndTheTrialGoesOnFromItsNewestCheckpoint) {
  const ExperimentOptions options{.goal = minimize, .trials = 1, .max_steps = 9, .save_every = 1};
  Experiment e(space(), options);
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1, .can_save = true}, Time{});
  e.saved(0, 1, {"k", "aa", 8, 1}, Time{});
  starts_of(e);
  e.lost(0, 2, "another attempt", Time{});
  EXPECT_TRUE(e.take_commands().empty());
  e.lost(0, 1, "node-2 is lost", Time{});
  auto starts = starts_of(e);
  ASSERT_EQ(starts.size(), 1U);
  ASSERT_TRUE(starts[0].from);
  EXPECT_EQ(starts[0].from->key, "k");
  EXPECT_EQ(e.board().trials[0].failures, 0);
  // The next attempts come no further: the third loss of them in a row is a failure.
  for (const int attempt : {2, 3}) {
    e.lost(0, attempt, "node-1 is lost", Time{});
    EXPECT_EQ(starts_of(e).size(), 1U) << attempt;
  }
  e.lost(0, 4, "node-1 is lost", Time{});
  EXPECT_EQ(e.board().trials[0].state, TrialState::failed);
  EXPECT_NE(e.board().trials[0].note.find("3 times in a row"), std::string::npos);
  const auto again = Experiment::restore(space(), options, e.take_log());
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(again->over());
}

TEST(Lost, AFurtherStepForgivesTheLossesBefore) {
  Experiment e(space(), {.goal = minimize, .trials = 1, .max_steps = 99});
  e.begin(Time{});
  for (int attempt = 1; attempt <= 12; ++attempt) {
    if (attempt % 3 == 0) e.reported(0, attempt, {.step = attempt, .score = 1}, Time{});
    e.lost(0, attempt, "node-1 is lost", Time{});
    ASSERT_EQ(e.board().trials[0].state, TrialState::running) << attempt;
  }
  EXPECT_EQ(e.board().trials[0].failures, 0);
}

/// A trial that was told to return is over, even if its node is lost before it has.
TEST(Lost, ATrialThatWasToldToEndIsOver) {
  Experiment e(space(), {.goal = minimize, .trials = 1, .max_steps = 1});
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1}, Time{});
  e.lost(0, 1, "node-1 is lost", Time{});
  EXPECT_TRUE(e.over());
  EXPECT_EQ(e.board().trials[0].state, TrialState::completed);
}

std::string written(const Board& b) {
  std::string text = std::to_string(b.best) + (b.over ? " over" : "") + "\n";
  for (const TrialInfo& t : b.trials) {
    text += std::to_string(t.number) + " " + std::string(name_of(t.state)) + " " +
            std::to_string(t.attempt) + " " + std::to_string(t.step()) + " " +
            std::to_string(t.score()) + " " + b.space.show(t.params) + " " +
            std::to_string(t.history.size()) + " " + std::to_string(t.copies.size()) + " " +
            (t.checkpoint ? t.checkpoint->key : "-") + "\n";
  }
  return text;
}

TEST(Restore, ReplayAtEveryCutGivesTheSameStateAndCanGoOn) {
  const ExperimentOptions options{.goal = minimize,
                                  .trials = 5,
                                  .scheduler = Pbt{.perturb_every = 3},
                                  .searcher = Tpe{.startup_trials = 2},
                                  .concurrent = 3,
                                  .max_failures = -1,
                                  .max_steps = 9,
                                  .seed = 11};
  Experiment whole(space(), options);
  Simulator all(whole, curve());
  all.run();
  const std::size_t total = all.log().size();
  for (std::size_t events = 0; events < 60; events += 7) {
    Experiment original(space(), options);
    Simulator sim(original, curve());
    sim.run(events);
    auto copy = Experiment::restore(space(), options, sim.log());
    ASSERT_TRUE(copy.ok()) << copy.error().message();
    EXPECT_EQ(written(copy->board()), written(original.board()));
    Simulator rest(*copy, curve());
    rest.load(sim.stored());
    rest.run(100000);
    EXPECT_TRUE(copy->over());
    EXPECT_EQ(count(copy->board(), TrialState::completed), 5);
    // the continued log is itself a log
    std::vector<std::string> lines = sim.log();
    lines.insert(lines.end(), rest.log().begin(), rest.log().end());
    auto again = Experiment::restore(space(), options, lines);
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(written(again->board()), written(copy->board()));
  }
  EXPECT_GT(total, 80U);
}

TEST(Restore, ATornLastLineIsIgnoredADamagedOneIsNot) {
  const ExperimentOptions options{.goal = minimize, .trials = 2, .max_steps = 3};
  Experiment e(space(), options);
  Simulator sim(e, curve());
  sim.run(4);
  auto lines = sim.log();
  lines.push_back(R"({"t":9.000000,"event":"rep)");
  EXPECT_TRUE(Experiment::restore(space(), options, lines).ok());

  auto damaged = sim.log();
  for (std::string& line : damaged) {
    const auto at = line.find("\"event\":\"started\"");
    if (at != std::string::npos) line.replace(at, 17, "\"event\":\"stopped\"");
  }
  const auto result = Experiment::restore(space(), options, damaged);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("line 4: replay gives"), std::string::npos)
      << result.error().message();

  auto other = options;
  other.seed = 9;
  const auto foreign = Experiment::restore(space(), other, sim.log());
  ASSERT_FALSE(foreign.ok());
  EXPECT_NE(foreign.error().message().find("describes another experiment"), std::string::npos);
}

TEST(Events, EveryKindComesBackFromItsLine) {
  for (int k = 0; k <= static_cast<int>(Event::Kind::repeated); ++k) {
    Event e;
    e.kind = static_cast<Event::Kind>(k);
    e.micros = 123456789;
    e.trial = 3;
    e.attempt = 2;
    e.step = 7;
    e.score = 0.1 + 0.2;
    e.donor = 1;
    e.can_save = true;
    e.ok = false;
    e.checkpoint = {"key \"x\"", "9f3a", 10, 5};
    e.params = {0.0031, 2};
    e.donor_params = {0.0037, 2};
    e.metrics = {{"tok/s", 1e6}, {"nan", std::nan("")}};
    e.text = "line\none <b> \xff \xe2\x82\xac";
    const std::string line = to_json(e, space());
    const auto back = event_from_json(line, space());
    ASSERT_TRUE(back.ok()) << line << back.error().message();
    EXPECT_EQ(to_json(*back, space()),
              line.find('?') == std::string::npos ? line : to_json(*back, space()));
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(event_from_json("{}").ok());
  EXPECT_FALSE(event_from_json("[1,2").ok());
  EXPECT_FALSE(event_from_json(R"({"t":1,"event":"report"})").ok());
}

/// Numbers that their fields cannot hold are refused before they are used.
TEST(Events, NumbersBeyondTheirFieldsAreRefused) {
  const auto tick = [](const std::string& t) {
    return event_from_json(R"({"t":)" + t + R"(,"event":"tick"})");
  };
  for (const char* t : {"1e300", "-1e300", "-1", "-1e-300", "1e19", "9.3e12", "3.2e9", "null",
                        "\"inf\"", "true", "[]", "{}", "1e999"})
    EXPECT_FALSE(tick(t).ok()) << t;
  EXPECT_EQ(tick("3e9")->micros, 3'000'000'000'000'000);
  EXPECT_EQ(tick("0")->micros, 0);
  const auto best = [](const std::string& trial, const std::string& step) {
    return event_from_json(R"({"t":0,"event":"best","trial":)" + trial + R"(,"step":)" + step +
                           R"(,"score":1})");
  };
  for (const char* no : {"2147483648", "-2147483649", "1.5", "1e300", "null", "\"1\"", "true",
                         "18446744073709551616"})
    EXPECT_FALSE(best(no, "1").ok()) << no;
  for (const char* no : {"9223372036854775808", "-9223372036854775809", "1.0", "1e3"})
    EXPECT_FALSE(best("1", no).ok()) << no;
  EXPECT_EQ(best("-2147483648", "9223372036854775807")->step, std::numeric_limits<long>::max());
  const std::string saved = R"({"t":0,"event":"save","trial":0,"attempt":1,"checkpoint":)";
  EXPECT_FALSE(event_from_json(saved + R"({"key":"k","hash":"h","bytes":-1,"step":1}})").ok());
  EXPECT_FALSE(event_from_json(saved + R"({"key":"k","hash":"h","bytes":1e30,"step":1}})").ok());
  EXPECT_TRUE(
      event_from_json(saved + R"({"key":"k","hash":"h","bytes":18446744073709551615,"step":1}})")
          .ok());
}

/// The clock of a host may jump to the last moment: the log must still be readable.
TEST(Events, TheEndOfTimeIsATimeOfTheLog) {
  const ExperimentOptions options{.goal = minimize, .trials = 1};
  Experiment e(space(), options);
  e.begin(Time{});
  e.cancel(Time::max());
  const auto again = Experiment::restore(space(), options, e.take_log());
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->board().seconds, e.board().seconds);
}

TEST(Events, PlainWords) {
  Event e;
  e.kind = Event::Kind::copied;
  e.trial = 3;
  e.donor = 1;
  e.checkpoint = {"k", "9f3a21c4d5e6", 0, 20};
  e.donor_params = {0.0031, 4};
  e.params = {0.0037, 4};
  EXPECT_EQ(plain_words(e, space()),
            "trial 3 copied trial 1's weights of step 20 (hash 9f3a21c4…), lr 0.0031 → 0.0037");
}

TEST(Experiment, SurvivesFaultsAtAnyStepWithoutLosingACheckpointThatIsStillNeeded) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Simulation s = curve();
    s.save_seconds = seed % 3 == 0 ? 2.5 : 0.01;  // saves are in flight while other trials decide
    s.step_seconds = [seed](const Point& p, long step) {
      return 0.5 + 0.1 * static_cast<double>((static_cast<std::uint64_t>(p[1]) +
                                              static_cast<std::uint64_t>(step) * seed) %
                                             7);
    };
    s.fault = [seed](int trial, int attempt, long step) -> std::string {
      std::uint64_t mix = seed * 1000003 +
                          static_cast<std::uint64_t>(trial * 8191 + attempt * 131) +
                          static_cast<std::uint64_t>(step);
      return splitmix64(mix) % 20 == 0 ? "killed by a test" : "";
    };
    ExperimentOptions options{.goal = minimize,
                              .trials = 6,
                              .scheduler = Pbt{.perturb_every = 3,
                                               .quantile = seed % 5 == 0 ? 0.5 : 0.25,
                                               .save_all = seed % 4 != 0,
                                               .synchronous = seed % 2 == 0},
                              .concurrent = static_cast<int>(seed % 4) * 2,
                              .max_failures = -1,
                              .max_steps = 15,
                              .seed = seed};
    Experiment e(space(), options);
    Simulator sim(e, s);
    ASSERT_NO_THROW(sim.run(200000)) << seed;
    EXPECT_TRUE(e.over()) << seed;
    EXPECT_EQ(count(e.board(), TrialState::completed), 6) << seed;
    for (const std::string& line : sim.log()) {
      EXPECT_EQ(line.find("is lost"), std::string::npos) << seed << line;
      EXPECT_EQ(line.find("mismatch"), std::string::npos) << seed << line;
    }
    ASSERT_EQ(sim.stored().size(), 1U) << "dropped what nobody needs, seed " << seed;
    ASSERT_TRUE(e.board().best_report->checkpoint);
    EXPECT_EQ(sim.stored().begin()->first, e.board().best_report->checkpoint->key) << seed;
    EXPECT_EQ(sim.stored().begin()->second[0], e.board().best_score()) << seed;
    const auto again = Experiment::restore(space(), options, sim.log());
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(written(again->board()), written(e.board()));
  }
}

TEST(Experiment, WithoutALogNoLineIsKept) {
  for (const bool wanted : {true, false}) {
    Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 3});
    if (!wanted) e.without_log();
    Simulator sim(e, curve());
    sim.run();
    EXPECT_TRUE(e.over());
    EXPECT_EQ(sim.log().empty(), !wanted);
    EXPECT_GT(e.board().events_seen, 0U) << "what people read is there";
  }
}

TEST(Experiment, TenThousandTrialsAreQuick) {
  Experiment e(space(), {.goal = minimize,
                         .trials = 10000,
                         .scheduler = SuccessiveHalving{},
                         .concurrent = 64,
                         .max_steps = 2,
                         .save_at_end = false});
  Simulator(e, curve()).run();
  EXPECT_EQ(e.board().trials.size(), 10000U);
}

}  // namespace
}  // namespace troupe::tune
