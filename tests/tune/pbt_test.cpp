// Tests population-based training: its published toy results, quantiles, decisions and barriers.
#include "troupe/tune/internal/schedulers.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <set>

namespace troupe::tune {
namespace {

using Action = Decision::Action;

SearchSpace unit_plane() {
  return {{{"h0", uniform(0, 1)}, {"h1", uniform(0, 1)}}};
}

std::vector<Decision> report(Scheduler& s, Report r) {
  std::vector<Decision> out;
  r.can_save = true;
  s.reported(r, out);
  return out;
}

/// The example of the PBT paper (figure 2): maximise Q(t) = 1.2 - t0^2 - t1^2. Each of two
/// workers climbs only a surrogate of Q with weights h. Scores are the true Q.
double toy(long interval, bool exploit, bool explore, std::uint64_t seed) {
  struct Worker {
    double t[2] = {0.9, 0.9};
    double h[2];
    double q() const { return 1.2 - t[0] * t[0] - t[1] * t[1]; }
  };
  Worker workers[2] = {{{0.9, 0.9}, {1, 0}}, {{0.9, 0.9}, {0, 1}}};
  auto scheduler = make_scheduler(
      Pbt{.perturb_every = interval, .quantile = 0.5, .clamp = false, .synchronous = true},
      {unit_plane(), maximize, 2, seed});
  for (int i = 0; i < 2; ++i) scheduler->created(i, {workers[i].h[0], workers[i].h[1]});
  for (long step = 1; step <= 200; ++step) {
    std::vector<Decision> decisions;
    for (int i = 0; i < 2; ++i) {
      Worker& w = workers[i];
      for (int d = 0; d < 2; ++d) w.t[d] *= 1 - 0.02 * w.h[d];
      scheduler->reported({.trial = i, .step = step, .score = w.q(), .can_save = true}, decisions);
    }
    for (const Decision& d : decisions) {
      if (d.action != Action::exploit || !exploit) continue;
      Worker copy = workers[d.donor];
      const Worker& old = workers[d.trial];
      for (int k = 0; k < 2; ++k)
        copy.h[k] = explore ? d.params[static_cast<std::size_t>(k)] : old.h[k];
      workers[d.trial] = copy;
    }
  }
  return std::max(workers[0].q(), workers[1].q());
}

double quantile_of(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

TEST(PbtToy, WithoutPbtIsTheGrid) {
  EXPECT_NEAR(toy(5, false, false, 1), 0.389749, 1e-6);
}

TEST(PbtToy, ExploitAloneReachesThePublishedValueAtEveryInterval) {
  for (const long interval : {4, 5, 10}) EXPECT_NEAR(toy(interval, true, false, 1), 1.171508, 1e-6);
}

TEST(PbtToy, FullPbtHasThePublishedMedianAndFifthPercentile) {
  std::vector<double> five;
  std::vector<double> ten;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    five.push_back(toy(5, true, true, seed));
    ten.push_back(toy(10, true, true, seed));
  }
  EXPECT_NEAR(quantile_of(five, 0.5), 1.1998, 0.0006);
  EXPECT_NEAR(quantile_of(five, 0.05), 1.1960, 0.004);
  EXPECT_NEAR(quantile_of(ten, 0.5), 1.1972, 0.002);
  EXPECT_NEAR(quantile_of(ten, 0.05), 1.087, 0.06);
}

TEST(Pbt, MultiplicationNeverLeavesZeroResamplingDoes) {
  const SchedulerSetup setup{unit_plane(), maximize, 2, 3};
  PbtScheduler frozen(Pbt{.resample = 0}, setup);
  PbtScheduler alive(Pbt{.resample = 0.25}, setup);
  Point a = {0, 0.5};
  Point b = {0, 0.5};
  int moved = 0;
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    a = frozen.explore(a, random);
    EXPECT_EQ(a[0], 0);
    b = alive.explore({0, 0.5}, random);
    moved += b[0] != 0;
  }
  EXPECT_NEAR(moved, 50, 20);
}

TEST(Pbt, QuantilesAsRayRoundsThem) {
  // Pairs of n and the expected size of the top quantile for f = 0.25. The trials that save show
  // it.
  const int expected[][2] = {{2, 1}, {3, 1}, {4, 1}, {5, 2}, {8, 2}, {10, 3}};
  for (const auto& [n, size] : expected) {
    auto s =
        make_scheduler(Pbt{.perturb_every = 1, .save_all = false}, {unit_plane(), maximize, n, 1});
    for (int i = 0; i < n; ++i) s->created(i, {0.5, 0.5});
    for (int i = 0; i < n; ++i) report(*s, {.trial = i, .step = 1, .score = double(i)});
    int saves = 0;
    for (int i = 0; i < n; ++i) {
      for (const Decision& d : report(*s, {.trial = i, .step = 2, .score = double(i)}))
        saves += d.save;
    }
    EXPECT_EQ(saves, size) << n;
  }
}

TEST(Pbt, AOneMemberPopulationNeverActs) {
  auto s = make_scheduler(Pbt{.perturb_every = 1}, {unit_plane(), maximize, 2, 1});
  s->created(0, {0.5, 0.5});
  for (long step = 1; step < 20; ++step) {
    const auto d = report(*s, {.trial = 0, .step = step, .score = 1});
    ASSERT_EQ(d.size(), 1U);
    EXPECT_EQ(d[0].action, Action::go_on);
  }
}

TEST(Pbt, BurnInAndInterval) {
  auto s = make_scheduler(Pbt{.perturb_every = 3, .burn_in = 5}, {unit_plane(), minimize, 2, 1});
  s->created(0, {0.5, 0.5});
  s->created(1, {0.5, 0.5});
  std::vector<long> acted;
  for (long step = 1; step <= 12; ++step) {
    const auto d = report(*s, {.trial = 0, .step = step, .score = 1});
    if (d[0].save) acted.push_back(step);
    report(*s, {.trial = 1, .step = step, .score = 1});
  }
  EXPECT_EQ(acted, (std::vector<long>{5, 8, 11}));
}

TEST(Pbt, TheWorstCopiesTheBestAndInheritsItsClock) {
  auto s = make_scheduler(Pbt{.perturb_every = 5}, {unit_plane(), minimize, 4, 1});
  for (int i = 0; i < 4; ++i) s->created(i, {0.1 * (i + 1), 0.5});
  for (int i = 0; i < 3; ++i) report(*s, {.trial = i, .step = 5, .score = double(i)});
  const auto d = report(*s, {.trial = 3, .step = 7, .score = 9});
  ASSERT_EQ(d.size(), 1U);
  EXPECT_EQ(d[0].action, Action::exploit);
  EXPECT_EQ(d[0].donor, 0);
  EXPECT_EQ(d[0].donor_params, (Point{0.1, 0.5}));
  EXPECT_NE(d[0].params, d[0].donor_params);
  // The trial goes on from step 5, so its next decision is at step 10, not 12.
  EXPECT_FALSE(report(*s, {.trial = 3, .step = 9, .score = 0})[0].save);
  EXPECT_TRUE(report(*s, {.trial = 3, .step = 10, .score = 0})[0].save);
}

TEST(Pbt, WithoutADonorCheckpointTheTrialGoesOn) {
  auto s = make_scheduler(Pbt{.perturb_every = 2}, {unit_plane(), maximize, 2, 1});
  std::vector<Decision> out;
  s->created(0, {0.5, 0.5});
  s->created(1, {0.5, 0.5});
  s->reported({.trial = 0, .step = 1, .score = 2, .can_save = true}, out);
  s->reported({.trial = 0, .step = 2, .score = 2, .can_save = false}, out);  // not at its interval
  s->reported({.trial = 1, .step = 2, .score = 1, .can_save = true}, out);
  for (const Decision& d : out) EXPECT_EQ(d.action, Action::go_on);
}

TEST(Pbt, AModelThatIsNeverOfferedIsNamedAtTheFirstExploit) {
  for (const bool synchronous : {false, true}) {
    for (const bool donor_offers : {false, true}) {
      auto s = make_scheduler(Pbt{.perturb_every = 1, .synchronous = synchronous},
                              {unit_plane(), maximize, 2, 1});
      std::vector<Decision> out;
      s->created(0, {0.5, 0.5});
      s->created(1, {0.5, 0.5});
      s->reported({.trial = 0, .step = 1, .score = 2, .can_save = donor_offers}, out);
      s->reported({.trial = 1, .step = 1, .score = 1, .can_save = false}, out);
      ASSERT_EQ(out.back().action, Action::refuse);
      EXPECT_NE(out.back().why.find("trial 1"), std::string::npos) << out.back().why;
      EXPECT_NE(out.back().why.find("report(score, model)"), std::string::npos);
    }
  }
}

TEST(Pbt, AMemberWithoutANumberIsReplacedAtTheNextIntervalAndNeverCopied) {
  for (const bool synchronous : {false, true}) {
    auto s = make_scheduler(Pbt{.perturb_every = 5, .synchronous = synchronous},
                            {unit_plane(), maximize, 4, 1});
    for (int i = 0; i < 4; ++i) s->created(i, {0.5, 0.5});
    std::vector<Decision> out;
    // Trial 0 was the best by far at step 5. Afterwards neither 0 nor 1 has a score.
    for (int i = 0; i < 4; ++i)
      s->reported({.trial = i, .step = 5, .score = i == 0 ? 100.0 : i, .can_save = true}, out);
    out.clear();
    for (int i = 0; i < 2; ++i)
      s->reported({.trial = i, .step = 8, .score = std::nan(""), .can_save = true}, out);
    for (const int i : {2, 3, 0, 1})
      s->reported(
          {.trial = i, .step = 10, .score = i < 2 ? std::nan("") : double(i), .can_save = true},
          out);
    std::set<int> replaced;
    for (const Decision& d : out) {
      if (d.action != Action::exploit || d.trial > 1) continue;
      replaced.insert(d.trial);
      EXPECT_EQ(d.donor, 3) << synchronous;
    }
    EXPECT_EQ(replaced, (std::set<int>{0, 1})) << synchronous;
  }
}

TEST(Pbt, ABarrierWaitsForNobodyWhoWillNeverBeThere) {
  auto s =
      make_scheduler(Pbt{.perturb_every = 5, .synchronous = true}, {unit_plane(), maximize, 9, 1});
  for (int i = 0; i < 2; ++i) s->created(i, {0.5, 0.5});
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(report(*s, {.trial = i, .step = 5, .score = double(i)})[0].action, Action::hold);
  std::vector<Decision> out;
  s->population(2, out);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[1].action, Action::exploit);
}

