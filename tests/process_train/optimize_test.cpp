// Tests tune::optimize on real processes: copied weights, killed trials and gangs, and the best
// model.
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace {

namespace tune = troupe::tune;
namespace train = troupe::train;

struct Hp {
  double rate = 0.1;
};
/// A model of one weight that falls towards 0 at the trial's rate.
struct Net {
  std::vector<double> weight = {1.0};
  [[maybe_unused]] friend auto fields(Net& n) { return std::tie(n.weight); }
  [[maybe_unused]] friend auto fields(const Net& n) { return std::tie(n.weight); }
};

void trial(tune::Trial& t, Hp hp) {
  Net net;
  t.restore(net);
  do net.weight[0] *= 1 - hp.rate;
  while (t.report(net.weight[0], net));
}

tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-4, 0.3));
}

TEST(Optimize, ThePopulationCopiesWeightsThroughTheObjectStore) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<trial, Hp, tune::Pbt>(ctx, space(),
                                                         {.goal = tune::minimize,
                                                          .trials = 4,
                                                          .scheduler = {.perturb_every = 5},
                                                          .max_steps = 30,
                                                          .seed = 1,
                                                          .show = false});
  EXPECT_LT(best.score, 1.0);
  int proven = 0;
  for (const tune::TrialInfo& info : best.board.trials) {
    EXPECT_EQ(info.state, tune::TrialState::completed) << info.number << ": " << info.note;
    for (const tune::Copy& copy : info.copies) proven += copy.proven ? 1 : 0;
  }
  EXPECT_GE(proven, 1);
  Net net;
  best.restore(ctx, net);
  EXPECT_EQ(net.weight[0], best.score);
}

void dies_once(tune::Trial& t, Hp hp) {
  Net net;
  t.restore(net);
  do {
    if (t.number() == 1 && t.attempt() == 1 && t.step() == 7) ::raise(SIGKILL);
    net.weight[0] *= 1 - hp.rate;
  } while (t.report(net.weight[0], net));
}

TEST(Optimize, ATrialWhoseProcessDiesIsTriedAgainFromItsCheckpoint) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<dies_once, Hp>(ctx, space(),
                                                  {.goal = tune::minimize,
                                                   .trials = 2,
                                                   .max_failures = 1,
                                                   .max_steps = 12,
                                                   .save_every = 5,
                                                   .show = false});
  const tune::TrialInfo& info = best.board.trials.at(1);
  EXPECT_EQ(info.state, tune::TrialState::completed) << info.note;
  EXPECT_EQ(info.failures, 1);
  EXPECT_EQ(info.step(), 12);
}

void gang_loop(train::Worker& w, Hp hp, long die_at) {
  Net net;
  w.restore(net);
  do {
    w.next_step();
    if (w.step() == die_at && w.rank() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    std::vector<float> slope{static_cast<float>(hp.rate)};
    w.all_reduce_mean(slope);
    net.weight[0] *= 1 - static_cast<double>(slope[0]);
    w.checkpoint(net);
  } while (w.report({.step = w.step(), .loss = net.weight[0]}));
}
void gang(tune::Trial& t, Hp hp) {
  train::fit<gang_loop>(t, {.workers = 2, .max_restarts = 1}, hp, t.number() == 1 ? 6L : 0L);
}

TEST(Optimize, AGangWorkersDeathDoesNotEndItsTrial) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<gang, Hp, tune::Pbt>(ctx, space(),
                                                        {.goal = tune::minimize,
                                                         .trials = 4,
                                                         .scheduler = {.perturb_every = 5},
                                                         .max_steps = 15,
                                                         .seed = 1,
                                                         .show = false});
  int proven = 0;
  for (const tune::TrialInfo& info : best.board.trials) {
    EXPECT_EQ(info.state, tune::TrialState::completed) << info.number << ": " << info.note;
    EXPECT_EQ(info.failures, 0) << "the gang's own business";
    EXPECT_EQ(info.step(), 15);
    for (const tune::Copy& copy : info.copies) proven += copy.proven ? 1 : 0;
  }
  EXPECT_GE(proven, 1);
  ASSERT_EQ(best.notes.size(), 1u);
  EXPECT_NE(best.notes[0].find("trial 1: worker 1 "), std::string::npos) << best.notes[0];
}

