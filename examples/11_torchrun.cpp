// Training without troupe's runtime: a launcher starts one process per rank and sets the
// environment variables of torchrun.
//   torchrun --no-python --nproc-per-node 2 build/bin/11_torchrun
#include "troupe/actors/collective/mesh.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/layers/embedding.hpp"
#include "troupe/train/layers/head.hpp"
#include "troupe/train/layers/transformer.hpp"

#include <cstdio>
#include <exception>
#include <vector>

using namespace troupe;
namespace layers = train::layers;
constexpr std::int64_t kVocabulary = 31, kContext = 16, kChannels = 32, kBatch = 12;

train::Model language_model() {
  train::Model model;
  model.push_back(std::make_unique<layers::Embedding>(
      "embedding", layers::EmbeddingConfig{
                       .vocabulary = kVocabulary, .context = kContext, .channels = kChannels}));
  for (const char* name : {"block.0", "block.1"})
    model.push_back(std::make_unique<layers::GptBlock>(
        name, layers::GptBlockConfig{.channels = kChannels, .heads = 2}));
  model.push_back(std::make_unique<layers::LmHead>(
      "head", layers::LmHeadConfig{.vocabulary = kVocabulary, .channels = kChannels}));
  return model;
}

struct Rows {  // rows [first, end) of a step's batch; each token determines the next one
  std::vector<std::int32_t> inputs, targets;
  train::Shape shape;
  Rows(std::int64_t step, std::int64_t first, std::int64_t end) : shape{end - first, kContext} {
    for (std::int64_t row = first; row < end; ++row)
      for (std::int64_t t = 0, token = (step * kBatch + row) % kVocabulary; t < kContext; ++t) {
        inputs.push_back(static_cast<std::int32_t>(token));
        targets.push_back(static_cast<std::int32_t>(token = (token * 7 + 3) % kVocabulary));
      }
  }
  train::MicroBatch micro() {
    return {.input = {inputs.data(), train::DType::i32, shape},
            .targets = {targets.data(), train::DType::i32, shape}};
  }
};

int main() try {
  collective::Mesh mesh =
      collective::Mesh::from_environment();  // all started processes are data-parallel ranks
  kernels::Device device = kernels::cpu_device();
  train::Engine engine(language_model(), {.dp = mesh.shape.dp, .zero = 1}, mesh, device,
                       {.rate = 1e-2f});
  engine.initialize(/*seed=*/1);
  for (std::int64_t step = 0; step < 40; ++step) {
    Rows rows(step, kBatch * mesh.dp_rank / mesh.shape.dp,
              kBatch * (mesh.dp_rank + 1) / mesh.shape.dp);
    const train::StepResult result = engine.step(std::vector{rows.micro()});
    if (mesh.rank() == 0 && result.step % 10 == 0)
      std::printf("step %lld loss %.5f\n", static_cast<long long>(result.step), result.loss);
  }
  std::printf("rank %d of %d: weights %016llx\n", mesh.rank(), mesh.shape.ranks(),
              static_cast<unsigned long long>(engine.weights_hash()));
} catch (const std::exception& error) {
  std::fprintf(stderr, "11_torchrun: %s\n", error.what());
  return 1;
}