TEST(Pbt, SmallWholeNumbersAndCoarseStepsMoveBothWays) {
  for (const Domain& domain : {integers(1, 4), quantized(0.5, 2, 0.5), integers(-4, -1)}) {
    PbtScheduler s(Pbt{.resample = 0}, {{{{"n", domain}}}, maximize, 2, 5});
    std::set<double> seen;
    Random random(5);
    Point p = {domain.low};
    for (int i = 0; i < 200; ++i) {
      p = s.explore(p, random);
      EXPECT_TRUE(contains(domain, p[0]));
      seen.insert(p[0]);
    }
    EXPECT_EQ(seen.size(), 4U) << show(domain);
  }
}

TEST(Pbt, ReportersYieldWhenOthersWaitAndTheLeastTrainedIsNext) {
  auto s = make_scheduler(Pbt{.perturb_every = 4}, {unit_plane(), maximize, 3, 1});
  for (int i = 0; i < 3; ++i) s->created(i, {0.5, 0.5});
  const auto d = report(*s, {.trial = 0, .step = 4, .score = 2, .others_wait = true});
  EXPECT_EQ(d[0].action, Action::yield);
  EXPECT_EQ(s->pick({0, 1, 2}), 1);
  report(*s, {.trial = 1, .step = 8, .score = 3, .others_wait = true});
  report(*s, {.trial = 2, .step = 12, .score = 4, .others_wait = true});
  EXPECT_EQ(s->pick({2, 1, 0}), 0);
}