/// A trial whose best state is in the middle; `ending` says how it ends.
void hill(tune::Trial& t, Hp, int ending) {
  Net net;
  for (int step = 1; step <= 9; ++step) {
    net.weight[0] = step <= 5 ? 10.0 - step : step;
    if (ending == 1 && step == 8) throw std::runtime_error("boom");
    if (ending == 2 && step == 8) ::raise(SIGKILL);
    if (!t.report(net.weight[0], net)) return;
  }
}

TEST(Optimize, TheBestModelIsThereHoweverATrialEnds) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  for (const int ending : {0, 1, 2}) {
    const auto best = tune::optimize<hill, Hp>(
        ctx, space(), {.goal = tune::minimize, .trials = 2, .show = false}, ending);
    EXPECT_EQ(best.score, 5.0) << ending;
    EXPECT_EQ(best.no_model, "");
    Net net;
    best.restore(ctx, net);
    EXPECT_EQ(net.weight[0], best.score) << ending;
  }
}

void deaf(tune::Trial& t, Hp) {
  Net net;
  for (long step = 1;; ++step) {
    net.weight[0] = step <= 3 ? 94.0 : 70.0;
    static_cast<void>(t.report(net.weight[0], net));
  }
}

TEST(Optimize, ATrialThatIgnoresTheStopIsKilledAndWhatItReportsIsIgnored) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<deaf, Hp>(ctx, space(),
                                             {.goal = tune::maximize,
                                              .trials = 2,
                                              .max_steps = 3,
                                              .show = false,
                                              .stop_grace = std::chrono::milliseconds(300)});
  for (const tune::TrialInfo& info : best.board.trials) {
    EXPECT_EQ(info.state, tune::TrialState::completed) << info.note;
    EXPECT_EQ(info.score(), 94.0);
    EXPECT_EQ(info.step(), 3);
  }
  Net net;
  best.restore(ctx, net);
  EXPECT_EQ(net.weight[0], 94.0);
}

void without_model(tune::Trial& t, Hp hp) {
  while (t.report(hp.rate)) {
  }
}

TEST(Optimize, AMissingModelIsNamedAtTheEndAndByPbtAtItsFirstCopy) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<without_model, Hp>(
      ctx, space(), {.goal = tune::minimize, .trials = 2, .max_steps = 3, .show = false});
  EXPECT_NE(best.no_model.find("t.report(score, model)"), std::string::npos) << best.no_model;
  ASSERT_EQ(best.notes.size(), 1u);
  EXPECT_EQ(best.notes[0], best.no_model);
  Net net;
  EXPECT_THROW(best.restore(ctx, net), troupe::InvalidArgument);
  const tune::Options<tune::Pbt> options{.goal = tune::minimize,
                                         .trials = 4,
                                         .scheduler = {.perturb_every = 2, .synchronous = true},
                                         .max_steps = 50,
                                         .show = false};
  try {
    static_cast<void>(tune::optimize<without_model, Hp>(ctx, space(), options));
    FAIL() << "nothing can be copied";
  } catch (const troupe::InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("without one"), std::string::npos) << error.what();
  }
}

TEST(Optimize, APictureThatCannotBeWrittenLosesNoResult) {
  char folder[] = "/tmp/troupe-results-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const tune::Options<> options{
      .goal = tune::minimize, .trials = 1, .max_steps = 2, .show = false, .results = folder};
  const auto first = tune::optimize<trial, Hp>(ctx, space(), options);
  EXPECT_EQ(first.board.trials.size(), 1u);
  const auto again = tune::optimize<trial, Hp>(ctx, space(), options);
  EXPECT_EQ(again.score, first.score);
  auto in_the_way = options;
  in_the_way.results = std::string(folder) + "/other";
  std::filesystem::create_directories(in_the_way.results + "/curves.svg/x");
  const auto found = tune::optimize<trial, Hp>(ctx, space(), in_the_way);
  Net net;
  found.restore(ctx, net);
  EXPECT_EQ(net.weight[0], found.score);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("curves.svg"), std::string::npos) << found.notes[0];
  std::filesystem::remove_all(folder);
}

}  // namespace
