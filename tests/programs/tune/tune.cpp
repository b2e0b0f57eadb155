// Proves the basics of tuning: searchers, schedulers, targets, failing trials, and spaces.
#include "troupe/tune/tune.hpp"

#include "tests/programs/program.hpp"

#include <unistd.h>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace tuning {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
namespace tune = troupe::tune;

struct Hp {
  double rate = 0.1;
};
/// A model of one weight, which falls towards 0 at the trial's rate.
struct Net {
  std::vector<double> weight = {1.0};
  [[maybe_unused]] friend auto fields(Net& n) { return std::tie(n.weight); }
  [[maybe_unused]] friend auto fields(const Net& n) { return std::tie(n.weight); }
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-3, 0.3));
}

void falls(tune::Trial& t, Hp hp) {
  Net net;
  t.restore(net);
  do net.weight[0] *= 1 - hp.rate;
  while (t.report(net.weight[0], net));
}
void search(Context& ctx) {
  const auto best = tune::optimize<falls, Hp>(
      ctx, space(),
      {.goal = tune::minimize, .trials = 4, .max_steps = 10, .seed = 1, .show = false});
  Net net;
  best.restore(ctx, net);
  bool is_least = true;
  for (const auto& trial : best.board.trials) is_least = is_least && best.score <= trial.score();
  std::cout << best.board.trials.size() << ' ' << is_least << ' ' << (net.weight[0] == best.score)
            << '\n';
}
/// Proves that a random search finds the best of its trials and restores its model.
const Program random{"random_search", {.expect = "4 1 1\n", .seconds = 30}, search};

void population(Context& ctx) {
  const auto best = tune::optimize<falls, Hp, tune::Pbt>(ctx, space(),
                                                         {.goal = tune::minimize,
                                                          .trials = 4,
                                                          .scheduler = {.perturb_every = 4},
                                                          .max_steps = 12,
                                                          .seed = 1,
                                                          .show = false});
  Net net;
  best.restore(ctx, net);
  std::cout << (best.score < 1) << (net.weight[0] == best.score) << '\n';
}
/// Proves that population based training restores the model of its best score.
const Program pbt{"population_based", {.expect = "11\n", .seconds = 30}, population};

void until_target(Context& ctx) {
  // However a run ends, the best model is the one with the best score.
  const auto best = tune::optimize<falls, Hp>(ctx, space(),
                                              {.goal = tune::minimize,
                                               .trials = 2,
                                               .max_steps = 1000,
                                               .target = 0.5,
                                               .seed = 1,
                                               .show = false});
  Net net;
  best.restore(ctx, net);
  std::cout << (best.score <= 0.5) << (net.weight[0] == best.score) << '\n';
}
/// Proves that a run ends at its target with the model of that score.
const Program target{"a_target_is_reached", {.expect = "11\n", .seconds = 30}, until_target};

void returns_early(tune::Trial& t, Hp hp) {
  Net net;
  for (int i = 0; i < 5; ++i) {
    net.weight[0] *= 1 - hp.rate;
    if (!t.report(net.weight[0], net)) return;
  }
}
void by_itself(Context& ctx) {
  const auto best = tune::optimize<returns_early, Hp>(
      ctx, space(),
      {.goal = tune::minimize, .trials = 2, .max_steps = 100, .seed = 1, .show = false});
  Net net;
  best.restore(ctx, net);
  std::cout << (net.weight[0] == best.score) << ' ' << best.board.trials[0].step() << '\n';
}
/// Proves that a trial may return before its last step.
const Program itself{"a_trial_returns_by_itself", {.expect = "1 5\n", .seconds = 30}, by_itself};

void never_reports(tune::Trial&, Hp) {}
void silent(Context& ctx) {
  const auto best = tune::optimize<never_reports, Hp>(
      ctx, space(), {.goal = tune::minimize, .trials = 2, .max_steps = 5, .show = false});
  std::cout << tune::name_of(best.board.trials[0].state) << ' ' << best.board.trials[0].note.empty()
            << ' ' << std::isnan(best.score) << '\n';
}
/// Proves that a trial without a report fails with a note.
const Program unreported{
    "a_trial_without_a_report", {.expect = "failed 0 1\n", .seconds = 30}, silent};

