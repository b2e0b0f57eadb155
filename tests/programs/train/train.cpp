// Proves the basics of training: two workers, epochs, and options that are refused.
#include "troupe/train/train.hpp"

#include "tests/programs/program.hpp"

namespace train_basics {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;
namespace train = troupe::train;

struct Numbers {
  std::vector<float> values;
  std::uint64_t size() const { return values.size(); }
  std::vector<float> batch(std::span<const std::uint64_t> indices) const {
    std::vector<float> chosen;
    for (const std::uint64_t i : indices) chosen.push_back(values[i]);
    return chosen;
  }
};
Numbers numbers() {
  Numbers made;
  for (int i = 0; i < 64; ++i) made.values.push_back(static_cast<float>(i % 8));
  return made;
}
/// A model of one weight, which moves towards the mean of the data.
struct Mean {
  std::vector<float> weight = {0}, slope = {0};
  double forward_backward(const std::vector<float>& batch) {
    double loss = 0;
    slope[0] = 0;
    for (const float x : batch) {
      loss += 0.5 * static_cast<double>((weight[0] - x) * (weight[0] - x));
      slope[0] += (weight[0] - x) / static_cast<float>(batch.size());
    }
    return loss / static_cast<double>(batch.size());
  }
  friend auto fields(Mean& m) { return std::tie(m.weight); }
};
struct Plan {
  long steps = 20;
};

void loop(train::Worker& w, Plan plan, Ref<Numbers> data) {
  Mean model;
  w.restore(model);
  for (const auto& batch : w.shard(data, {.batch = 8, .steps = plan.steps, .seed = 3})) {
    const double loss = model.forward_backward(batch);
    w.all_reduce_mean(model.slope);
    model.weight[0] -= 0.1f * model.slope[0];
    if (w.step() % 5 == 0) w.checkpoint(model);
    w.report({.step = w.step(), .loss = loss});
  }
}

void fits(Context& ctx) {
  const auto fit = train::fit<loop>(ctx, {.workers = 2}, Plan{}, ctx.put(numbers()));
  Mean model;
  fit.restore(model);
  std::cout << fit.history().size() << ' ' << fit.last().step << ' ' << fit.latest_checkpoint().step
            << ' ' << fit.restarts() << ' ' << (model.weight[0] > 2.0f) << '\n';
}
/// Proves that two workers train a model, save it and report every step.
const Program fit_two{"two_workers", {.expect = "20 20 20 0 1\n", .seconds = 20}, fits};

void epochs(train::Worker& w, int) {
  const Numbers data = numbers();
  long seen = 0;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const auto& batch : w.shard(data, {.batch = 16})) seen += static_cast<long>(batch.size());
  w.next_step();
  w.report({.step = w.step(), .loss = static_cast<double>(seen)});
}
void three_epochs(Context& ctx) {
  const auto fit = train::fit<epochs>(ctx, {.workers = 1}, 0);
  std::cout << fit.last().loss << '\n';
}
/// Proves that each epoch shows every sample once.
const Program epoch{"a_loop_over_epochs", {.expect = "192\n", .seconds = 20}, three_epochs};

void bad_options(Context& ctx) {
  for (const int workers : {0, -1}) try {
      train::fit<loop>(ctx, {.workers = workers}, Plan{}, ctx.put(numbers()));
      std::cout << "ran\n";
    } catch (const troupe::InvalidArgument&) {
      std::cout << "refused\n";
    }
  try {
    train::fit<loop>(ctx, {.workers = 2, .cpus_per_worker = 1e6}, Plan{}, ctx.put(numbers()));
  } catch (const troupe::Error& e) {
    std::cout << troupe::name_of(e.code()) << '\n';
  }
}
/// Proves that senseless numbers of workers and CPUs are refused.
const Program bad{"options_that_make_no_sense",
                  {.expect = "refused\nrefused\ninfeasible\n", .seconds = 20},
                  bad_options};

}  // namespace
}  // namespace train_basics
