// Population-based training of a small language model: four trials, each a gang of two worker
// processes that add their gradients through shared memory. A worker is killed in the middle of
// a step; its trial goes on all the same.
// Usage: 10_pbt_language_model [--smoke] [--text FILE] [--results FOLDER]; curves.svg, report.html
// and more are written into FOLDER, which must be new (one named after the time when none is
// named).
#include <csignal>
#include <cstring>
#include <ctime>
#include <iostream>
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

namespace train = troupe::train;
namespace tune = troupe::tune;

struct Hp {
  double rate = 3e-3;
};
struct Plan {
  long steps = 800, report_every = 50;
};

// One worker of trial 1 gets a SIGKILL there, between two checkpoints and in the middle of a step.
long death_of(const Plan& plan) {
  return plan.report_every + 7;
}

struct Learner {
  train::Gpt model{{.context = 64, .layers = 2, .heads = 2, .channels = 64}, /*seed=*/1};
  train::AdamW optimizer{model.map().size()};
  friend auto fields(Learner& l) { return std::tie(l.model, l.optimizer); }
  friend auto fields(const Learner& l) { return std::tie(l.model, l.optimizer); }
};

void learn(train::Worker& w, Hp hp, Plan plan, long die_at, troupe::Ref<train::TextDataset> text) {
  Learner l;
  w.restore(l);
  auto shard = w.shard(text, {.batch = 16, .steps = plan.steps, .seed = 7});
  for (const train::Batch& batch : shard) {
    const std::int64_t targets = w.all_reduce_sum(train::counted_targets(batch));
    l.model.zero_gradients();
    l.model.accumulate(batch, {.targets = targets});
    if (w.step() == die_at && w.rank() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    w.all_reduce_sum(l.model.gradients());
    const float rate = train::cosine_rate(
        {static_cast<float>(hp.rate), 20, plan.steps, static_cast<float>(hp.rate) / 10}, w.step());
    l.optimizer.update(l.model.map(), l.model.parameters(), l.model.gradients(), {.rate = rate});
    if (w.step() % plan.report_every != 0) continue;
    w.checkpoint(l);
    if (!w.report({.step = w.step(), .loss = train::held_out_loss(l.model, shard.data(), 64)}))
      return;
  }
}

void trial(tune::Trial& t, Hp hp, Plan plan, troupe::Ref<train::TextDataset> text) {
  const long die_at = t.number() == 1 ? death_of(plan) : 0;
  train::fit<learn>(t, {.workers = 2, .max_restarts = 2}, hp, plan, die_at, text);
}

int main(int argc, char** argv) {
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    Plan plan;
    std::string file, results = "language_model-" + std::to_string(std::time(nullptr));
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--smoke") == 0)
        plan = {.steps = 120, .report_every = 20};
      else if (std::strcmp(argv[i], "--text") == 0 && i + 1 < argc)
        file = argv[++i];
      else if (std::strcmp(argv[i], "--results") == 0 && i + 1 < argc)
        results = argv[++i];
      else
        return std::cerr << "usage: " << argv[0] << " [--smoke] [--text FILE] [--results FOLDER]\n",
               2;
    }
    const train::TextDataset text(
        file.empty() ? train::read_standard_headers(12 << 20) : train::read_text(file, 64 << 20),
        {.context = 64});
    const double entropy = train::unigram_entropy(text.text());
    std::cout << "one worker of trial 1 kills itself in step " << death_of(plan)
              << ": its gang starts again from the last checkpoint" << std::endl;
    auto space = tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(3e-4, 2e-2));
    auto best =
        tune::optimize<trial, Hp, tune::Pbt>(ctx, space,
                                             {.goal = tune::minimize,
                                              .trials = 4,
                                              .scheduler = {.perturb_every = plan.report_every * 2},
                                              .max_steps = plan.steps,
                                              .seed = 1,
                                              .name = "language model",
                                              .metric = "loss",
                                              .results = results},
                                             plan, ctx.put(text));
    Learner l;
    best.restore(ctx, l);
    std::cout << "held-out loss " << best.score << " nats per byte, " << best.score / entropy
              << " x the unigram entropy (" << entropy << "); rate " << best.params.rate
              << "\n--- a sample\n"
              << train::generate(l.model, "#include <", 300) << "\n---\n"
              << "wrote " << results << "/curves.svg and " << results << "/report.html\n";
    return 0;
  });
}
