// Tests the searchers: random, grid, Halton and TPE, against published or independent values.
#include "troupe/tune/searcher.hpp"
#include "troupe/tune/internal/parzen.hpp"
#include "troupe/tune/internal/tpe.hpp"

#include "tests/leeway.hpp"

#include <gtest/gtest.h>
#include <time.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace troupe::tune {
namespace {

SearchSpace plane() {
  return {{{"x", uniform(-5, 5)}, {"y", uniform(-5, 5)}}};
}

TEST(RandomSearch, GridParametersMeetEverySample) {
  Domain mode = choices({"a", "b", "c"});
  mode.grid = true;
  const SearchSpace space{{{"x", uniform(0, 1)}, {"mode", mode}}};
  auto searcher = make_searcher(RandomSearch{}, space, minimize, 1);
  std::set<double> xs;
  for (int sample = 0; sample < 4; ++sample) {
    std::set<double> modes;
    for (int k = 0; k < 3; ++k) {
      const Point p = *searcher->ask(sample * 3 + k);
      xs.insert(p[0]);
      modes.insert(p[1]);
    }
    EXPECT_EQ(modes.size(), 3U);
  }
  EXPECT_EQ(xs.size(), 4U);
}

TEST(Searchers, AGridThatWouldBeIgnoredIsRefused) {
  Domain mode = choices({"a", "b", "c"});
  mode.grid = true;
  const SearchSpace space{{{"x", uniform(0, 1)}, {"mode", mode}}};
  for (const AnySearcher& s : {AnySearcher(Tpe{}), AnySearcher(Halton{})}) {
    try {
      make_searcher(s, space, minimize, 1);
      ADD_FAILURE() << show(s);
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.message().find("mode is a grid()"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("take choice() or RandomSearch"), std::string::npos);
    }
  }
  EXPECT_NO_THROW(make_searcher(RandomSearch{}, space, minimize, 1));
  EXPECT_NO_THROW(make_searcher(GridSearch{2}, space, minimize, 1));
}

TEST(GridSearch, GivesEveryCombinationOnceThenNothing) {
  const SearchSpace space{
      {{"x", uniform(0, 1)}, {"n", integers(1, 2)}, {"o", choices({"a", "b"})}}};
  auto searcher = make_searcher(GridSearch{3}, space, minimize, 1);
  std::set<Point> seen;
  int n = 0;
  while (auto p = searcher->ask(n)) {
    seen.insert(*p);
    ++n;
  }
  EXPECT_EQ(n, 12);
  EXPECT_EQ(seen.size(), 12U);
  EXPECT_THROW(make_searcher(GridSearch{0}, space, minimize, 1), InvalidArgument);
}

TEST(Halton, FillsEveryCellOfAThirtySixCellPlane) {
  auto searcher =
      make_searcher(Halton{}, {{{"x", uniform(0, 1)}, {"y", uniform(0, 1)}}}, minimize, 9);
  std::set<int> cells;
  for (int i = 0; i < 36; ++i) {  // periods of base 2 and 3: each of 4 x 9 cells holds one
    const Point p = *searcher->ask(i);
    cells.insert(static_cast<int>(p[0] * 4) * 9 + static_cast<int>(p[1] * 9));
  }
  EXPECT_GE(cells.size(), 30U);  // the shift may split cells
}

TEST(Tpe, GammaTable) {
  EXPECT_EQ(tpe_gamma(9), 1U);
  EXPECT_EQ(tpe_gamma(10), 1U);
  EXPECT_EQ(tpe_gamma(11), 2U);
  EXPECT_EQ(tpe_gamma(20), 2U);
  EXPECT_EQ(tpe_gamma(100), 10U);
  EXPECT_EQ(tpe_gamma(241), 25U);
  EXPECT_EQ(tpe_gamma(1000), 25U);
}

// Values that Optuna printed for the same observations.
TEST(Tpe, GoldenParzenEstimator) {
  const ParzenEstimator e(uniform(-1, 1), {-0.4, 0.4, 0.41, 0.42});
  const std::vector<double> sigma = {0.8, 0.8, 1.0 / 3, 1.0 / 3, 2};
  ASSERT_EQ(e.sigmas().size(), 5U);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(e.sigmas()[i], sigma[i], 1e-12);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(e.weights()[i], 0.2, 1e-12);
  EXPECT_EQ(e.centers().back(), 0);
  const double at[] = {-1, -0.4, 0, 0.41, 0.9};
  const double log_pdf[] = {-1.49576, -1.06211, -0.55530, -0.20106, -0.87866};
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(e.log_pdf(at[i]), log_pdf[i], 1e-5) << at[i];
}

TEST(Tpe, DensitiesIntegrateToOne) {
  for (const Domain& d : {log_uniform(1e-3, 1), uniform(-2, 2)}) {
    const ParzenEstimator e(d, {0.01, 0.5, 0.02});
    double mass = 0;
    const int n = 4000;
    for (int i = 0; i < n; ++i) {
      const double u = (i + 0.5) / n;
      // log densities are per unit of the log scale
      mass += std::exp(e.log_pdf(at_quantile(d, u))) *
              (d.log ? std::log(d.high / d.low) : d.high - d.low) / n;
    }
    EXPECT_NEAR(mass, 1, 1e-3);
  }
  for (const Domain& d : {integers(-3, 4), log_integers(1, 40), quantized(-1, 1, 0.25)}) {
    const ParzenEstimator e(d, {1, 1, 1});
    double mass = 0;
    for (const double v : grid_values(d, 1000)) mass += std::exp(e.log_pdf(v));
    EXPECT_NEAR(mass, 1, 1e-6) << show(d);
  }
  const ParzenEstimator e(choices({"a", "b", "c"}), {0, 0, 2});
  EXPECT_NEAR(std::exp(e.log_pdf(0)) + std::exp(e.log_pdf(1)) + std::exp(e.log_pdf(2)), 1, 1e-12);
  EXPECT_NEAR(std::exp(e.log_pdf(0)), (2 * 1.25 / 1.75 + 0.25 / 1.75 + 1.0 / 3) / 4, 1e-12);
}

TEST(Tpe, OldObservationsWeighLess) {
  const ParzenEstimator e(uniform(0, 1), std::vector<double>(50, 0.5));
  EXPECT_LT(e.weights()[0], e.weights()[24]);
  EXPECT_EQ(e.weights()[25], e.weights()[49]);
  EXPECT_NEAR(e.weights()[0] * 50, e.weights()[49], 1e-12);
}

double best_of(const AnySearcher& settings, std::uint64_t seed) {
  auto searcher = make_searcher(settings, plane(), minimize, seed);
  double best = 1e9;
  for (int i = 0; i < 60; ++i) {
    const Point p = *searcher->ask(i);
    const double loss = (p[0] - 1) * (p[0] - 1) + (p[1] + 2) * (p[1] + 2);
    best = std::min(best, loss);
    searcher->tell({.trial = i, .score = loss});
  }
  return best;
}

TEST(Tpe, BeatsRandomSearchOnAQuadratic) {
  int wins = 0;
  for (std::uint64_t seed = 0; seed < 15; ++seed) {
    wins += best_of(Tpe{}, seed) < best_of(RandomSearch{}, seed);
  }
  EXPECT_GE(wins, 11);
}

TEST(Tpe, RunningTrialsRepelFailedOnesAreForgotten) {
  auto searcher = make_searcher(Tpe{}, plane(), minimize, 3);
  for (int i = 0; i < 10; ++i) {
    searcher->take(i, {0.3 * i - 1.5, 0});
    searcher->tell({.trial = i, .score = std::abs(0.3 * i - 1.5)});
  }
  for (int i = 10; i < 14; ++i) {
    EXPECT_TRUE(searcher->ask(i));
    searcher->tell({.trial = i, .state = Ended::State::failed});
  }
  std::set<double> pending;
  for (int i = 14; i < 24; ++i) pending.insert((*searcher->ask(i))[0]);
  EXPECT_EQ(pending.size(), 10U);
}

/// The search has a thousand finished trials and ten parameters of every kind.
TEST(Tpe, AskIsQuick) {
  SearchSpace space;
  std::vector<std::string> options;
  for (int i = 0; i < 200; ++i) options.push_back(std::to_string(i));
  for (int i = 0; i < 10; ++i) {
    const Domain kinds[] = {uniform(0, 1), log_uniform(1e-5, 1), integers(0, 1000),
                            choices(options), quantized(0, 10, 0.25)};
    space.parameters.push_back({"p" + std::to_string(i), kinds[i % 5]});
  }
  auto searcher = make_searcher(Tpe{}, space, minimize, 1);
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    searcher->take(i, space.sample(random));
    searcher->tell({.trial = i, .score = random.uniform()});
  }
  constexpr int asks = 20;
  const auto seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const double began = seconds();
  for (int i = 0; i < asks; ++i) ASSERT_TRUE(searcher->ask(1000 + i));
  EXPECT_LT((seconds() - began) / asks, 0.005 * kLeeway);
}

