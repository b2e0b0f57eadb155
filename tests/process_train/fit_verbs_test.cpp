// Tests the functions of a training loop as programs use them: several passes over the data, the
// best checkpoint, loops of every kind, extreme durations, and a gang on another node.
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include "tests/eventually.hpp"
#include "tests/process_train/nodes.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

namespace fit_verbs {

using namespace std::chrono_literals;
namespace train = troupe::train;

struct Numbers {
  std::vector<int> values;
  std::uint64_t size() const { return values.size(); }
  std::vector<int> batch(std::span<const std::uint64_t> indices) const {
    std::vector<int> chosen;
    for (const std::uint64_t i : indices) chosen.push_back(values[i]);
    return chosen;
  }
};
Numbers numbers() {
  Numbers made;
  for (int i = 0; i < 64; ++i) made.values.push_back(i);
  return made;
}

/// The samples that a rank has seen, in order.
struct Seen {
  std::vector<int> values;
  friend auto fields(Seen& s) { return std::tie(s.values); }
  friend auto fields(const Seen& s) { return std::tie(s.values); }
};

struct Plan {
  bool hoisted = false;
  long die_at = 0;
};

/// Runs three epochs, with a pass over other data after each, and a checkpoint every five steps.
void epochs(train::Worker& w, Plan plan, troupe::Ref<Numbers> data) {
  Seen seen;
  w.restore(seen);
  const Numbers few{{100, 101, 102, 103}};
  auto shard = w.shard(data, {.batch = 8, .seed = 3});
  const auto step = [&](const std::vector<int>& batch) {
    if (w.step() == plan.die_at && w.rank() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    float mean = static_cast<float>(w.rank());
    w.all_reduce_mean(std::span(&mean, 1));
    seen.values.insert(seen.values.end(), batch.begin(), batch.end());
    if (w.step() % 5 == 0) w.checkpoint(seen);
    w.report({.step = w.step(), .loss = 1.0 / static_cast<double>(w.step())});
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    if (plan.hoisted)
      for (const auto& batch : shard) step(batch);
    else
      for (const auto& batch : w.shard(data, {.batch = 8, .seed = 3})) step(batch);
    for (const auto& batch : w.shard(few, {.batch = 2})) step(batch);
  }
  w.checkpoint(seen);
}

struct FitVerbs : testing::Test {
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
};

Seen latest(troupe::Context& ctx, const train::Fit& fit) {
  Seen seen;
  train::load_model(ctx, fit.latest_checkpoint(), 10s, seen);
  return seen;
}

TEST_F(FitVerbs, ASavedModelLoadsIntoItsOwnTypesAlone) {
  const train::SavedModel saved = train::save_model(ctx, 1, std::vector<float>{1, 2}, 7L);
  std::vector<std::int32_t> integers;
  std::vector<float> floats;
  long step = 0;
  EXPECT_THROW(train::load_model(ctx, saved, 10s, integers, step), troupe::InvalidArgument);
  EXPECT_THROW(train::load_model(ctx, saved, 10s, step, floats), troupe::InvalidArgument);
  EXPECT_TRUE(integers.empty());
  train::load_model(ctx, saved, 10s, floats, step);
  EXPECT_EQ(floats, (std::vector<float>{1, 2}));
  EXPECT_EQ(step, 7);
}

TEST_F(FitVerbs, EachPassIsAnEpochOfItsOwn) {
  auto data = ctx.put(numbers());
  const train::Fit fit = train::fit<epochs>(ctx, {.workers = 1}, Plan{}, data);
  EXPECT_EQ(fit.last().step, 3 * (8 + 2));
  const std::vector<int> seen = latest(ctx, fit).values;
  ASSERT_EQ(seen.size(), 3u * (64 + 4));
  std::vector<std::vector<int>> orders;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    const auto begin = seen.begin() + static_cast<std::ptrdiff_t>(epoch * 68);
    std::vector<int> order(begin, begin + 64);
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, numbers().values) << "epoch " << epoch;
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  const train::Fit hoisted = train::fit<epochs>(ctx, {.workers = 1}, Plan{.hoisted = true}, data);
  EXPECT_EQ(latest(ctx, hoisted).values, seen);
}

TEST_F(FitVerbs, ARestartInAnyPassGoesOnBehindTheCheckpoint) {
  auto data = ctx.put(numbers());
  const train::FitOptions options{.workers = 2, .max_restarts = 1};
  const train::Fit calm = train::fit<epochs>(ctx, options, Plan{}, data);
  for (const long die_at : {4L, 9L, 13L, 19L, 24L, 30L}) {
    const train::Fit fit = train::fit<epochs>(ctx, options, Plan{.die_at = die_at}, data);
    EXPECT_EQ(fit.restarts(), 1) << die_at;
    EXPECT_EQ(fit.history().size(), 30u) << die_at;
    EXPECT_EQ(latest(ctx, fit).values, latest(ctx, calm).values) << die_at;
  }
}

/// Rank 0's loss is better in each step; the mean of both ranks is least in step 2. Only rank 1
/// knows the accuracy.
void judged(train::Worker& w) {
  constexpr double other[] = {9, 1, 9, 9};
  constexpr double accuracy[] = {0.1, 0.2, 0.9, 0.3};
  for (int i = 0; i < 4; ++i) {
    w.next_step();
    w.checkpoint(i);
    train::Metrics metrics{.step = w.step(), .loss = w.rank() == 0 ? 4.0 - i : other[i]};
    if (w.rank() == 1) metrics.extra["accuracy"] = accuracy[i];
    w.report(metrics);
  }
}

TEST_F(FitVerbs, TheBestCheckpointHasTheBestMetricOfAllRanks) {
  const train::Fit loss = train::fit<judged>(ctx, {.workers = 2});
  EXPECT_EQ(loss.best_checkpoint().step, 2);
  EXPECT_EQ(loss.best_value(), 2);
  ASSERT_EQ(loss.history().size(), 4u);
  EXPECT_EQ(loss.history()[0].loss, 6.5);
  EXPECT_EQ(loss.last().loss, 5);
  EXPECT_EQ(loss.latest_checkpoint().step, 4);
  const train::Fit accuracy =
      train::fit<judged>(ctx, {.workers = 2, .metric = "accuracy", .maximize = true});
  EXPECT_EQ(accuracy.best_checkpoint().step, 3);
  EXPECT_EQ(accuracy.best_value(), 0.9);
  int kept = 0;
  accuracy.restore(kept);
  EXPECT_EQ(kept, 2);
  const train::Fit least =
      train::fit<judged>(ctx, {.workers = 2, .reduce = train::MetricReduce::min, .maximize = true});
  EXPECT_EQ(least.best_checkpoint().step, 1) << "the smaller loss of the two is 4 there";
  const train::Fit unknown = train::fit<judged>(ctx, {.workers = 2, .metric = "misspelt"});
  EXPECT_FALSE(unknown.best_value());
  EXPECT_EQ(unknown.best_checkpoint().step, 4);
}

void on_rank_0(train::Worker& w) {
  for (int i = 0; i < 50; ++i) {
    w.next_step();
    float x = 1;
    w.all_reduce_mean(std::span(&x, 1));
    if (w.rank() == 0) w.report({.step = w.step(), .loss = 50.0 - i});
  }
}
TEST_F(FitVerbs, ReportsOfRank0AloneCount) {
  const train::Fit fit = train::fit<on_rank_0>(ctx, {.workers = 3});
  EXPECT_EQ(fit.history().size(), 50u);
  EXPECT_EQ(fit.last().loss, 1);
}

void quiet(train::Worker& w, int steps) noexcept {
  for (int i = 0; i < steps; ++i) w.next_step();
  w.report({.step = w.step()});
}
TEST_F(FitVerbs, NoexceptLoopsAndLambdasAreLoops) {
  EXPECT_EQ(train::fit<quiet>(ctx, {}, 7).last().step, 7);
  constexpr auto lambda = [](train::Worker& w, int steps) {
    for (int i = 0; i < steps; ++i) w.next_step();
    w.report({.step = w.step()});
  };
  EXPECT_EQ(train::fit<lambda>(ctx, {}, 8).last().step, 8);
  EXPECT_EQ(train::fit(ctx, {}, lambda, 9).last().step, 9);
  EXPECT_EQ(
      train::fit(ctx, {}, [](train::Worker& w) noexcept { w.report({.step = 3}); }).last().step, 3);
}

TEST_F(FitVerbs, DurationsAndNumbersAtTheirEnds) {
  for (const troupe::Duration timeout :
       {troupe::forever, troupe::forever - 1ns, troupe::Duration(365 * 24h)}) {
    const train::Fit fit = train::fit<on_rank_0>(ctx, {.workers = 2, .timeout = timeout});
    EXPECT_EQ(fit.last().step, 50);
  }
  for (const troupe::Duration timeout : {troupe::Duration::zero(), troupe::Duration(-1ns),
                                         troupe::Duration::min(), troupe::Duration(-1h)})
    EXPECT_THROW(train::fit<on_rank_0>(ctx, {.timeout = timeout}), troupe::InvalidArgument);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-1.0, nan, std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(train::fit<on_rank_0>(ctx, {.gpus_per_worker = bad}), troupe::InvalidArgument);
    EXPECT_THROW(train::fit<on_rank_0>(ctx, {.cpus_per_worker = bad}), troupe::InvalidArgument);
  }
  for (const double far : {1e300, 1e15})
    EXPECT_THROW(train::fit<on_rank_0>(ctx, {.workers = 2, .cpus_per_worker = far}),
                 troupe::InvalidArgument);
  try {
    static_cast<void>(train::fit<on_rank_0>(ctx, {.cpus_per_worker = -0.25}));
    ADD_FAILURE() << "a negative amount";
  } catch (const troupe::InvalidArgument& error) {
    EXPECT_EQ(error.message(),
              "train: cpus_per_worker is -0.25: give a number that is not negative");
  }
  for (const int bad : {0, -1, 1025})
    EXPECT_THROW(train::fit<on_rank_0>(ctx, {.workers = bad}), troupe::InvalidArgument);
  EXPECT_THROW(train::fit<on_rank_0>(ctx, {.max_restarts = -2}), troupe::InvalidArgument);
  EXPECT_THROW(train::fit<on_rank_0>(ctx, {.metric = ""}), troupe::InvalidArgument);
}