TEST(Pbt, SynchronousPassesOverARepeatedStep) {
  auto s =
      make_scheduler(Pbt{.perturb_every = 5, .synchronous = true}, {unit_plane(), maximize, 2, 1});
  for (int trial = 0; trial < 2; ++trial) s->created(trial, {0.5, 0.5});
  std::vector<Decision> out;
  for (int trial = 0; trial < 2; ++trial)
    s->reported({.trial = trial, .step = 10, .score = 1.0 * trial, .can_save = true}, out);
  s->observe({.trial = 0, .step = 10, .score = 0, .can_save = true});  // after a retry
  out.clear();
  s->reported({.trial = 1, .step = 20, .score = 1, .can_save = true}, out);
  ASSERT_EQ(out.size(), 1U) << "trial 0 runs, so nothing is decided about it";
  EXPECT_EQ(out[0].action, Decision::Action::hold);
}

TEST(Pbt, SynchronousWaitsForEverybodyAlive) {
  auto s =
      make_scheduler(Pbt{.perturb_every = 5, .synchronous = true}, {unit_plane(), maximize, 4, 1});
  for (int i = 0; i < 4; ++i) s->created(i, {0.5, 0.5});
  for (int i = 0; i < 3; ++i) {
    const auto d = report(*s, {.trial = i, .step = 5, .score = double(i)});
    ASSERT_EQ(d.size(), 1U);
    EXPECT_EQ(d[0].action, Action::hold);
  }
  std::vector<Decision> out;
  s->failed(3, out);  // the missing trial dies, and the barrier opens
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[2].action, Action::exploit);
  EXPECT_EQ(out[2].trial, 0);
  EXPECT_EQ(out[2].donor, 2);
}