TEST(Tpe, KernelsOfNoWidthAndHugeDomainsHaveADensity) {
  constexpr double top = std::numeric_limits<double>::max();
  constexpr double tiny = std::numeric_limits<double>::denorm_min();
  for (const Domain& d :
       {integers(0, 1LL << 53), uniform(1e17, 1e17 + 16), integers(3, 4),
        uniform(-top / 2, top / 2), uniform(top / 2, top), uniform(0, 8 * tiny)}) {
    const ParzenEstimator one(d, {d.low});
    const ParzenEstimator e(d, {d.low, d.low, d.high});
    for (const double at : {d.low, d.high}) {
      EXPECT_TRUE(std::isfinite(one.log_pdf(at))) << show(d);
      EXPECT_TRUE(std::isfinite(e.log_pdf(at))) << show(d);
    }
    EXPECT_GE(e.log_pdf(d.low), e.log_pdf(d.high)) << show(d);
    EXPECT_GE(e.centers().back(), d.low) << show(d);  // the center of the prior
    EXPECT_LE(e.centers().back(), d.high) << show(d);
  }
}

TEST(Tpe, DrawsOfHugeValuesAreNotRoundedToTheUpperBound) {
  constexpr double top = std::numeric_limits<double>::max();
  const Domain d = uniform(top / 2, top);
  const ParzenEstimator e(d, {d.low});
  Random random(1);
  for (int i = 0; i < 20'000; ++i) ASSERT_LT(e.draw(random), d.high) << i;
}

TEST(Searchers, TheSameSeedGivesTheSamePoints) {
  for (const AnySearcher& s :
       {AnySearcher(RandomSearch{}), AnySearcher(Halton{}), AnySearcher(Tpe{})}) {
    auto a = make_searcher(s, plane(), minimize, 4);
    auto b = make_searcher(s, plane(), minimize, 4);
    auto c = make_searcher(s, plane(), minimize, 5);
    bool differs = false;
    for (int i = 0; i < 20; ++i) {
      const Point p = *a->ask(i);
      EXPECT_EQ(p, *b->ask(i)) << show(s);
      differs |= p != *c->ask(i);
      a->tell({.trial = i, .score = p[0]});
      b->tell({.trial = i, .score = p[0]});
    }
    EXPECT_TRUE(differs) << show(s);
  }
}

}  // namespace
}  // namespace troupe::tune
