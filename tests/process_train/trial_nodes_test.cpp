// Tests trials on several nodes: where they run, gangs inside them, and lost nodes.
#include "tests/eventually.hpp"
#include "tests/process_train/nodes.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>

namespace trial_nodes {

using namespace std::chrono_literals;
namespace tune = troupe::tune;
namespace train = troupe::train;

struct Hp {
  double rate = 0.1;
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-2, 0.3));
}

struct TrialNodes : testing::Test {
  troupe::Session session{{.cpus = 2, .nodes = 3}};
  troupe::Context ctx = session.context();
  void SetUp() override {
    ASSERT_TRUE(eventually([this] { return ctx.cluster().nodes.size() == 3; }));
  }
};

void sleeps(tune::Trial& t, Hp) {
  t.note(t.context().node().str());
  std::this_thread::sleep_for(200ms);
  t.report(1);
}

TEST_F(TrialNodes, EachNodeRunsItsShare) {
  const auto best = tune::optimize<sleeps, Hp>(
      ctx, space(), {.goal = tune::minimize, .trials = 24, .max_steps = 1, .show = false});
  std::map<std::string, int> by_node;
  for (const std::string& note : best.notes) ++by_node[note.substr(note.find(": ") + 2)];
  int on_nodes = 0;
  for (const troupe::NodeInfo& node : ctx.cluster().nodes) {
    EXPECT_GE(by_node[node.id.str()], 4) << node.name;
    on_nodes += by_node[node.id.str()];
  }
  EXPECT_EQ(on_nodes, 24);
}

TEST_F(TrialNodes, WhatNoNodeHoldsIsRefusedAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  tune::Options<> options{
      .goal = tune::minimize, .trials = 2, .per_trial = {.cpus = 3}, .show = false};
  try {
    tune::optimize<sleeps, Hp>(ctx, space(), options);
    FAIL() << "three CPUs of two";
  } catch (const troupe::Infeasible& error) {
    EXPECT_NE(error.message().find("a trial needs 3 CPUs, and the largest node, node-"),
              std::string::npos)
        << error.message();
  }
  options.per_trial = {.cpus = 1, .workers = 7};
  EXPECT_THROW((tune::optimize<sleeps, Hp>(ctx, space(), options)), troupe::Infeasible);
  options.per_trial = {.cpus = -1};
  EXPECT_THROW((tune::optimize<sleeps, Hp>(ctx, space(), options)), troupe::InvalidArgument);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

constexpr auto steps = [](train::Worker& w) noexcept {
  std::vector<float> model(1);
  w.restore(model);
  do {
    w.next_step();
    w.all_reduce_mean(model);
    w.checkpoint(model);
  } while (w.report({.step = w.step(), .loss = 1.0 / static_cast<double>(w.step())}));
};
void gang(tune::Trial& t, Hp, int workers) {
  train::fit(t, {.workers = workers, .cpus_per_worker = 1}, steps);
}

TEST(TrialGangs, TwoOnTwoCpusBothComplete) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const tune::Options<tune::Pbt> options{.goal = tune::minimize,
                                         .trials = 2,
                                         .scheduler = {.perturb_every = 2, .synchronous = true},
                                         .max_steps = 6,
                                         .per_trial = {.workers = 2},
                                         .seed = 1,
                                         .show = false};
  const auto best = tune::optimize<gang, Hp>(ctx, space(), options, 2);
  for (const tune::TrialInfo& trial : best.board.trials) {
    EXPECT_EQ(trial.state, tune::TrialState::completed) << trial.number << ": " << trial.note;
    EXPECT_EQ(trial.step(), 6);
  }
}

TEST(TrialGangs, AGangTakesNoMoreThanItsTrialReserves) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  const auto best = tune::optimize<gang, Hp>(
      ctx, space(), {.goal = tune::minimize, .trials = 1, .max_steps = 2, .show = false}, 2);
  EXPECT_NE(best.board.trials.at(0).note.find(
                "workers is 2 in a trial whose tune::Options::per_trial.workers is 0"),
            std::string::npos)
      << best.board.trials.at(0).note;
}

TEST_F(TrialNodes, AGangThatNoNodeHoldsGathersOverNodes) {
  const tune::Options<> options{.goal = tune::minimize,
                                .trials = 3,
                                .max_steps = 3,
                                .per_trial = {.workers = 4},
                                .show = false};
  const auto best = tune::optimize<gang, Hp>(ctx, space(), options, 4);
  for (const tune::TrialInfo& trial : best.board.trials)
    EXPECT_EQ(trial.state, tune::TrialState::completed) << trial.number << ": " << trial.note;
}

/// Counts its steps in the model. The first attempt of trial 1 takes its node along at step 5.
void on_a_bad_node(tune::Trial& t, Hp, const troupe::NodeId& drivers) {
  std::vector<double> model = {0};
  t.restore(model);
  t.note("begins at " + std::to_string(static_cast<int>(model[0])));
  do {
    if (model[0] == 5 && t.attempt() == 1 && t.context().node() != drivers && t.number() == 1)
      ::kill(agent_of_this_node(), SIGKILL);
    std::this_thread::sleep_for(20ms);
    model[0] += 1;
  } while (t.report(1 / model[0], model));
}

TEST_F(TrialNodes, TrialsOfALostNodeGoOnElsewhereFromACopy) {
  const tune::Options<> options{.goal = tune::minimize,
                                .trials = 6,
                                .max_failures = 0,
                                .max_steps = 12,
                                .save_every = 2,
                                .show = false};
  const auto best = tune::optimize<on_a_bad_node, Hp>(ctx, space(), options, ctx.node());
  int lost = 0;
  for (const tune::TrialInfo& trial : best.board.trials) {
    EXPECT_EQ(trial.state, tune::TrialState::completed) << trial.number << ": " << trial.note;
    EXPECT_EQ(trial.failures, 0);
    EXPECT_EQ(trial.step(), 12);
    lost += trial.attempt - 1;
  }
  EXPECT_GE(lost, 1);
  int resumed = 0;
  for (const std::string& note : best.notes) {
    if (note.find("begins at ") != std::string::npos &&
        note.find("begins at 0") == std::string::npos)
      ++resumed;
  }
  EXPECT_EQ(resumed, lost) << "each goes on from a checkpoint";
  std::vector<double> model = {0};
  best.restore(ctx, model);
  EXPECT_EQ(model[0], 12);
}

}  // namespace trial_nodes
