// Population-based training of a small language model. Each of four trials is a gang of two worker
// processes that train one model together. One worker is killed in the middle of a step, and its
// trial goes on from the gang's last checkpoint.
// Usage: 10_pbt_language_model [--smoke] [--text FILE] [--results FOLDER] [--mesh dp=N,tp=N,pp=N]
//   [--spread (the workers of each gang over all nodes)]
// It writes curves.svg, report.html and more into FOLDER, which must be new. The default is a
// folder named after the time. The mesh says how the workers of a gang divide their model.
#include <csignal>
#include <cstring>
#include <ctime>
#include <iostream>
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

namespace train = troupe::train;
namespace tune = troupe::tune;

constexpr std::int64_t kContext = 64;

struct Hp {
  double rate = 3e-3;
};
struct Plan {
  long steps = 800, report_every = 50;
  train::Layout layout{.dp = 2};
  bool spread = false;
};

// The step in which a worker of trial 1 is killed: between two checkpoints, while the others wait
// for it.
long death_of(const Plan& plan) {
  return plan.report_every + 7;
}

train::Engine learner(const train::Layout& layout, troupe::collective::Mesh& mesh,
                      troupe::kernels::Device& device) {
  return {train::models::gpt2(
              {.vocabulary = 256, .context = kContext, .layers = 2, .heads = 2, .channels = 64}),
          layout,
          mesh,
          device,
          {.beta2 = 0.99f}};
}

void learn(train::Worker& w, Hp hp, const Plan& plan, long die_at,
           troupe::Ref<train::TextDataset> text) {
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine = learner(w.layout(), w.mesh(), device);
  if (!w.restore(engine)) engine.initialize(/*seed=*/1);
  auto shard = w.shard(text, {.batch = 16, .steps = plan.steps, .seed = 7});
  for (train::Batch batch : shard) {
    if (w.step() == die_at && w.rank() == w.world() - 1 && w.incarnation() == 0) ::raise(SIGKILL);
    const float rate = train::cosine_rate(
        {static_cast<float>(hp.rate), 20, plan.steps, static_cast<float>(hp.rate) / 10}, w.step());
    engine.step(train::micro_batches(batch, w.layout().micro), {.rate = rate});
    if (w.step() % plan.report_every != 0) continue;
    w.checkpoint(engine);
    if (!w.report({.step = w.step(), .loss = train::held_out_loss(engine, shard.data(), 64)}))
      return;
  }
}

void trial(tune::Trial& t, Hp hp, const Plan& plan, troupe::Ref<train::TextDataset> text) {
  const long die_at = t.number() == 1 ? death_of(plan) : 0;
  train::FitOptions options{
      .workers = plan.layout.ranks(), .layout = plan.layout, .max_restarts = 2};
  if (plan.spread) options.placement = troupe::Placement::spread;
  train::fit<learn>(t, options, hp, plan, die_at, text);
}

int main(int argc, char** argv) {
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    Plan plan;
    std::string file, results = "language_model-" + std::to_string(std::time(nullptr));
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--smoke") == 0)
        plan.steps = 120, plan.report_every = 20;
      else if (std::strcmp(argv[i], "--text") == 0 && i + 1 < argc)
        file = argv[++i];
      else if (std::strcmp(argv[i], "--results") == 0 && i + 1 < argc)
        results = argv[++i];
      else if (std::strcmp(argv[i], "--mesh") == 0 && i + 1 < argc)
        train::set_mesh(plan.layout, argv[++i]);
      else if (std::strcmp(argv[i], "--spread") == 0)
        plan.spread = true;
      else
        return std::cerr << "usage: " << argv[0]
                         << " [--smoke] [--text FILE] [--results FOLDER] [--mesh dp=N,tp=N,pp=N] "
                            "[--spread]\n",
               2;
    }
    const train::TextDataset text(
        file.empty() ? train::read_standard_headers(12 << 20) : train::read_text(file, 64 << 20),
        {.context = kContext});
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
    troupe::collective::Mesh alone;  // one process continues with the model of a gang
    troupe::kernels::Device device = troupe::kernels::cpu_device();
    train::Engine engine = learner({}, alone, device);
    best.restore(ctx, engine);
    std::cout << "held-out loss " << best.score << " nats per byte, " << best.score / entropy
              << " x the unigram entropy (" << entropy << "); rate " << best.params.rate
              << "\n--- a sample\n"
              << train::generate(engine, "#include <", 300, {.context = kContext}) << "\n---\n"
              << "wrote " << results << "/curves.svg and " << results << "/report.html\n";
    return 0;
  });
}
