// Tests trials of every kind of function, and gangs inside them.
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace trial_kinds {

namespace tune = troupe::tune;
namespace train = troupe::train;

struct Hp {
  double rate = 0.1;
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-2, 0.3));
}

void quiet(tune::Trial& t, Hp hp) noexcept {
  double score = 1;
  do score *= 1 - hp.rate;
  while (t.report(score));
}
constexpr auto lambda = [](tune::Trial& t, const Hp& hp) { quiet(t, hp); };
/// A trial with a gang of two whose ranks have different losses: the trial's score is the mean.
constexpr auto gang = [](tune::Trial& t, Hp, double loss) {
  train::fit(
      t, {.workers = 2},
      [](train::Worker& w, double mine) noexcept {
        do w.next_step();
        while (w.report({.step = w.step(), .loss = w.rank() == 0 ? mine : 3 * mine}));
      },
      loss);
};

/// Trial 0's gang of two waits at the barrier for trial 1, far longer than the gang's timeout.
constexpr auto unequal = [](tune::Trial& t, Hp) {
  if (t.number() == 1) {
    std::vector<float> model(1);
    for (double score = 1; t.report(score, model); score += 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return;
  }
  const train::Fit fit = train::fit(t, {.workers = 2, .timeout = std::chrono::milliseconds(500)},
                                    [](train::Worker& w) noexcept {
                                      std::vector<float> model(1);
                                      do {
                                        w.next_step();
                                        w.checkpoint(model);
                                      } while (w.report({.step = w.step(), .loss = 0.0}));
                                    });
  if (fit.restarts() > 0) throw std::runtime_error(fit.failures().front());
};

template <auto trial, class... X>
double best_score(X... passed) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  return tune::optimize<trial, Hp>(
             ctx, space(),
             tune::Options<>{
                 .goal = tune::minimize, .trials = 2, .max_steps = 3, .seed = 1, .show = false},
             passed...)
      .score;
}

TEST(TrialKinds, NoexceptFunctionsAndLambdasAreTrials) {
  const double score = best_score<quiet>();
  EXPECT_LT(score, 1);
  EXPECT_EQ(best_score<lambda>(), score);
}

TEST(TrialKinds, TheScoreOfAGangIsTheMeanOfItsRanks) {
  EXPECT_EQ(best_score<gang>(0.5), 1.0);
}

TEST(TrialKinds, AGangWaitsForAVerdictLongerThanItsTimeout) {
  troupe::Session session({.cpus = 4});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<unequal, Hp>(
      ctx, space(),
      tune::Options<tune::Pbt>{.goal = tune::maximize,
                               .trials = 2,
                               .scheduler = {.perturb_every = 1, .synchronous = true},
                               .concurrent = 2,
                               .max_failures = 0,
                               .max_steps = 3,
                               .seed = 1,
                               .show = false});
  for (const tune::TrialInfo& trial : best.board.trials)
    EXPECT_EQ(trial.state, tune::TrialState::completed) << trial.number << ": " << trial.note;
  EXPECT_EQ(best.notes, std::vector<std::string>{});
}

}  // namespace trial_kinds
