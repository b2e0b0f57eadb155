// Tests how an experiment continues from its log with other options, and what is refused.
#include "troupe/tune/simulate.hpp"

#include "tests/leeway.hpp"

#include <gtest/gtest.h>
#include <time.h>
#include <cmath>

namespace troupe::tune::restore_test {
namespace {

using namespace std::chrono_literals;

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"mode", choices({"a", "b"})}}};
}

Simulation slope() {
  return {.train = [](std::vector<double>& w, const Point& p, long) { return w[0] += p[0]; },
          .weights = {0}};
}

std::vector<std::string> log_of(const ExperimentOptions& options) {
  Experiment e(space(), options);
  Simulator sim(e, slope());
  sim.run(100'000);
  EXPECT_TRUE(e.over());
  return sim.log();
}

std::string why_refused(const SearchSpace& other, const ExperimentOptions& options,
                        const std::vector<std::string>& log) {
  const auto e = Experiment::restore(other, options, log);
  return e.ok() ? "" : e.error().message();
}

TEST(Continuing, MoreTrialsReopenAnExperimentThatIsOver) {
  ExperimentOptions options{.goal = minimize, .trials = 4, .searcher = Tpe{}, .max_steps = 2};
  std::vector<std::string> log = log_of(options);
  options.trials = 7;
  auto e = Experiment::restore(space(), options, log);
  ASSERT_TRUE(e.ok()) << e.error().message();
  EXPECT_TRUE(e->over());
  Simulator sim(*e, slope());
  sim.run(100'000);
  EXPECT_TRUE(e->over());
  EXPECT_EQ(e->board().trials.size(), 7U);
  EXPECT_EQ(sim.starts().size(), 3U) << "no finished trial runs again";
  log.insert(log.end(), sim.log().begin(), sim.log().end());
  const auto again = Experiment::restore(space(), options, log);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->fingerprint(), e->fingerprint());
}

TEST(Continuing, ACompleteExperimentStartsNothing) {
  const ExperimentOptions options{.goal = minimize, .trials = 3, .max_steps = 2};
  const std::vector<std::string> log = log_of(options);
  auto e = Experiment::restore(space(), options, log);
  ASSERT_TRUE(e.ok()) << e.error().message();
  e->interrupted(Time{});
  EXPECT_TRUE(e->over());
  EXPECT_TRUE(e->take_commands().empty());
  EXPECT_TRUE(e->take_log().empty());
}

TEST(Continuing, WhatMayNotChangeIsRefusedWithBothValues) {
  const ExperimentOptions options{.goal = minimize, .trials = 4, .max_steps = 2, .seed = 3};
  const std::vector<std::string> log = log_of(options);
  ExperimentOptions other = options;
  other.seed = 4;
  EXPECT_EQ(why_refused(space(), other, log),
            "the experiment's log, line 1: it describes another experiment: its seed is 3, and "
            "that of this call is 4: give the former, or take another folder");
  other = options;
  other.goal = maximize;
  EXPECT_NE(why_refused(space(), other, log).find("its goal is minimize, and that of this call is"),
            std::string::npos);
  other = options;
  other.scheduler = Patience{};
  EXPECT_NE(why_refused(space(), other, log).find("its scheduler is fifo"), std::string::npos);
  SearchSpace typed = space();
  typed.parameters[0].domain = integers(1, 4);
  EXPECT_NE(why_refused(typed, options, log).find("its parameter lr is log_uniform"),
            std::string::npos);
  SearchSpace less{{space().parameters[0]}};
  EXPECT_NE(why_refused(less, options, log).find("mode, which that of this call lacks"),
            std::string::npos);
  SearchSpace more = space();
  more.parameters.push_back({"z", uniform(0, 1)});
  EXPECT_NE(why_refused(more, options, log).find("has 2 parameters, and that of this call 3"),
            std::string::npos);
  const std::vector<std::string> old = {R"({"event":"experiment","version":2,"name":"x"})"};
  EXPECT_EQ(why_refused(space(), options, old),
            "the experiment's log, line 1: it has version 2 of the log, and this troupe continues "
            "version 3 alone: take another folder");
}

TEST(Continuing, APopulationKeepsItsSize) {
  ExperimentOptions options{
      .goal = minimize, .trials = 4, .scheduler = Pbt{.perturb_every = 1}, .max_steps = 2};
  const std::vector<std::string> log = log_of(options);
  options.trials = 6;
  EXPECT_NE(why_refused(space(), options, log).find("a population of 4 trials"), std::string::npos);
}

TEST(Continuing, ADomainMayChangeAndOptionsAreMatchedByText) {
  ExperimentOptions options{.goal = minimize, .trials = 12, .searcher = Tpe{.startup_trials = 2}};
  options.max_steps = 2;
  const std::vector<std::string> log = log_of(options);
  SearchSpace wider{{{"mode", choices({"c", "b"})}, {"lr", log_uniform(1e-3, 10)}}};
  options.trials = 20;
  auto e = Experiment::restore(wider, options, log);
  ASSERT_TRUE(e.ok()) << e.error().message();
  const auto old = Experiment::restore(space(), options, log);
  ASSERT_TRUE(old.ok());
  for (std::size_t i = 0; i < 12; ++i) {
    const Point& was = old->board().trials[i].params;
    const Point& now = e->board().trials[i].params;
    EXPECT_EQ(now[1], was[0]);
    EXPECT_EQ(now[0], was[1] == 1 ? 1 : -1) << "option a is gone";
  }
  Simulator sim(*e, slope());
  sim.run(100'000);
  ASSERT_TRUE(e->over());
  EXPECT_EQ(e->board().trials.size(), 20U);
  for (std::size_t i = 12; i < 20; ++i) EXPECT_NO_THROW(wider.check(e->board().trials[i].params));
}

/// Runs trials of one report until the study is over, and appends its records to `log`.
void run_and_record(Experiment& e, std::vector<std::string>& log) {
  Time now{};
  while (!e.over()) {
    now += std::chrono::milliseconds(1);
    for (const Command& command : e.take_commands()) {
      if (const auto* start = std::get_if<Start>(&command))
        e.reported(start->trial, start->attempt, {1, start->params[0], {}, false}, now);
      else if (const auto* reply = std::get_if<Reply>(&command))
        e.ended(reply->trial, reply->attempt, "", now);
    }
  }
  const StudyBatch batch = e.take_batch();
  if (batch.meta && log.empty()) log.push_back(*batch.meta);
  if (batch.meta) log[0] = *batch.meta;
  log.insert(log.end(), batch.events.begin(), batch.events.end());
}

TEST(Continuing, AStudyWhoseSpaceHasChangedGoesOnAgainAndAgain) {
  ExperimentOptions options{.goal = minimize, .trials = 4, .concurrent = 1, .max_steps = 9};
  std::vector<std::string> log;
  Experiment first(space(), options);
  first.with_store("build 1");
  first.begin({});
  run_and_record(first, log);
  const SearchSpace wider{{{"mode", choices({"c", "b"})}, {"lr", log_uniform(1e-3, 10)}}};
  for (int life = 2; life <= 4; ++life) {
    options.trials += 4;
    auto next = Experiment::restore(wider, options, log);
    ASSERT_TRUE(next.ok()) << life << ": " << next.error().message();
    EXPECT_EQ(next->with_store("build " + std::to_string(life)),
              "build " + std::to_string(life - 1));
    next->interrupted({});
    run_and_record(*next, log);
    EXPECT_EQ(next->board().trials.size(), static_cast<std::size_t>(options.trials));
  }
}

TEST(Continuing, AnotherSearcherIsToldEverythingAndHasItsWholeGrid) {
  ExperimentOptions options{.goal = minimize, .trials = 5, .max_steps = 1};
  const std::vector<std::string> log = log_of(options);
  options.searcher = GridSearch{2};
  options.trials = 100;
  auto e = Experiment::restore(space(), options, log);
  ASSERT_TRUE(e.ok()) << e.error().message();
  Simulator sim(*e, slope());
  sim.run(100'000);
  EXPECT_EQ(e->board().trials.size(), 5U + 4U);
}

TEST(Continuing, AStartUsesNoCellOfAGridAlsoAfterARestart) {
  const ExperimentOptions options{.goal = minimize,
                                  .trials = 100,
                                  .searcher = GridSearch{2},
                                  .concurrent = 1,
                                  .max_steps = 1,
                                  .starts = {{0.5, 0}, {0.25, 1}}};
  Experiment first(space(), options);
  Simulator sim(first, slope());
  sim.run(8);
  auto e = Experiment::restore(space(), options, sim.log());
  ASSERT_TRUE(e.ok()) << e.error().message();
  EXPECT_EQ(e->next_point(), first.next_point());
  Simulator rest(*e, slope());
  rest.load(sim.stored());
  rest.run(100'000);
  EXPECT_EQ(e->board().trials.size(), 2U + 4U);
}

TEST(Continuing, OfThreeThousandTrialsOfTpeTakesNoTimeForSuggestions) {
  const ExperimentOptions options{
      .goal = minimize, .trials = 3000, .searcher = RandomSearch{}, .max_steps = 1};
  std::vector<std::string> log = log_of(options);
  ExperimentOptions tpe = options;
  tpe.searcher = Tpe{};
  const auto seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const double began = seconds();
  const auto e = Experiment::restore(space(), tpe, log);
  const double took = seconds() - began;
  ASSERT_TRUE(e.ok()) << e.error().message();
  EXPECT_EQ(e->board().trials.size(), 3000U);
  EXPECT_LT(took, 0.5 * kLeeway);
  RecordProperty("seconds", std::to_string(took));
}

std::string refused(const Result<void>& result) {
  return result.ok() ? "" : result.error().message();
}

TEST(Users, AddPointsStopTrialsAndChangeOptions) {
  const ExperimentOptions options{
      .goal = minimize, .trials = 2, .searcher = GridSearch{2}, .concurrent = 1, .max_steps = 5};
  Experiment e(space(), options);
  EXPECT_NE(refused(e.add({0.5, 1}, Time{})).find("does not run"), std::string::npos);
  e.begin(Time{});
  EXPECT_NE(refused(e.add({7, 1}, Time{})).find("lr"), std::string::npos);
  EXPECT_EQ(refused(e.add({0.5, 1}, Time{})), "");
  EXPECT_EQ(e.next_point(), (Point{0.5, 1}));
  EXPECT_EQ(refused(e.stop(0, Time{})), "");
  EXPECT_NE(refused(e.stop(9, Time{})).find("trial 9 does not exist"), std::string::npos);
  e.reported(0, 1, {.step = 1, .score = 1}, Time{});
  e.ended(0, 1, "", Time{});
  EXPECT_EQ(e.board().trials[0].state, TrialState::stopped);
  EXPECT_NE(refused(e.stop(0, Time{})).find("is over"), std::string::npos);
  ASSERT_EQ(e.board().trials.size(), 2U);
  EXPECT_EQ(e.board().trials[1].params, (Point{0.5, 1}));
  EXPECT_EQ(refused(e.add({0.25, 0}, Time{})), "");
  EXPECT_EQ(e.board().planned, 3) << "no further trial would begin, so there is one more";
  EXPECT_NE(refused(e.change({{"seed", 3}}, Time{})).find("seed is no option that may change"),
            std::string::npos);
  EXPECT_NE(refused(e.change({{"trials", 0}}, Time{})), "");
  EXPECT_EQ(refused(e.change({{"max_steps", 1}, {"trials", 100}}, Time{})), "");
  e.reported(1, 1, {.step = 1, .score = 1}, Time{});
  e.ended(1, 1, "", Time{});
  EXPECT_EQ(e.board().trials[1].state, TrialState::completed);
  EXPECT_EQ(e.board().trials[2].params, (Point{0.25, 0}));
  e.reported(2, 1, {.step = 1, .score = 1}, Time{});
  e.ended(2, 1, "", Time{});
  const auto log = e.take_log();
  auto again = Experiment::restore(space(), options, log);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->fingerprint(), e.fingerprint());
  EXPECT_EQ(again->next_point(), e.next_point());
  again->interrupted(Time{});
  EXPECT_EQ(again->board().planned, 100) << "the program did not change its own value";
}

TEST(Continuing, TheWallClockIsRecorded) {
  const ExperimentOptions options{.goal = minimize, .trials = 1, .max_steps = 1};
  Experiment e(space(), options);
  e.wall_clock(Time{} + std::chrono::seconds(5), 1'700'000'000'000'000);
  e.begin(Time{} + std::chrono::seconds(7));
  e.reported(0, 1, {.step = 1, .score = 1}, Time{} + std::chrono::seconds(9));
  const auto log = e.take_log();
  EXPECT_NE(log[1].find(R"("t":0.0,"time":1700000002.0,)"), std::string::npos) << log[1];
  const auto event = event_from_json(log.back(), space());
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(event->wall, 1'700'000'004'000'000);
  EXPECT_TRUE(Experiment::restore(space(), options, log).ok());
}

/// A study in which trial 0 saved at steps 1 and 2, both with a file.
Experiment with_two_files(const ExperimentOptions& options) {
  Experiment e(space(), options);
  e.with_store();
  e.begin(Time{});
  for (const long step : {1, 2}) {
    const std::string key = std::to_string(step);
    e.reported(0, 1, {.step = step, .score = 3.0 - double(step), .can_save = true}, Time{});
    e.saved(0, 1, {key, "hash" + key, 8, step}, Time{});
    e.stored(key, Time{});
  }
  e.reported(0, 1, {.step = 3, .score = 5, .can_save = true}, Time{});
  return e;
}

std::vector<std::string> lines_of(const StudyBatch& batch) {
  std::vector<std::string> lines = {batch.meta.value_or("")};
  lines.insert(lines.end(), batch.events.begin(), batch.events.end());
  return lines;
}

std::optional<Start> start_in(const std::vector<Command>& commands) {
  for (const Command& c : commands)
    if (const auto* start = std::get_if<Start>(&c)) return *start;
  return std::nullopt;
}

TEST(StudyFiles, WithoutTheNewestTheTrialGoesOnFromTheOneBefore) {
  const ExperimentOptions options{.goal = minimize, .trials = 1, .max_steps = 9, .save_every = 1};
  Experiment first = with_two_files(options);
  const StudyBatch batch = first.take_batch();
  EXPECT_EQ(batch.first_event, 1U);
  EXPECT_EQ(batch.reports.size(), 3U);
  ASSERT_FALSE(batch.trials.empty());
  for (int gone = 0; gone <= 2; ++gone) {
    auto e = Experiment::restore(space(), options, lines_of(batch));
    ASSERT_TRUE(e.ok()) << e.error().message();
    if (gone >= 1) e->missing("2", "it is too short", Time{});
    if (gone == 2) e->missing("1", "no such file", Time{});
    e->interrupted(Time{});
    const auto start = start_in(e->take_commands());
    ASSERT_TRUE(start);
    EXPECT_EQ(start->from ? start->from->key : "", gone == 0 ? "2" : gone == 1 ? "1" : "");
    EXPECT_EQ(e->board().best_report->checkpoint.has_value(), gone == 0);
    const StudyBatch next = e->take_batch();
    EXPECT_EQ(next.first_event, batch.events.size() + 1);
    std::vector<std::string> lines = lines_of(batch);
    lines.insert(lines.end(), next.events.begin(), next.events.end());
    const auto again = Experiment::restore(space(), options, lines);
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(again->fingerprint(), e->fingerprint());
  }
}

/// A trial has copied a donor whose model never got a file. After a restart it has its own weights
/// and its own parameters, and no copy.
TEST(StudyFiles, ACopyWhoseDonorIsLostBeforeItsFileIsRevoked) {
  const ExperimentOptions options{.goal = maximize,
                                  .trials = 2,
                                  .scheduler = Pbt{.perturb_every = 1},
                                  .max_failures = 5,
                                  .max_steps = 9};
  Experiment first(space(), options);
  first.with_store();
  first.begin(Time{});
  const Point own = first.board().trials[1].params;
  first.reported(0, 1, {.step = 2, .score = 10, .can_save = true}, Time{});
  first.reported(1, 1, {.step = 2, .score = 1, .can_save = true}, Time{});
  first.saved(0, 1, {"donor", "0d", 8, 2}, Time{});
  first.take_commands();
  first.ended(1, 1, "", Time{});
  const auto start_of_copier = [](const std::vector<Command>& commands) -> std::optional<Start> {
    for (const Command& c : commands)
      if (const auto* start = std::get_if<Start>(&c); start != nullptr && start->trial == 1)
        return *start;
    return std::nullopt;
  };
  const auto copier = start_of_copier(first.take_commands());
  ASSERT_TRUE(copier && copier->from);
  EXPECT_EQ(copier->from->key, "donor");
  EXPECT_NE(copier->params, own);
  auto e = Experiment::restore(space(), options, lines_of(first.take_batch()));
  ASSERT_TRUE(e.ok()) << e.error().message();
  e->interrupted(Time{});
  const auto again = start_of_copier(e->take_commands());
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->from);
  EXPECT_EQ(again->params, own);
  EXPECT_TRUE(e->board().trials[1].copies.empty());
}

TEST(StudyFiles, AReportWaitsForTheDueCheckpointBeforeTheLast) {
  const ExperimentOptions options{.goal = maximize, .trials = 1, .max_steps = 9, .save_every = 1};
  Experiment e(space(), options);
  e.with_store();
  e.begin(Time{});
  const auto answered = [&] {
    bool reply = false;
    for (const Command& c : e.take_commands()) reply |= std::holds_alternative<Reply>(c);
    return reply;
  };
  for (const long step : {1, 2}) {
    e.reported(0, 1, {.step = step, .score = 1, .can_save = true}, Time{});
    EXPECT_EQ(answered(), step == 1) << step;
    e.saved(0, 1, {std::to_string(step), "h", 8, step}, Time{});
  }
  EXPECT_FALSE(answered());
  e.stored("1", Time{});
  EXPECT_TRUE(answered());
}

TEST(StudyFiles, AnEndWaitsForTheModelOfTheBestReport) {
  const ExperimentOptions options{.goal = maximize, .trials = 1, .max_steps = 9};
  Experiment e(space(), options);
  e.with_store();
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1, .can_save = true}, Time{});
  e.saved(0, 1, {"k", "h", 8, 1}, Time{});
  e.ended(0, 1, "", Time{});
  EXPECT_FALSE(e.over());
  e.ended(0, 1, "killed", Time{});  // once is enough
  e.take_batch();
  e.stored("k", Time{});
  EXPECT_TRUE(e.over());
  EXPECT_EQ(e.board().trials[0].state, TrialState::completed);
  e.stored("unknown", Time{});
}

TEST(StudyFiles, ALostNodeDoesNotEndATrialBeforeTheModelOfTheBestReportIsStored) {
  const ExperimentOptions options{.goal = maximize, .trials = 1, .max_steps = 1};
  Experiment e(space(), options);
  e.with_store();
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1, .can_save = true}, Time{});
  e.saved(0, 1, {"k", "h", 8, 1}, Time{});
  e.lost(0, 1, "its node is lost", Time{});
  EXPECT_NE(e.board().trials[0].state, TrialState::completed);
  e.take_batch();
  e.stored("k", Time{});
  EXPECT_TRUE(e.over());
  EXPECT_EQ(e.board().trials[0].state, TrialState::completed);
}

TEST(Restore, WhatComesBeforeTheInterruptionKeepsTheStudysTime) {
  const ExperimentOptions options{.goal = maximize, .trials = 1, .time_limit = 60s};
  Experiment first(space(), options);
  first.begin(Time{} + 1h);
  const std::vector<std::string> log = first.take_log();
  auto again = Experiment::restore(space(), options, log);
  ASSERT_TRUE(again.ok()) << again.error().message();
  again->room(1, Time{} + 5h);  // since the host was started
  again->interrupted(Time{} + 5h);
  again->tick(Time{} + 5h + 59s);
  EXPECT_FALSE(again->over());
  again->tick(Time{} + 5h + 60s);
  again->ended(0, 2, "", Time{} + 5h + 60s);
  EXPECT_TRUE(again->over());
}

}  // namespace
}  // namespace troupe::tune::restore_test
