// Tests how trials and experiments end: the best state and its model are kept, and everything
// ends.
#include "troupe/tune/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace troupe::tune::endings_test {
namespace {

using namespace std::chrono_literals;

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}}};
}

/// The weight is the score, so a loaded model shows to which report it belongs.
Simulation walk(std::function<double(long step)> score) {
  return {.train = [score](std::vector<double>& w, const Point&,
                           long step) { return w[0] = score(step); },
          .weights = {0}};
}

void expect_model_of_best(const Experiment& e, const Simulator& sim, const std::string& what) {
  const auto& best = e.board().best_report;
  ASSERT_TRUE(best) << what;
  ASSERT_TRUE(best->checkpoint) << what;
  const auto found = sim.stored().find(best->checkpoint->key);
  ASSERT_NE(found, sim.stored().end()) << what;
  EXPECT_EQ(found->second[0], best->score) << what;
  EXPECT_EQ(sim.stored().size(), 1U) << what << ": nothing else is kept";
  double top = best->score;
  for (const TrialInfo& t : e.board().trials) {
    for (const Sample& s : t.history)
      if (e.board().goal.better(s.score, top)) top = s.score;
  }
  EXPECT_EQ(best->score, top) << what;
}

TEST(Best, ItsModelIsThereForEveryWayToEnd) {
  const auto hill = [](long step) { return 100.0 - std::abs(7.0 - static_cast<double>(step)); };
  struct Case {
    std::string what;
    ExperimentOptions options;
    std::function<std::string(int, int, long)> fault;
    std::size_t cancel_after = 0;
  };
  const ExperimentOptions base{.goal = maximize, .trials = 3};
  std::vector<Case> cases;
  const auto add = [&](const std::string& what, auto change) -> Case& {
    cases.push_back({what, base, {}, 0});
    change(cases.back().options);
    return cases.back();
  };
  add("max_steps", [](auto& o) { o.max_steps = 12; });
  add("target", [](auto& o) { o.target = 99.0; });
  add("time limit", [](auto& o) { o.time_limit = 10s; });
  add("cancel", [](auto&) {}).cancel_after = 40;
  add("fail_fast", [](auto& o) {
    o.fail_fast = true;
    o.max_steps = 20;
  }).fault = [](int trial, int, long step) { return trial == 1 && step == 9 ? "boom" : ""; };
  add("all fail", [](auto&) {}).fault = [](int, int, long step) { return step == 9 ? "boom" : ""; };
  add("its function returns", [](auto&) {}).fault = nullptr;
  add("stopped by ASHA", [](auto& o) {
    o.scheduler = AsyncHyperBand{.max_steps = 9, .grace = 1, .eta = 3};
    o.trials = 12;
  });
  add("patience", [](auto& o) { o.scheduler = Patience{.patience = 3}; });
  add("PBT, then the time limit", [](auto& o) {
    o.scheduler = Pbt{.perturb_every = 4};
    o.time_limit = 13s;
    o.save_every = 5;
  });
  for (const Case& c : cases) {
    Experiment e(space(), c.options);
    Simulation s = walk(hill);
    s.fault = c.fault;
    if (c.what == "its function returns") {
      // This test calls the experiment directly, since the simulator's trials return only when
      // they are told to.
      Experiment h(space(), {.goal = maximize, .trials = 1});
      h.begin(Time{});
      h.take_commands();
      h.reported(0, 1, {.step = 1, .score = 5, .can_save = true}, Time{});
      const auto commands = h.take_commands();
      ASSERT_EQ(commands.size(), 2U);
      EXPECT_TRUE(std::holds_alternative<Save>(commands[0]));
      h.saved(0, 1, {"k", "aa", 1, 1}, Time{});
      h.ended(0, 1, "", Time{});
      ASSERT_TRUE(h.over());
      EXPECT_EQ(h.board().best_report->checkpoint->key, "k");
      for (const Command& command : h.take_commands())
        EXPECT_FALSE(std::holds_alternative<Drop>(command));
      continue;
    }
    Simulator sim(e, s);
    if (c.cancel_after > 0) {
      sim.run(c.cancel_after);
      e.cancel(sim.now());
    }
    sim.run(100000);
    ASSERT_TRUE(e.over()) << c.what;
    expect_model_of_best(e, sim, c.what);
  }
}