void throws(tune::Trial& t, Hp hp) {
  if (t.number() == 0) throw std::runtime_error("a bug of the trial");
  falls(t, hp);
}
void one_throws(Context& ctx) {
  const auto best = tune::optimize<throws, Hp>(
      ctx, space(),
      {.goal = tune::minimize, .trials = 3, .max_steps = 5, .seed = 1, .show = false});
  const auto& first = best.board.trials[0];
  std::cout << tune::name_of(first.state) << ' '
            << (first.note.find("a bug of the trial") != std::string::npos) << ' '
            << tune::name_of(best.board.trials[1].state) << '\n';
}
/// Proves that one throwing trial fails and the others complete.
const Program thrown{
    "a_trial_throws", {.expect = "failed 1 completed\n", .seconds = 30}, one_throws};

void dies_once(tune::Trial& t, Hp hp) {
  Net net;
  t.restore(net);
  do {
    if (t.number() == 1 && t.attempt() == 1 && t.step() == 7) ::raise(SIGKILL);
    net.weight[0] *= 1 - hp.rate;
  } while (t.report(net.weight[0], net));
}
void dying(Context& ctx) {
  const auto best = tune::optimize<dies_once, Hp>(ctx, space(),
                                                  {.goal = tune::minimize,
                                                   .trials = 2,
                                                   .max_failures = 1,
                                                   .max_steps = 12,
                                                   .save_every = 5,
                                                   .show = false});
  const auto& second = best.board.trials.at(1);
  std::cout << tune::name_of(second.state) << ' ' << second.failures << ' ' << second.step()
            << '\n';
}
/// Proves that a killed trial resumes from its saved model.
const Program dies{"a_trial_dies", {.expect = "completed 1 12\n", .seconds = 30}, dying};

void near(tune::Trial& t, Hp) {
  while (t.report(t.number() == 0 ? 0.3 : 0.1 + 0.2)) {
  }
}
void pictures(Context& ctx) {
  const std::string folder = "/tmp/" + std::to_string(::getpid()) + ".results";
  const auto best = tune::optimize<near, Hp>(
      ctx, space(),
      {.goal = tune::minimize, .trials = 2, .max_steps = 3, .show = false, .results = folder});
  std::cout << (best.score <= 0.1 + 0.2) << !std::filesystem::is_empty(folder) << '\n';
  std::filesystem::remove_all(folder);
}
/// Proves that scores which differ in the last bit do not break the pictures of the results.
const Program picture{"scores_one_ulp_apart", {.expect = "11\n", .seconds = 20}, pictures};

struct Small {
  std::uint8_t width = 1;
  float rate = 0.1f;
  std::string kind = "a";
};
void refusals(Context&) {
  const auto refused = [](auto&& make) {
    try {
      make();
      return false;
    } catch (const troupe::InvalidArgument&) {
      return true;
    }
  };
  tune::Space<Small> small;
  std::cout << refused([&] { small.with(&Small::width, tune::integers(0, 300)); })
            << refused([] { tune::uniform(-1.7e308, 1.7e308); })
            << refused([] { tune::uniform(1, 0); }) << refused([] { tune::log_uniform(0, 1); })
            << refused([&] { small.with(&Small::width, tune::uniform(0, 1)); }) << '\n';
}
/// Proves that senseless domains are refused when they are made.
const Program refuses{"spaces_that_make_no_sense", {.expect = "11111\n"}, refusals};

void kinds(tune::Trial& t, Small hp) {
  while (t.report(hp.width + (hp.kind == "b" ? 0.5 : 0.0))) {
  }
}
void grids(Context& ctx) {
  auto space = tune::Space<Small>{}
                   .with(&Small::width, tune::integers(1, 2))
                   .with(&Small::kind, tune::choice("a", "b"));
  const auto best = tune::optimize<kinds, Small>(ctx, space,
                                                 {.goal = tune::maximize,
                                                  .trials = 4,
                                                  .searcher = tune::GridSearch{},
                                                  .max_steps = 1,
                                                  .show = false});
  std::cout << best.score << ' ' << static_cast<int>(best.params.width) << best.params.kind << '\n';
}
/// Proves that a grid search tries every combination.
const Program grid{"a_grid", {.expect = "2.5 2b\n", .seconds = 30}, grids};

}  // namespace
}  // namespace tuning
