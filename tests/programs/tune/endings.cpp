// Proves trials and experiments that end in unusual ways.
#include "troupe/tune/tune.hpp"

#include "tests/programs/program.hpp"

#include <unistd.h>
#include <clocale>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tuning_ends {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
namespace tune = troupe::tune;

struct Hp {
  double rate = 0.1;
};
struct Net {
  std::vector<double> weight = {1.0};
  [[maybe_unused]] friend auto fields(Net& n) { return std::tie(n.weight); }
  [[maybe_unused]] friend auto fields(const Net& n) { return std::tie(n.weight); }
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-3, 0.3));
}
template <class B>
bool exact(Context& ctx, const B& best) {
  Net net;
  best.restore(ctx, net);
  return net.weight[0] == best.score;
}

/// The best state of a trial is in its middle.
void hill(tune::Trial& t, Hp, int ending) {
  Net net;
  for (int step = 1; step <= 9; ++step) {
    net.weight[0] = step <= 5 ? 10.0 - step : step;
    if (ending == 1 && step == 8) throw std::runtime_error("boom");
    if (ending == 2 && step == 8) ::raise(SIGKILL);
    if (!t.report(net.weight[0], net)) return;
  }
}
void every_way(Context& ctx) {
  for (const int ending : {0, 1, 2}) {
    const auto best = tune::optimize<hill, Hp>(
        ctx, space(), {.goal = tune::minimize, .trials = 2, .max_steps = 50, .show = false},
        ending);
    std::cout << best.score << exact(ctx, best) << ' ';
  }
  const auto failing = tune::optimize<hill, Hp>(
      ctx, space(),
      {.goal = tune::minimize, .trials = 2, .fail_fast = true, .max_steps = 50, .show = false}, 1);
  std::cout << exact(ctx, failing) << '\n';
}
/// Proves that the best model is kept when its trial stops, throws or is killed later.
const Program ends{
    "the_best_model_however_a_trial_ends", {.expect = "51 51 51 1\n", .seconds = 60}, every_way};

void deaf(tune::Trial& t, Hp) {
  Net net;
  for (long step = 1;; ++step) {
    net.weight[0] = step <= 2 ? 94.0 : 70.0;
    static_cast<void>(t.report(net.weight[0], net));
  }
}
void ignoring(Context& ctx) {
  const auto best = tune::optimize<deaf, Hp, tune::AsyncHyperBand>(ctx, space(),
                                                                   {.goal = tune::maximize,
                                                                    .trials = 2,
                                                                    .scheduler = {.max_steps = 2},
                                                                    .show = false,
                                                                    .stop_grace = 300ms});
  std::cout << best.score << exact(ctx, best);
  for (const auto& trial : best.board.trials) std::cout << ' ' << trial.score() << trial.failures;
  std::cout << '\n';
}
/// Proves that a trial which ignores its stop is ended, and that its later scores do not count.
const Program ignores{
    "a_trial_ignores_the_stop", {.expect = "941 940 940\n", .seconds = 30}, ignoring};

void slow(tune::Trial& t, Hp hp) {
  Net net;
  do net.weight[0] *= 1 - hp.rate;
  while (t.report(net.weight[0], net) && ::usleep(20'000) <= 0);
}
void limited(Context& ctx) {
  const auto best = tune::optimize<slow, Hp>(
      ctx, space(), {.goal = tune::minimize, .trials = 2, .time_limit = 1500ms, .show = false});
  std::cout << exact(ctx, best) << ' '
            << (best.board.why_over.find("time limit") != std::string::npos) << '\n';
}
/// Proves that a time limit ends an experiment and leaves its best model.
const Program limit{"a_time_limit_strikes", {.expect = "1 1\n", .seconds = 30}, limited};

void no_model(tune::Trial& t, Hp hp) {
  while (t.report(hp.rate)) {
  }
}
void named(Context& ctx) {
  const auto best = tune::optimize<no_model, Hp>(
      ctx, space(), {.goal = tune::minimize, .trials = 2, .max_steps = 3, .show = false});
  std::cout << (best.no_model.find("report(score, model)") != std::string::npos)
            << (best.notes.size() == 1);
  for (const bool synchronous : {false, true}) {
    const tune::Options<tune::Pbt> options{
        .goal = tune::minimize,
        .trials = 4,
        .scheduler = {.perturb_every = 2, .synchronous = synchronous},
        .max_steps = 500,
        .show = false};
    try {
      static_cast<void>(tune::optimize<no_model, Hp>(ctx, space(), options));
      std::cout << 'f';
    } catch (const troupe::InvalidArgument& error) {
      std::cout << (std::string(error.what()).find("without one") != std::string::npos);
    }
  }
  std::cout << '\n';
}
/// Proves that an experiment without models says so, and that PBT refuses it.
const Program missing{"a_missing_model_is_named", {.expect = "1111\n", .seconds = 60}, named};

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}
void folders(Context& ctx) {
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // no file may contain decimal commas
  const std::string folder = "/tmp/" + std::to_string(::getpid()) + ".ends";
  const tune::Options<> options{
      .goal = tune::minimize, .trials = 1, .max_steps = 3, .show = false, .results = folder};
  const auto first = tune::optimize<slow, Hp>(ctx, space(), options);
  std::cout << exact(ctx, first);
  const auto again = tune::optimize<slow, Hp>(ctx, space(), options);
  std::cout << (again.score == first.score && exact(ctx, again));
  const std::string rows = content(folder + "/exports/progress.csv");
  std::cout << std::count(rows.begin(), rows.end(), '\n')
            << std::count(rows.begin(), rows.end(), ',')
            << !content(folder + "/exports/progress.jsonl").empty() << '\n';
  std::filesystem::remove_all(folder);
}
/// Proves that a second run returns the result of the first, and that files have no locale.
const Program folder{"two_runs_in_one_folder", {.expect = "114161\n", .seconds = 30}, folders};

}  // namespace
}  // namespace tuning_ends