TEST(Best, AReportWithoutAModelCountsOnlyWhileNoneHasOne) {
  Experiment e(space(), {.goal = maximize, .trials = 1});
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 9}, Time{});
  EXPECT_EQ(e.board().best_score(), 9);
  EXPECT_FALSE(e.board().best_report->checkpoint);
  e.reported(0, 1, {.step = 2, .score = 5, .can_save = true}, Time{});
  e.saved(0, 1, {"k", "aa", 1, 2}, Time{});
  EXPECT_EQ(e.board().best_score(), 5);
  EXPECT_EQ(e.board().best_step(), 2);
  e.reported(0, 1, {.step = 3, .score = 8}, Time{});
  EXPECT_EQ(e.board().best_score(), 5);
  e.ended(0, 1, "", Time{});
  EXPECT_EQ(e.board().best_report->checkpoint->key, "k");
}

TEST(Best, ASaveThatNeverArrivedIsNoModel) {
  Experiment e(space(), {.goal = maximize, .trials = 1});
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1, .can_save = true}, Time{});
  e.saved(0, 1, {"k", "aa", 1, 1}, Time{});
  e.reported(0, 1, {.step = 2, .score = 2, .can_save = true}, Time{});
  e.ended(0, 1, "killed by signal 9", Time{});
  ASSERT_TRUE(e.over());
  EXPECT_EQ(e.board().best_score(), 1);
  EXPECT_EQ(e.board().best_report->checkpoint->key, "k");
}

TEST(Stopping, ATrialThatIsToldToStopAndReportsOnChangesNothing) {
  Experiment e(space(), {.goal = maximize, .trials = 1, .max_steps = 3});
  e.begin(Time{});
  for (long step = 1; step <= 3; ++step) {
    e.reported(0, 1, {.step = step, .score = 94, .can_save = true}, Time{});
    e.saved(0, 1, {"k" + std::to_string(step), "aa", 1, step}, Time{});
  }
  e.take_commands();
  e.take_log();
  e.reported(0, 1, {.step = 4, .score = 70, .can_save = true}, Time{});
  const auto commands = e.take_commands();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_FALSE(std::get<Reply>(commands[0]).go_on);
  EXPECT_TRUE(e.take_log().empty());
  e.ended(0, 1, "", Time{});
  EXPECT_EQ(e.board().trials[0].score(), 94);
  EXPECT_EQ(e.board().trials[0].step(), 3);
  EXPECT_EQ(e.board().best_score(), 94);
}

TEST(Stopping, ATrialThatDoesNotReturnIsKilledAfterTheGraceAndStopped) {
  for (const bool pbt : {false, true}) {
    ExperimentOptions options{.goal = minimize,
                              .trials = 8,
                              .scheduler = AsyncHyperBand{.max_steps = 9, .grace = 1, .eta = 3},
                              .concurrent = 4,
                              .stop_grace = 3s};
    if (pbt) {
      options.scheduler = Pbt{.perturb_every = 3};
      options.max_steps = 9;
    }
    Experiment e(space(), options);
    Simulation s = walk([](long step) { return static_cast<double>(step); });
    s.train = [](std::vector<double>& w, const Point& p, long) { return w[0] += p[0]; };
    s.obeys = false;
    Simulator sim(e, s);
    sim.run(100000);
    ASSERT_TRUE(e.over());
    for (const TrialInfo& t : e.board().trials) {
      EXPECT_TRUE(t.state == TrialState::stopped || t.state == TrialState::completed)
          << name_of(t.state) << t.note;
      EXPECT_EQ(t.failures, 0) << t.note;
    }
    const auto again = Experiment::restore(space(), options, sim.log());
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_TRUE(again->over());
  }
}

