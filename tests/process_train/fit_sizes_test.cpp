// Tests the sizes and places that fit() refuses before it makes a rank, and what it tells of gangs.
#include "tests/eventually.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace fit_sizes {

namespace train = troupe::train;

/// A loop that leaves a mark when it runs at all.
void leaves_a_mark(train::Worker&, const std::string& path) {
  if (std::FILE* file = std::fopen(path.c_str(), "w")) std::fclose(file);
}

struct FitSizes : testing::Test {
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
  const std::string mark = testing::TempDir() + "fit_sizes." + std::to_string(::getpid());

  template <class E>
  std::string refusal(const train::FitOptions& options) {
    std::string said = "it went through";
    try {
      train::fit<leaves_a_mark>(ctx, options, mark);
    } catch (const E& error) {
      said = error.message();
    }
    EXPECT_NE(::access(mark.c_str(), F_OK), 0) << "a rank has run";
    static_cast<void>(std::remove(mark.c_str()));
    return said;
  }
};

TEST_F(FitSizes, SizesThatCannotBeAreRefusedBeforeARankIsMade) {
  const auto refused = [this](const train::FitOptions& options) {
    return refusal<troupe::InvalidArgument>(options);
  };
  EXPECT_EQ(refused({.workers = {4, 2}, .cpus_per_worker = 1}),
            "train: workers are {4, 2}: give the least number first");
  EXPECT_EQ(refused({.workers = {0, 3}, .cpus_per_worker = 1}),
            "train: workers must be 1 to 1024, not 0");
  EXPECT_EQ(refused({.workers = {2, 4}}),
            "train: workers are {2, 4} and reserve nothing, so no room limits them: set "
            "cpus_per_worker, or give one number");
  EXPECT_EQ(refused({.workers = {3, 8}, .layout = {.tp = 2, .pp = 2}, .cpus_per_worker = 1}),
            "train: at least 3 workers do not divide into tp * pp = 4: let the least number be 4");
  EXPECT_EQ(
      refused({.workers = {2, 4}, .layout = {.dp = 2}, .cpus_per_worker = 1}),
      "train: layout.dp is 2 and the workers are {2, 4}: leave dp at 1, since it follows from "
      "the size of the gang");
  EXPECT_NE(refused({.placement = troupe::Placement::on(ctx.node())}).find("Placement::pack"),
            std::string::npos);
  EXPECT_NE(refused({.grow_after = -std::chrono::seconds(1)}).find("grow_after"),
            std::string::npos);
}

struct Trial final : train::GangObserver {
  train::SavedModel start() override { return {}; }
  void restored(std::uint64_t) override {}
  bool reported(const train::Metrics&, const train::SavedModel&) override { return true; }
  void restarted(const std::string&, long) override {}
};

TEST_F(FitSizes, ATrialHasOneSize) {
  Trial trial;
  try {
    train::fit_observed<leaves_a_mark>(ctx, {.workers = {2, 4}, .cpus_per_worker = 1}, trial, mark);
    ADD_FAILURE() << "it went through";
  } catch (const troupe::InvalidArgument& error) {
    EXPECT_EQ(error.message(),
              "train: workers are {2, 4} in a trial, whose size stays the same: give one number");
  }
}

TEST_F(FitSizes, RanksThatDivideTensorsAndFitOnNoNodeAreRefused) {
  EXPECT_EQ(refusal<troupe::Infeasible>({.workers = 4, .layout = {.tp = 4}, .cpus_per_worker = 1}),
            "train: a gang of 4 has tp = 4, and no node has room for 4 ranks with 1 CPU each: use "
            "fewer workers, reserve less for each of them, or add a larger node");
}

/// Dies once at step 3, after a checkpoint of step 2.
void dies_once(train::Worker& w) {
  int kept = 0;
  w.restore(kept);
  while (w.step() < 5) {
    w.next_step();
    if (w.step() == 3 && w.incarnation() == 0 && w.rank() == 1) ::raise(SIGKILL);
    w.all_reduce_sum(1.0);
    w.report({.step = w.step()});
    if (w.wants_checkpoint()) w.checkpoint(kept = static_cast<int>(w.step()));
  }
}

