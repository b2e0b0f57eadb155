// Trains a small GPT-2 on the bytes of a text, in any layout: data, tensor and pipeline parallel,
// ZeRO. The layout changes speed and memory, but not what is computed. The last line of the output
// is a JSON object of the last step.
// Usage: 08_train_gpt [--text FILE] [--steps N] [--seed S] [--layers N] [--heads N] [--channels N]
//   [--context N] [--batch N (of all ranks)] [--mesh dp=N,tp=N,pp=N] [--zero 0|1|2|3] [--micro M]
//   [--schedule gpipe|1f1b|interleaved|FILE] [--sequence] [--recompute none|selective|full]
//   [--bf16] [--offload] [--threads N (of a rank)]
//   [--folder DIR (checkpoints; the same command goes on from them)] [--every N] [--keep N]
//   [--restarts N] [--spread (over all nodes)]
//   [--workers MIN:MAX (ranks of one CPU each, as many as have room; dp follows)]
#include <iostream>
#include "support/train_gpt.hpp"
#include "troupe/train/engine/micro_batches.hpp"
#include "troupe/train/schedule.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

namespace train = troupe::train;
using train_gpt::Flags;
using train_gpt::Outcome;

float rate_of(const Flags& flags, long step) {  // steps count from 0
  return train::cosine_rate({3e-3f, flags.steps / 10, flags.steps, 3e-4f}, step);
}

// Trains in this process.
Outcome learn(const Flags& flags, const train::TextDataset& text) {
  troupe::collective::Mesh alone;
  troupe::kernels::Device device = troupe::kernels::cpu_device({.threads = flags.threads});
  train::Engine engine(flags.model(), flags.layout, alone, device, {.max_norm = 1.0});
  engine.initialize(static_cast<std::uint64_t>(flags.seed));
  train::Sampler order(text.size(), {.seed = static_cast<std::uint64_t>(flags.seed),
                                     .global_batch = static_cast<std::uint64_t>(flags.batch)});
  train_gpt::Meter meter(flags, device, alone);
  train::StepResult last;
  for (long step = 0; step < flags.steps; ++step) {
    train::Batch batch = text.batch(order.next(0, 1));
    last = engine.step(train::micro_batches(batch, flags.layout.micro),
                       {.rate = rate_of(flags, step)});
    meter.print(last, engine);
  }
  return {static_cast<long>(last.step), last.loss, last.norm, engine.weights_hash()};
}

// Trains on one rank in a worker process of a gang.
void worker(train::Worker& w, const Flags& flags, troupe::Ref<train::TextDataset> text) {
  troupe::kernels::Device device = troupe::kernels::cpu_device({.threads = flags.threads});
  train::Engine engine(flags.model(), w.layout(), w.mesh(), device, {.max_norm = 1.0});
  if (!w.restore(engine)) engine.initialize(static_cast<std::uint64_t>(flags.seed));
  train_gpt::Meter meter(flags, device, w.mesh());
  for (train::Batch batch : w.shard(text, {.batch = static_cast<std::uint64_t>(flags.batch),
                                           .steps = flags.steps,
                                           .seed = static_cast<std::uint64_t>(flags.seed)})) {
    const train::StepResult result = engine.step(train::micro_batches(batch, w.layout().micro),
                                                 {.rate = rate_of(flags, w.step() - 1)});
    if (w.rank() == 0) meter.print(result, engine);
    train::Metrics metrics{.step = w.step(), .loss = result.loss, .extra = {{"norm", result.norm}}};
    if (w.step() == flags.steps) {
      const std::uint64_t hash = engine.weights_hash();
      metrics.extra["hash, high"] = static_cast<double>(hash >> 32);
      metrics.extra["hash, low"] = static_cast<double>(hash & 0xffffffff);
    }
    w.report(metrics);
    if (w.wants_checkpoint()) w.checkpoint(engine);
  }
}

Outcome learn_in_a_gang(troupe::Context& ctx, const Flags& flags, const train::TextDataset& text) {
  const bool sizes = flags.least > 0;
  int nodes = 1;
  train::FitOptions options{
      .workers = sizes ? train::Workers{flags.least, flags.most} : flags.layout.ranks(),
      .layout = flags.layout,
      .max_restarts = flags.restarts,
      .cpus_per_worker = sizes ? 1.0 : 0.0};
  if (flags.spread) options.placement = troupe::Placement::spread;
  const bool needs_checkpoints = sizes || flags.restarts > 0 || !flags.folder.empty();
  options.run = {
      .folder = flags.folder, .every = needs_checkpoints ? flags.every : 0, .keep = flags.keep};
  options.grow_after = std::chrono::seconds(2);
  options.on_gang = [&nodes](const train::Gang& gang) { nodes = train_gpt::show(gang); };
  const auto fit = train::fit<worker>(ctx, options, flags, ctx.put(text));
  auto extra = fit.last().extra;
  const auto hash = static_cast<std::uint64_t>(extra["hash, high"]) << 32 |
                    static_cast<std::uint64_t>(extra["hash, low"]);
  return {fit.last().step, fit.last().loss, extra["norm"],     hash, fit.ranks(), nodes,
          fit.restarts(),  fit.moves(),     fit.resumed_from()};
}

int main(int argc, char** argv) {
  return troupe::run(argc, argv, [&](troupe::Context& ctx) {
    Flags flags;
    train::TextDataset text;
    try {
      flags = train_gpt::flags_of(argc, argv);
      text = train_gpt::text_of(flags);
    } catch (const troupe::InvalidArgument& e) {
      return std::cerr << argv[0] << ": " << e.message() << "\n", 2;
    }
    try {
      const bool alone = flags.layout.ranks() == 1 && flags.folder.empty() && flags.least == 0;
      const Outcome end = alone ? learn(flags, text) : learn_in_a_gang(ctx, flags, text);
      end.print();
    } catch (const troupe::Error& e) {
      return std::cerr << argv[0] << ": " << e.message() << "\n", 1;
    }
    return 0;
  });
}