TEST(Stopping, AGraceOfForeverAndOfNothing) {
  for (const Duration grace : {Duration::max(), Duration::zero()}) {
    Experiment e(space(), {.goal = minimize, .trials = 1, .max_steps = 1, .stop_grace = grace});
    e.begin(Time{});
    e.reported(0, 1, {.step = 1, .score = 1}, Time{});
    e.take_commands();
    e.tick(Time{} + std::chrono::hours(24 * 365));
    const auto commands = e.take_commands();
    EXPECT_EQ(commands.size(), grace == Duration::zero() ? 1U : 0U);
    EXPECT_FALSE(e.next_tick());
  }
  EXPECT_THROW(Experiment(space(), {.goal = minimize, .stop_grace = -1s}), InvalidArgument);
}

TEST(Stopping, ATimeLimitOfForeverAndOfNothing) {
  for (const Duration limit : {Duration::max(), Duration::max() - Duration(1), Duration::zero()}) {
    Experiment e(space(), {.goal = minimize, .trials = 1, .max_steps = 2, .time_limit = limit});
    e.begin(Time{});
    e.take_commands();
    e.tick(Time{} + std::chrono::hours(24 * 365));
    EXPECT_FALSE(e.over());
    EXPECT_FALSE(e.next_tick());
  }
  for (const Duration limit : {Duration(-1), Duration::min()}) {
    EXPECT_THROW(Experiment(space(), {.goal = minimize, .time_limit = limit}), InvalidArgument);
    EXPECT_THROW(Experiment(space(), {.goal = minimize, .stop_grace = limit}), InvalidArgument);
  }
}

/// Only a time limit ends a step that never ends; without one the simulation is stuck.
TEST(Stopping, StepsOfAnyLengthAreSimulated) {
  for (const double length :
       {1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const Duration limit : {Duration(60s), Duration::zero()}) {
      Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 2, .time_limit = limit});
      Simulation s = walk([](long) { return 1.0; });
      s.step_seconds = [length](const Point&, long) { return length; };
      Simulator sim(e, s);
      if (limit == Duration::zero()) {
        EXPECT_THROW(sim.run(1000), InvalidArgument);
        continue;
      }
      sim.run(1000);
      EXPECT_TRUE(e.over());
      EXPECT_NEAR(e.board().seconds, 60, 6) << "and no longer than the grace";
    }
  }
  Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 2});
  Simulation s = walk([](long) { return 1.0; });
  s.step_seconds = [](const Point&, long) { return -1e300; };
  s.save_seconds = -1;
  Simulator sim(e, s);
  sim.run(1000);
  EXPECT_TRUE(e.over());
  EXPECT_EQ(e.board().seconds, 0);
}

TEST(Failing, ATrialThatReturnsWithoutAReportHasFailed) {
  Experiment e(space(), {.goal = minimize, .trials = 1, .max_failures = -1});
  e.begin(Time{});
  e.ended(0, 1, "", Time{});
  ASSERT_TRUE(e.over());
  EXPECT_EQ(e.board().trials[0].state, TrialState::failed);
  EXPECT_NE(e.board().trials[0].note.find("without one report"), std::string::npos);
}

TEST(Failing, StepsThatFallOrRepeatAreRefused) {
  for (const long step : {3L, 2L, 0L, -5L}) {
    Experiment e(space(), {.goal = minimize, .trials = 1});
    e.begin(Time{});
    e.take_commands();
    e.reported(0, 1, {.step = 3, .score = 1}, Time{});
    e.take_commands();
    e.reported(0, 1, {.step = step, .score = 0}, Time{});
    const auto commands = e.take_commands();
    ASSERT_FALSE(commands.empty());
    EXPECT_TRUE(std::holds_alternative<Kill>(commands[0]));
    EXPECT_EQ(e.board().trials[0].state, TrialState::failed);
    EXPECT_NE(e.board().trials[0].note.find("step " + std::to_string(step) + " after step 3"),
              std::string::npos)
        << e.board().trials[0].note;
    EXPECT_EQ(e.board().best_score(), 1);
  }
}