void shards(train::Worker& w, long steps, long epochs) {
  const Numbers data = numbers();
  for (const auto& batch : w.shard(data, {.batch = 8, .steps = steps, .epochs = epochs})) {
    static_cast<void>(batch);
    if (w.step() == 100) break;
  }
  w.report({.step = w.step()});
}
TEST_F(FitVerbs, ShardsAtTheirEnds) {
  const long most = std::numeric_limits<long>::max();
  EXPECT_EQ(train::fit<shards>(ctx, {}, 0L, most).last().step, 100);
  EXPECT_EQ(train::fit<shards>(ctx, {}, most, 1L).last().step, 100);
  EXPECT_EQ(train::fit<shards>(ctx, {}, 0L, 0L).last().step, 0);
  EXPECT_THROW(train::fit<shards>(ctx, {}, -1L, 1L), troupe::TaskFailed);
  EXPECT_THROW(train::fit<shards>(ctx, {}, 0L, -1L), troupe::TaskFailed);
}

/// Dies three times and then succeeds; restarts are not limited.
void unlucky(train::Worker& w) {
  if (w.incarnation() < 3) ::raise(SIGKILL);
  w.next_step();
  w.report({.step = w.step()});
}
TEST_F(FitVerbs, RestartsWithoutLimit) {
  EXPECT_EQ(train::fit<unlucky>(ctx, {.max_restarts = -1}).restarts(), 3);
}

