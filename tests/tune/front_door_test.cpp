// Tests that the usage example of tune.hpp compiles and runs.
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>

namespace {

namespace tune = troupe::tune;

struct Hp {
  double lr, momentum;
};

// The usage example of tune.hpp.
TEST(FrontDoor, ReadsAsItsHeaderSays) {
  auto space = tune::Space<Hp>{}
                   .with(&Hp::lr, tune::log_uniform(1e-5, 1e-1))
                   .with(&Hp::momentum, tune::uniform(0.8, 0.99));
  tune::Options<tune::Pbt> options{
      .goal = tune::maximize, .trials = 8, .scheduler = {.perturb_every = 5}, .max_steps = 100};
  tune::Experiment experiment(space.search(), options.any());
  auto train = [&](std::vector<double>& weights, const tune::Point& point, long) {
    weights[0] += space.from_point(point).lr;
    return weights[0];
  };
  tune::Simulator(experiment, {.train = train, .weights = {0}}).run();
  const tune::Board& board = experiment.board();
  EXPECT_NE(tune::summary(board).find("  lr = "), std::string::npos);
  ASSERT_GE(board.best, 0);
  const Hp best = space.from_point(board.trials[static_cast<std::size_t>(board.best)].params);
  EXPECT_GT(best.lr, 1e-3);
}

}  // namespace