TEST(Pbt, ExploreKeepsTypesAndDomains) {
  const SearchSpace space{
      {{"n", integers(2, 40)}, {"o", choices({"a", "b", "c"})}, {"lr", log_uniform(1e-3, 1e-1)}}};
  PbtScheduler kept(Pbt{.resample = 0.1}, {space, maximize, 2, 5});
  PbtScheduler free(Pbt{.resample = 0, .clamp = false}, {space, maximize, 2, 5});
  Point p = {30, 1, 0.05};
  bool left = false;
  Random random(5);
  Point q = p;
  for (int i = 0; i < 300; ++i) {
    const Point next = kept.explore(p, random);
    EXPECT_NO_THROW(space.check(next));
    p = next;
    q = free.explore(q, random);
    EXPECT_EQ(q[0], std::trunc(q[0]));
    left |= q[2] > 0.1;
    if (std::abs(q[1] - 1) > 1) ADD_FAILURE() << "options move to a neighbour";
  }
  EXPECT_TRUE(left);
}

TEST(Pbt, BadOptionsAreNamed) {
  const SchedulerSetup setup{unit_plane(), maximize, 2, 3};
  EXPECT_THROW(make_scheduler(Pbt{.perturb_every = 0}, setup), InvalidArgument);
  EXPECT_THROW(make_scheduler(Pbt{.quantile = 0.6}, setup), InvalidArgument);
  EXPECT_THROW(make_scheduler(Pbt{.resample = 2}, setup), InvalidArgument);
  EXPECT_THROW(make_scheduler(Pbt{}, {unit_plane(), maximize, 1, 3}), InvalidArgument);
}

}  // namespace
}  // namespace troupe::tune