TEST(FitNodes, GangsThatShareCpusWaitForEachOther) {
  troupe::Session session({.cpus = 4});
  std::atomic<int> done{0};
  std::vector<std::thread> drivers;
  for (int i = 0; i < 4; ++i)
    drivers.emplace_back([&] {
      troupe::Context own = session.context();
      const train::FitOptions two{.workers = 2, .cpus_per_worker = 2};
      if (train::fit<on_rank_0>(own, two).last().step == 50) done.fetch_add(1);
    });
  for (std::thread& driver : drivers) driver.join();
  EXPECT_EQ(done.load(), 4);
}

/// An actor that keeps the CPUs of its node.
struct Holder {
  int hold() { return 0; }
};
/// Reports the node on which it runs. In step 10 of the first gang that node dies.
void on_a_node(train::Worker& w, troupe::NodeId driver, bool node_goes) {
  int kept = 0;
  w.restore(kept);
  if (w.context().node() == driver) throw std::runtime_error("it runs on the driver's node");
  while (w.step() < 20) {
    w.next_step();
    if (node_goes && w.rank() == 0 && w.step() == 10 && w.incarnation() == 0)
      ::kill(agent_of_this_node(), SIGKILL);
    float x = 1;
    w.all_reduce_mean(std::span(&x, 1));
    if (w.step() % 4 == 0) w.checkpoint(kept = static_cast<int>(w.step()));
    w.report({.step = w.step()});
  }
}

TEST(FitNodes, RanksGoWhereCpusAreAndALostNodeIsARestart) {
  troupe::Session session({.cpus = 2, .nodes = 3});
  troupe::Context ctx = session.context();
  ASSERT_TRUE(eventually([&] { return ctx.cluster().nodes.size() == 3; }));
  auto holder =
      ctx.with({.cpus = 2, .placement = troupe::Placement::on(ctx.node())}).spawn<Holder>();
  ctx.get(holder.call<&Holder::hold>());
  const train::FitOptions two{.workers = 2, .max_restarts = 3, .cpus_per_worker = 1};
  const train::Fit calm = train::fit<on_a_node>(ctx, two, ctx.node(), false);
  EXPECT_EQ(calm.restarts(), 0);
  EXPECT_EQ(calm.history().size(), 20u);
  // The checkpoints go with the node, so the run begins again on the last node.
  const train::Fit fit = train::fit<on_a_node>(ctx, two, ctx.node(), true);
  EXPECT_GE(fit.restarts(), 1);
  EXPECT_EQ(fit.history().size(), 20u);
  EXPECT_EQ(fit.latest_checkpoint().step, 20);
  int kept = 0;
  fit.restore(kept);
  EXPECT_EQ(kept, fit.best_checkpoint().step);
}

}  // namespace fit_verbs