TEST(Failing, RetriesThatNeverReportWaitLongerAndLongerAndSayWhy) {
  const ExperimentOptions options{
      .goal = minimize, .trials = 2, .max_failures = -1, .time_limit = 600s};
  Experiment e(space(), options);
  Simulation s = walk([](long) { return 1.0; });
  s.step_seconds = [](const Point&, long) { return 0.0; };
  s.fault = [](int, int, long) { return "its constructor threw: no such file"; };
  Simulator sim(e, s);
  sim.run(100000);
  ASSERT_TRUE(e.over());
  EXPECT_NEAR(e.board().seconds, 600, 1);
  EXPECT_LE(e.board().trials[0].attempt, 40) << "600 s in pauses of up to 30 s";
  int said = 0;
  for (const Event& event : e.board().events) {
    if (event.kind != Event::Kind::repeated) continue;
    ++said;
    EXPECT_NE(plain_words(event, space()).find("no such file"), std::string::npos);
  }
  EXPECT_EQ(said, 2);
  const auto again = Experiment::restore(space(), options, sim.log());
  EXPECT_TRUE(again.ok()) << again.error().message();
}

TEST(Failing, AnAttemptThatReportedIsRetriedAtOnce) {
  Experiment e(space(), {.goal = minimize, .trials = 1, .max_failures = 1});
  e.begin(Time{});
  e.reported(0, 1, {.step = 1, .score = 1}, Time{});
  e.take_commands();
  e.ended(0, 1, "boom", Time{});
  const auto commands = e.take_commands();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Start>(commands[0]));
}

TEST(Pbt, WithoutModelsTheExperimentEndsAndNamesThem) {
  for (const bool synchronous : {false, true}) {
    Experiment e(space(), {.goal = minimize,
                           .trials = 4,
                           .scheduler = Pbt{.perturb_every = 2, .synchronous = synchronous},
                           .concurrent = 2,
                           .max_steps = 50});
    Simulation s = walk([](long step) { return static_cast<double>(step); });
    s.can_save = false;
    Simulator sim(e, s);
    sim.run(10000);
    ASSERT_TRUE(e.over()) << synchronous;
    EXPECT_NE(e.board().error.find("report(score, model)"), std::string::npos);
    EXPECT_LT(e.board().seconds, 50);
  }
}

TEST(Pbt, AGridSmallerThanThePopulationDoesNotHoldUpTheBarrier) {
  Experiment e({{{"x", uniform(0, 1)}}}, {.goal = maximize,
                                          .trials = 8,
                                          .scheduler = Pbt{.perturb_every = 2, .synchronous = true},
                                          .searcher = GridSearch{3},
                                          .max_steps = 10});
  Simulation s = walk({});
  s.train = [](std::vector<double>& w, const Point& p, long) { return w[0] += p[0]; };
  Simulator(e, s).run(10000);
  EXPECT_TRUE(e.over());
  EXPECT_EQ(e.board().trials.size(), 3U);
}

TEST(Pbt, NaNMembersOfASynchronousPopulationAreReplaced) {
  for (const int slots : {0, 2}) {
    Experiment e(space(), {.goal = maximize,
                           .trials = 4,
                           .scheduler = Pbt{.perturb_every = 5, .synchronous = true},
                           .concurrent = slots,
                           .max_steps = 40,
                           .seed = 4});
    Simulation s = walk({});
    // Weights that became NaN stay so: only a copy of another trial helps.
    s.train = [](std::vector<double>& w, const Point& p, long step) {
      w[0] = p[0] > 0.05 && step > 3 && step < 12 ? NAN : w[0] + 1;
      return w[0];
    };
    Simulator sim(e, s);
    sim.run(100000);
    ASSERT_TRUE(e.over()) << slots;
    for (const TrialInfo& t : e.board().trials) {
      EXPECT_FALSE(std::isnan(t.score())) << t.number;
      for (const Copy& c : t.copies) EXPECT_TRUE(c.proven);
    }
  }
}

