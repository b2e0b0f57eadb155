// A study that survives its driver: ASHA and TPE look for a network that tells two spirals apart.
// Kill it at any moment and start it again: it goes on.
#include <cmath>
#include <iostream>
#include <random>
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"
namespace tune = troupe::tune;
struct Hp {
  double lr = 0.1;
  int width = 8;
};

struct Net {  // one hidden layer of tanh units, and a logistic output
  std::vector<double> in, out;
  explicit Net(int width) : in(3 * static_cast<std::size_t>(width)), out(in.size() / 3) {
    std::mt19937 random(1);
    for (double& w : in) w = std::normal_distribution<double>(0, 2)(random);
  }
  bool learn(double x, double y, bool first, double lr) {  // returns whether it was right before
    std::vector<double> unit(out.size());
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      sum += out[i] * (unit[i] = std::tanh(in[3 * i] * x + in[3 * i + 1] * y + in[3 * i + 2]));
    const double slope = lr * ((first ? 1 : 0) - 1 / (1 + std::exp(-sum)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double back = slope * out[i] * (1 - unit[i] * unit[i]);
      out[i] += slope * unit[i];
      in[3 * i] += back * x, in[3 * i + 1] += back * y, in[3 * i + 2] += back;
    }
    return (sum > 0) == first;
  }
  friend auto fields(Net& n) { return std::tie(n.in, n.out); }
  friend auto fields(const Net& n) { return std::tie(n.in, n.out); }
};

void trial(tune::Trial& t, Hp hp, int points) {
  Net net(hp.width);
  t.restore(net);  // after a kill: its last checkpoint
  for (double right = 0;; right = 0) {
    for (int i = 0; i < points; ++i) {
      const double turn = 9.0 * i / points, r = i % 2 == 0 ? turn / 3 : -turn / 3;
      right += net.learn(r * std::cos(turn), r * std::sin(turn), i % 2 == 0, hp.lr);
    }
    if (!t.report(right / points, net)) return;
  }
}

int main(int argc, char** argv) {
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    tune::Options<> options{.goal = tune::maximize, .searcher = tune::Tpe{}, .save_every = 9};
    options.trials = argc > 2 ? std::stoi(argv[2]) : 60;
    options.scheduler = tune::AsyncHyperBand{.max_steps = 81, .eta = 3};
    options.results = argc > 1 ? argv[1] : "studies/spirals";  // the folder is the study
    auto space = tune::Space<Hp>{}.with(&Hp::lr, tune::log_uniform(1e-3, 3));
    space.with(&Hp::width, tune::integers(2, 64));
    const auto best = tune::optimize<trial>(ctx, space, options, argc > 2 ? 400 : 20'000);
    std::cout << "accuracy " << best.score << " lr=" << best.params.lr << '\n';
  });
}
