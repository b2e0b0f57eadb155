// Ten steps of a small GPT-2 against a float64 run of another framework: losses and norms of the
// plain run and of two ranks.
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/train/adamw.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace troupe::train::golden_run {
namespace {

using collective::Communicator;

constexpr GptConfig kConfig{
    .vocabulary = 65, .context = 32, .layers = 2, .heads = 2, .channels = 32};
constexpr std::int64_t kRows = 4;
constexpr std::array kLosses = {4.220803823, 4.113694475, 4.091007400, 4.054562152, 4.003949513,
                                3.980534472, 3.945649695, 3.927857272, 3.920189957, 3.870401837};
constexpr std::array kNorms = {1.688320960, 1.492466091, 1.339189807, 1.368430682, 1.248444063,
                               1.346839603, 1.266600491, 1.215164812, 1.011948659, 1.155447739};

std::string golden(const std::string& name) {
  std::ifstream in(std::string(TROUPE_GOLDEN "/") + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The ids of the text's characters: their places among the 65 sorted ones.
const std::vector<std::int32_t>& text() {
  static const std::vector<std::int32_t> ids = [] {
    const std::string alphabet = golden("tinyshakespeare-65.txt");
    std::vector<std::int32_t> all;
    for (const char c : golden("tinyshakespeare-1281.txt"))
      all.push_back(static_cast<std::int32_t>(alphabet.find(c)));
    return all;
  }();
  return ids;
}

/// Rows [first, end) of the four of a step.
Batch batch_of(std::int64_t step, std::int64_t first, std::int64_t end) {
  const auto begin = text().begin() + (kRows * step + first) * kConfig.context;
  const std::int64_t tokens = (end - first) * kConfig.context;
  return {{begin, begin + tokens}, {begin + 1, begin + tokens + 1}, end - first, kConfig.context};
}

/// The run's number of a tensor, and which layer's part of it this one is.
struct Place {
  std::uint32_t tensor = 0;
  std::int64_t layer = 0;
};
Place place_of(const std::string& name) {
  constexpr std::array blocks = {"ln_1.weight",
                                 "ln_1.bias",
                                 "attn.c_attn.weight",
                                 "attn.c_attn.bias",
                                 "attn.c_proj.weight",
                                 "attn.c_proj.bias",
                                 "ln_2.weight",
                                 "ln_2.bias",
                                 "mlp.c_fc.weight",
                                 "mlp.c_fc.bias",
                                 "mlp.c_proj.weight",
                                 "mlp.c_proj.bias",
                                 "transformer.ln_f.weight",
                                 "transformer.ln_f.bias"};
  if (name == "transformer.wte.weight") return {0, 0};
  if (name == "transformer.wpe.weight") return {1, 0};
  const std::string prefix = "transformer.h.";
  const bool in_block = name.starts_with(prefix);
  const std::int64_t layer = in_block ? name[prefix.size()] - '0' : 0;
  const std::string rest = in_block ? name.substr(prefix.size() + 2) : name;
  for (std::size_t k = 0; k < blocks.size(); ++k)
    if (rest == blocks[k]) return {static_cast<std::uint32_t>(k + 2), layer};
  ADD_FAILURE() << "the golden run has no tensor " << name;
  return {};
}

float golden_value(std::uint32_t tensor, std::uint32_t element) {
  std::uint32_t h = element * 2654435761u + tensor * 40503u + 12345u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h ^= h >> 13;
  return static_cast<float>((h / 4294967296.0 - 0.5) * 0.1);
}

struct Learner {
  Gpt model{kConfig};
  ParameterMap all_decay;  // the model's map, with decay for every tensor
  AdamW optimizer{model.map().size()};
  std::vector<double> losses, norms;

  Learner() {
    int unit = -1;
    for (const Parameter& tensor : model.map().tensors()) {
      if (tensor.unit != unit) all_decay.begin_unit();
      unit = tensor.unit;
      all_decay.add(tensor.name, tensor.shape, true);
      if (tensor.shape.size() < 2) continue;  // norms are 1 and biases 0 already
      const Place place = place_of(tensor.name);
      for (std::int64_t i = 0; i < tensor.size; ++i)
        model.parameters()[static_cast<std::size_t>(tensor.offset + i)] =
            golden_value(place.tensor, static_cast<std::uint32_t>(place.layer * tensor.size + i));
    }
    all_decay.seal();
  }

  void step(std::int64_t number, Communicator* comm) {
    const std::int64_t rank = comm ? comm->rank() : 0, world = comm ? comm->size() : 1;
    const Batch batch = batch_of(number, kRows * rank / world, kRows * (rank + 1) / world);
    std::int64_t targets = counted_targets(batch);
    if (comm) comm->all_reduce(std::span(&targets, 1)).wait();
    model.zero_gradients();
    LossSum loss = model.accumulate(batch, {.targets = targets});
    if (comm) {
      comm->all_reduce(model.gradients()).wait();
      comm->all_reduce(std::span(&loss.sum, 1)).wait();
    }
    losses.push_back(loss.sum / static_cast<double>(targets));
    norms.push_back(optimizer.update(
        all_decay, model.parameters(), model.gradients(),
        {.rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .decay = 0.1f, .max_norm = 0}));
  }
};

void expect_golden(const Learner& learner) {
  ASSERT_EQ(learner.losses.size(), kLosses.size());
  for (std::size_t i = 0; i < kLosses.size(); ++i) {
    EXPECT_NEAR(learner.losses[i] / kLosses[i], 1, 1e-5) << "loss of step " << i + 1;
    EXPECT_NEAR(learner.norms[i] / kNorms[i], 1, 1e-5) << "norm of step " << i + 1;
  }
}

TEST(GoldenRun, TheInputsAreTheGoldenOnes) {
  ASSERT_EQ(text().size(), 1281u);
  EXPECT_EQ(*std::min_element(text().begin(), text().end()), 0);
  EXPECT_LT(*std::max_element(text().begin(), text().end()), 65);
  const Learner learner;
  EXPECT_EQ(learner.model.parameter_count(), 28576);
  EXPECT_NEAR(golden_value(0, 0), -.047085000295, 3e-9);
  EXPECT_NEAR(golden_value(0, 1), .046665628813, 3e-9);
  EXPECT_NEAR(golden_value(0, 2), .009024667111, 3e-9);
  const Parameter& up =
      learner.model.map()[*learner.model.map().find("transformer.h.1.mlp.c_fc.weight")];
  EXPECT_NEAR(learner.model.parameters()[static_cast<std::size_t>(up.offset)], .013513105642, 3e-9);
}

TEST(GoldenRun, ThePlainRun) {
  Learner learner;
  for (std::int64_t i = 0; i < 10; ++i) learner.step(i, nullptr);
  expect_golden(learner);
}

TEST(GoldenRun, TwoRanks) {
  const auto group = collective::local_group(2);
  std::vector<Learner> learners(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      for (std::int64_t i = 0; i < 10; ++i) learners[r].step(i, group[r].get());
    });
  for (std::thread& thread : threads) thread.join();
  for (const Learner& learner : learners) expect_golden(learner);
  EXPECT_EQ(learners[0].norms, learners[1].norms);
  EXPECT_EQ(hash_floats(learners[0].model.parameters()),
            hash_floats(learners[1].model.parameters()));
}

}  // namespace
}  // namespace troupe::train::golden_run