int started_with(const std::vector<Command>& commands, int trial, std::string* key, Point* params) {
  int n = 0;
  for (const Command& c : commands) {
    const auto* start = std::get_if<Start>(&c);
    if (start == nullptr || start->trial != trial) continue;
    ++n;
    *key = start->from ? start->from->key : "";
    *params = start->params;
  }
  return n;
}

/// Returns an experiment in which trial 0 is better than trial 1, and trial 1 is about to copy
/// trial 0.
Experiment about_to_copy(bool synchronous, bool donor_saved_before) {
  Experiment e(space(), {.goal = maximize,
                         .trials = 2,
                         .scheduler = Pbt{.perturb_every = 1, .synchronous = synchronous},
                         .max_failures = 5});
  e.begin(Time{});
  if (donor_saved_before) {
    e.reported(0, 1, {.step = 1, .score = 10, .can_save = true}, Time{});
    e.saved(0, 1, {"old", "01d", 1, 1}, Time{});
  }
  e.reported(0, 1, {.step = 2, .score = 10, .can_save = true}, Time{});
  e.reported(1, 1, {.step = 2, .score = 1, .can_save = true}, Time{});
  return e;
}

TEST(Copies, ParametersAndWeightsChangeTogetherOrNotAtAll) {
  Experiment e = about_to_copy(false, false);
  const Point own = e.board().trials[1].params;
  EXPECT_EQ(e.board().trials[1].params, own) << "not before the weights are there";
  e.take_commands();
  e.ended(0, 1, "killed by signal 9", Time{});  // before its save arrived
  e.ended(1, 1, "", Time{});
  std::string key = "?";
  Point params;
  ASSERT_EQ(started_with(e.take_commands(), 1, &key, &params), 1);
  EXPECT_EQ(key, "");
  EXPECT_EQ(params, own);
  EXPECT_TRUE(e.board().trials[1].copies.empty());
}

TEST(Copies, ARestartFromItsOwnCheckpointProvesNothing) {
  Experiment e(space(), {.goal = maximize,
                         .trials = 2,
                         .scheduler = Pbt{.perturb_every = 1, .synchronous = true},
                         .max_failures = 5});
  e.begin(Time{});
  e.reported(1, 1, {.step = 1, .score = 1, .can_save = true}, Time{});  // on hold
  e.saved(1, 1, {"own", "1111", 1, 1}, Time{});
  e.ended(1, 1, "killed by signal 9", Time{});                          // starts again from "own"
  e.reported(0, 1, {.step = 1, .score = 9, .can_save = true}, Time{});  // opens the barrier
  e.saved(0, 1, {"donor", "0000", 1, 1}, Time{});
  e.restored(1, 2, "1111", Time{});  // the attempt began before the copy
  ASSERT_EQ(e.board().trials[1].copies.size(), 1U);
  EXPECT_FALSE(e.board().trials[1].copies[0].proven);
  e.take_commands();
  e.reported(1, 2, {.step = 2, .score = 1, .can_save = true}, Time{});
  e.ended(1, 2, "", Time{});
  std::string key;
  Point params;
  ASSERT_EQ(started_with(e.take_commands(), 1, &key, &params), 1);
  EXPECT_EQ(key, "donor");
  EXPECT_EQ(params, e.board().trials[1].copies[0].params);
  e.restored(1, 3, "0000", Time{});
  EXPECT_TRUE(e.board().trials[1].copies[0].proven);
}

TEST(Memory, ModelsAreThoseOfLiveTrialsAndTheBest) {
  Experiment e(space(), {.goal = minimize,
                         .trials = 2000,
                         .scheduler = AsyncHyperBand{.max_steps = 4, .grace = 1, .eta = 2},
                         .concurrent = 8,
                         .save_every = 1});
  Simulation s = walk({});
  s.train = [](std::vector<double>& w, const Point& p, long) { return w[0] = p[0]; };
  Simulator sim(e, s);
  std::size_t most = 0;
  while (!e.over()) {
    sim.run(50);
    most = std::max(most, sim.stored().size());
  }
  EXPECT_LE(most, 8U + 8U + 1U);
  EXPECT_EQ(sim.stored().size(), 1U);
}