TEST_F(FitSizes, EachGangIsToldWithItsProcessesAndFirstStep) {
  std::vector<train::Gang> gangs;
  const train::Fit fit = train::fit<dies_once>(
      ctx, {.workers = 2, .max_restarts = 1, .run = {.every = 2}, .on_gang = [&](const auto& gang) {
              gangs.push_back(gang);
            }});
  EXPECT_EQ(fit.ranks(), 2);
  EXPECT_EQ(fit.moves(), 0);
  EXPECT_EQ(fit.resumed_from(), 0);
  EXPECT_EQ(fit.latest_checkpoint().step, 4);
  ASSERT_EQ(gangs.size(), 2U);
  EXPECT_EQ(gangs[0].step, 0);
  EXPECT_EQ(gangs[1].step, 2);
  for (const train::Gang& gang : gangs) {
    ASSERT_EQ(gang.ranks.size(), 2U);
    EXPECT_NE(gang.ranks[0].pid, gang.ranks[1].pid);
    for (int rank = 0; rank < 2; ++rank) {
      const train::Gang::Rank& each = gang.ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(each.rank, rank);
      EXPECT_GT(each.pid, 1);
      EXPECT_EQ(each.node, ctx.cluster().nodes.front().name);
    }
  }
}

/// Asks in each step; no rank asks for one, so all answers come from the number of steps.
void asks(train::Worker& w) {
  std::int64_t yes = 0;
  while (w.step() < 1000) {
    w.next_step();
    if (w.wants_checkpoint()) ++yes;
  }
  if (w.all_reduce_sum(yes) != 2 * 10) throw std::runtime_error("the ranks got other answers");
  w.report({.step = w.step()});
}

TEST_F(FitSizes, AllRanksGetTheSameAnswersWithoutATalkInEachStep) {
  EXPECT_EQ(train::fit<asks>(ctx, {.workers = 2, .run = {.every = 100}}).last().step, 1000);
}

TEST_F(FitSizes, AGangStartsWithWhatFits) {
  const train::Fit fit =
      train::fit<asks>(ctx, {.workers = {1, 4}, .cpus_per_worker = 1, .run = {.every = 100}});
  EXPECT_EQ(fit.ranks(), 2);
}

/// An actor that keeps a CPU.
struct Holder {
  int hold() { return 0; }
};
/// Runs until there are two ranks, and then five steps. Leaves a mark after the third step.
void until_two(train::Worker& w, const std::string& mark) {
  int kept = 0;
  w.restore(kept);
  const long last = w.world() == 2 ? w.step() + 5 : 5000;
  while (w.step() < last) {
    w.next_step();
    w.all_reduce_sum(1.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    w.report({.step = w.step()});
    if (w.wants_checkpoint()) w.checkpoint(kept = static_cast<int>(w.step()));
    if (w.step() == 3)
      if (std::FILE* file = std::fopen(mark.c_str(), "w")) std::fclose(file);
  }
}

TEST_F(FitSizes, AGangGrowsIntoACpuThatComesFreeAndThatIsNoRestart) {
  auto holder = ctx.with({.cpus = 1}).spawn<Holder>();
  ctx.get(holder.call<&Holder::hold>());
  std::vector<train::Gang> gangs;
  std::thread frees([&] {
    EXPECT_TRUE(eventually([&] { return ::access(mark.c_str(), F_OK) == 0; }));
    ctx.kill(holder);
  });
  const train::Fit fit =
      train::fit<until_two>(ctx,
                            {.workers = {1, 2},
                             .cpus_per_worker = 1,
                             .grow_after = std::chrono::milliseconds(50),
                             .on_gang = [&](const train::Gang& gang) { gangs.push_back(gang); }},
                            mark);
  frees.join();
  static_cast<void>(std::remove(mark.c_str()));
  EXPECT_EQ(fit.moves(), 1);
  EXPECT_EQ(fit.restarts(), 0);
  EXPECT_EQ(fit.ranks(), 2);
  ASSERT_EQ(gangs.size(), 2U);
  EXPECT_EQ(gangs[0].ranks.size(), 1U);
  EXPECT_GT(gangs[1].step, 0);
  ASSERT_EQ(fit.history().size(), static_cast<std::size_t>(gangs[1].step + 5));
  for (std::size_t i = 0; i < fit.history().size(); ++i)
    EXPECT_EQ(fit.history()[i].step, static_cast<long>(i) + 1);
}

}  // namespace fit_sizes
