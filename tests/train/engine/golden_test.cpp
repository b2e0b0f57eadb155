// Ten steps of a small GPT-2 against a float64 run of another framework, in every layout.
#include "tests/train/engine/ranks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

namespace troupe::train::testing {
namespace {

constexpr GptShape kGoldenShape{
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
std::vector<std::int32_t> text() {
  const std::string alphabet = golden("tinyshakespeare-65.txt");
  std::vector<std::int32_t> ids;
  for (const char c : golden("tinyshakespeare-1281.txt"))
    ids.push_back(static_cast<std::int32_t>(alphabet.find(c)));
  return ids;
}

Rows rows(const std::vector<std::int32_t>& ids, std::int64_t step, std::int64_t first,
          std::int64_t end) {
  const auto begin = ids.begin() + (kRows * step + first) * kGoldenShape.context;
  const std::int64_t tokens = (end - first) * kGoldenShape.context;
  return {{begin, begin + tokens},
          {begin + 1, begin + tokens + 1},
          {},
          end - first,
          kGoldenShape.context};
}

/// The run's number of a matrix, and which layer's part of it this one is. Vectors are 1 or 0.
struct Place {
  std::uint32_t tensor = 0, layer = 0;
};
Place place_of(const std::string& name) {
  if (name == "transformer.wte.weight") return {0, 0};
  if (name == "transformer.wpe.weight") return {1, 0};
  const std::string prefix = "transformer.h.";
  const auto layer = static_cast<std::uint32_t>(name.at(prefix.size()) - '0');
  const std::string rest = name.substr(prefix.size() + 2);
  if (rest == "attn.c_attn.weight") return {4, layer};
  if (rest == "attn.c_proj.weight") return {6, layer};
  if (rest == "mlp.c_fc.weight") return {10, layer};
  if (rest == "mlp.c_proj.weight") return {12, layer};
  ADD_FAILURE() << "the golden run has no matrix " << name;
  return {};
}

float golden_value(std::uint32_t tensor, std::uint32_t element) {
  std::uint32_t h = element * 2654435761u + tensor * 40503u + 12345u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h ^= h >> 13;
  return static_cast<float>((h / 4294967296.0 - 0.5) * 0.1);
}

/// Matrices of the golden run in place of the engine's own; its vectors begin as 1 and 0 anyway.
Snapshot golden_start(Snapshot snapshot) {
  for (NamedTensor& tensor : snapshot.tensors) {
    if (tensor.shape.size() < 2 || tensor.name.starts_with("optimizer.")) continue;
    const Place place = place_of(tensor.name);
    const auto count = static_cast<std::uint32_t>(tensor.bytes.size() / sizeof(float));
    for (std::uint32_t i = 0; i < count; ++i) {
      const float value = golden_value(place.tensor, place.layer * count + i);
      std::memcpy(tensor.bytes.data() + i * sizeof(float), &value, sizeof value);
    }
  }
  return snapshot;
}

void expect_golden(const Layout& layout, Wire wire = Wire::local) {
  const std::vector<std::int32_t> ids = text();
  ASSERT_EQ(ids.size(), 1281u);
  on_mesh(mesh_of(layout), wire, [&](RankContext& context) {
    Engine engine(gpt(kGoldenShape), layout, context.mesh, context.device,
                  {.rate = 1e-3f, .decay = 0.1f, .decay_all = true, .max_norm = 0});
    if (layout.tp * layout.pp == 1) {
      EXPECT_EQ(engine.index().parameter_count(), 28576);
    }
    engine.initialize(1);
    engine.restore(golden_start(engine.snapshot()));
    for (std::size_t step = 0; step < kLosses.size(); ++step) {
      const std::int64_t share = kRows / layout.dp, first = share * context.mesh.dp_rank;
      std::vector<Rows> parts;
      for (int i = 0; i < layout.micro; ++i)
        parts.push_back(rows(ids, static_cast<std::int64_t>(step), first + share * i / layout.micro,
                             first + share * (i + 1) / layout.micro));
      const StepResult result = engine.step(micros_of(parts));
      EXPECT_NEAR(result.loss / kLosses[step], 1, 1e-5) << "loss of step " << step + 1;
      EXPECT_NEAR(result.norm / kNorms[step], 1, 1e-5) << "norm of step " << step + 1;
    }
  });
}

TEST(GoldenRun, ThePlainRun) {
  expect_golden({});
}
TEST(GoldenRun, ThePlainRunInTwoMicroBatches) {
  expect_golden({.micro = 2});
}
TEST(GoldenRun, TwoRanks) {
  expect_golden({.dp = 2});
}
TEST(GoldenRun, TwoRanksThatShareMoments) {
  expect_golden({.dp = 2, .zero = 1});
}
TEST(GoldenRun, TwoRanksThatShareGradientsToo) {
  expect_golden({.dp = 2, .zero = 2, .micro = 2});
}
TEST(GoldenRun, TwoRanksThatShareWeightsToo) {
  expect_golden({.dp = 2, .zero = 3}, Wire::shm);
}
TEST(GoldenRun, FourRanksThatShareAllAndRecompute) {
  expect_golden({.dp = 4, .zero = 3, .offload = Offload::optimizer, .recompute = Recompute::full});
}
TEST(GoldenRun, TwoRanksThatDivideTensors) {
  expect_golden({.tp = 2});
}
TEST(GoldenRun, TwoRanksThatDivideTensorsAndRows) {
  expect_golden({.tp = 2, .sequence = true});
  expect_golden({.tp = 2, .micro = 2, .sequence = true, .recompute = Recompute::full}, Wire::shm);
}
TEST(GoldenRun, FourRanksThatDivideTensorsAndTheBatch) {
  expect_golden({.dp = 2, .tp = 2, .zero = 1});
  expect_golden({.dp = 2, .tp = 2, .zero = 3, .sequence = true, .offload = Offload::optimizer});
}

TEST(GoldenRun, TwoStages) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const int micro : {1, 2, 4})
      expect_golden({.pp = 2, .micro = micro, .schedule = schedule});
}
TEST(GoldenRun, TwoStagesOfTwoRanksThatShareMoments) {
  expect_golden({.dp = 2, .pp = 2, .zero = 1, .micro = 2, .recompute = Recompute::full}, Wire::shm);
}
TEST(GoldenRun, EightRanksThatDivideTheBatchTensorsAndLayers) {
  expect_golden({.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2});
  expect_golden({.dp = 2, .tp = 2, .pp = 2, .micro = 2, .sequence = true, .schedule = "gpipe"},
                Wire::shm);
}

}  // namespace
}  // namespace troupe::train::testing