TEST(Horizon, OneOrARefusal) {
  Experiment longer(
      space(), {.goal = minimize, .trials = 1, .scheduler = AsyncHyperBand{}, .max_steps = 500});
  Simulator(longer, walk([](long) { return 1.0; })).run();
  EXPECT_EQ(longer.board().trials[0].step(), 500);
  Experiment plain(space(), {.goal = minimize, .trials = 1, .scheduler = AsyncHyperBand{}});
  Simulator(plain, walk([](long) { return 1.0; })).run();
  EXPECT_EQ(plain.board().trials[0].step(), 100);
  EXPECT_THROW(Experiment(space(), {.goal = minimize,
                                    .scheduler = AsyncHyperBand{.max_steps = 100},
                                    .max_steps = 500}),
               InvalidArgument);
}

TEST(Patience, ARepeatedStepCountsOnce) {
  auto s = make_scheduler(Patience{.patience = 2}, {space(), maximize, 1, 1});
  std::vector<Decision> out;
  for (const long step : {1L, 2L, 3L, 2L, 3L})
    s->reported({.step = step, .score = step == 1 ? 1.0 : 0.0}, out);
  for (const Decision& d : out) EXPECT_EQ(d.action, Decision::Action::go_on);
  s->reported({.step = 4, .score = 0}, out);
  EXPECT_EQ(out.back().action, Decision::Action::stop);
}

/// Returns the lines of a log of which only the first `bytes` bytes are left.
std::vector<std::string> cut_at(const std::string& text, std::size_t bytes) {
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < bytes;) {
    const std::size_t end = std::min(text.find('\n', from), bytes);
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

// The log has some kilobytes, so there are hundreds of prefixes, each replayed twice.
TEST(Log, CutAtAnyByteRestoresGoesOnAndRestoresAgain) {
  const ExperimentOptions options{.goal = minimize,
                                  .trials = 2,
                                  .scheduler = Pbt{.perturb_every = 1},
                                  .max_failures = -1,
                                  .max_steps = 2,
                                  .seed = 11,
                                  .name = "with \xff and \"quotes\""};
  Simulation s = walk({});
  s.train = [](std::vector<double>& w, const Point& p, long) { return w[0] += p[0]; };
  Experiment whole(space(), options);
  Simulator all(whole, s);
  std::map<std::string, std::vector<double>> stored;
  while (!whole.over()) {
    all.run(1);
    stored.insert(all.stored().begin(), all.stored().end());
  }
  std::string text;
  for (const std::string& line : all.log()) text += line + "\n";
  for (std::size_t bytes = 0; bytes <= text.size(); ++bytes) {
    const auto lines = cut_at(text, bytes);
    auto copy = Experiment::restore(space(), options, lines);
    ASSERT_TRUE(copy.ok()) << bytes << ": " << copy.error().message();
    // The file as LogFile leaves it: without the incomplete line.
    std::vector<std::string> file = cut_at(text, text.rfind('\n', bytes == 0 ? 0 : bytes - 1) + 1);
    if (bytes == 0 || text.find('\n') >= bytes) file.clear();
    auto from_file = Experiment::restore(space(), options, file);
    ASSERT_TRUE(from_file.ok()) << bytes << ": " << from_file.error().message();
    Simulator rest(*from_file, s);
    rest.load(stored);
    rest.run(10000);
    ASSERT_TRUE(from_file->over());
    file.insert(file.end(), rest.log().begin(), rest.log().end());
    const auto again = Experiment::restore(space(), options, file);
    ASSERT_TRUE(again.ok()) << bytes << ": " << again.error().message();
    ASSERT_TRUE(again->over());
  }
}

}  // namespace
}  // namespace troupe::tune::endings_test
