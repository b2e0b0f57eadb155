// Trains a small GPT-2 on the bytes of a text, in any layout: data, tensor and pipeline parallel,
// ZeRO. The layout changes speed and memory, but not what is computed. The last line of the output
// is a JSON object of the last step.
// Usage: 08_train_gpt [--text FILE] [--steps N] [--seed S] [--layers N] [--heads N] [--channels N]
//   [--context N] [--batch N (of all ranks)] [--mesh dp=N,tp=N,pp=N] [--zero 0|1|2|3] [--micro M]
//   [--schedule gpipe|1f1b|interleaved|FILE] [--sequence] [--recompute none|selective|full]
//   [--bf16] [--offload] [--threads N (of a rank)]
#include <iostream>
#include "support/train_gpt.hpp"
#include "troupe/train/engine/micro_batches.hpp"
#include "troupe/train/schedule.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

namespace train = troupe::train;
using train_gpt::Flags;
using train_gpt::Outcome;

// Trains on one rank.
Outcome learn(troupe::collective::Mesh& mesh, const Flags& flags, const train::TextDataset& text) {
  troupe::kernels::Device device = troupe::kernels::cpu_device({.threads = flags.threads});
  train::Engine engine(flags.model(), flags.layout, mesh, device, {.max_norm = 1.0});
  engine.initialize(static_cast<std::uint64_t>(flags.seed));
  train::Sampler order(text.size(), {.seed = static_cast<std::uint64_t>(flags.seed),
                                     .global_batch = static_cast<std::uint64_t>(flags.batch)});
  train_gpt::Meter meter(flags, device, mesh);
  train::StepResult last;
  for (long step = 0; step < flags.steps; ++step) {
    train::Batch batch = text.batch(order.next(mesh.dp_rank, flags.layout.dp));
    const float rate = train::cosine_rate({3e-3f, flags.steps / 10, flags.steps, 3e-4f}, step);
    last = engine.step(train::micro_batches(batch, flags.layout.micro), {.rate = rate});
    if (mesh.rank() == 0) meter.print(last, engine);
  }
  return {static_cast<long>(last.step), last.loss, last.norm, engine.weights_hash()};
}

// Trains on one rank in a worker process of a gang.
void worker(train::Worker& w, const Flags& flags, troupe::Ref<train::TextDataset> text) {
  const auto data = w.context().get(text);
  const Outcome end =
      learn(w.mesh({flags.layout.dp, flags.layout.tp, flags.layout.pp}), flags, data);
  w.report({.step = end.step,
            .loss = end.loss,
            .extra = {{"norm", end.norm},
                      {"hash, high", static_cast<double>(end.hash >> 32)},
                      {"hash, low", static_cast<double>(end.hash & 0xffffffff)}}});
}

Outcome learn_in_a_gang(troupe::Context& ctx, const Flags& flags, const train::TextDataset& text) {
  const auto fit = train::fit<worker>(ctx, {.workers = flags.layout.ranks()}, flags, ctx.put(text));
  auto extra = fit.last().extra;
  const auto hash = static_cast<std::uint64_t>(extra["hash, high"]) << 32 |
                    static_cast<std::uint64_t>(extra["hash, low"]);
  return {fit.last().step, fit.last().loss, extra["norm"], hash};
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
      troupe::collective::Mesh alone;
      const Outcome end =
          flags.layout.ranks() == 1 ? learn(alone, flags, text) : learn_in_a_gang(ctx, flags, text);
      end.print();
    } catch (const troupe::Error& e) {
      return std::cerr << argv[0] << ": " << e.message() << "\n", 1;
    }
    return 0;
  });
}
