// AdamW over a slab, the clip, the schedules and the hash.
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/adamw.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace troupe::train {
namespace {

ParameterMap two_tensors() {
  ParameterMap map;
  map.add("matrix", {2, 2}, true);
  map.add("bias", {3}, false);
  map.seal({.pad = 16});
  return map;
}

TEST(Optimizer, DecaysMatricesOnlyAndLeavesPaddingAlone) {
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size()), 1.0f), g(p.size(), 0.0f);
  AdamW optimizer(map.size());
  EXPECT_EQ(optimizer.update(map, p, g, {.rate = 0.1f, .decay = 0.5f}), 0);
  for (std::size_t i = 0; i < p.size(); ++i)
    EXPECT_EQ(p[i], i >= 16 && i < 20 ? 0.95f : 1.0f) << i;  // bias lies first
}

TEST(Optimizer, ClipsByTheGlobalNorm) {
  EXPECT_NEAR(global_norm(std::vector<float>{3, 4}), 5, 1e-12);
  EXPECT_EQ(clip_factor(0.5, 1), 1.0f);
  EXPECT_NEAR(clip_factor(5, 1), 0.2, 1e-6);
  EXPECT_EQ(clip_factor(5, 0), 1.0f);
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size()), 1.0f), q = p, g(p.size(), 0.0f);
  AdamW a(map.size()), b(map.size());
  g[0] = 30;
  g[1] = 40;
  EXPECT_NEAR(a.update(map, p, g, {.max_norm = 1}), 50, 1e-6);
  const float factor = clip_factor(50, 1);
  for (float& value : g) value *= factor;
  b.update(map, q, g, {.max_norm = 0});
  EXPECT_EQ(p, q);
}

// Buckets, padding and owners of whole chunks change no bit of it.
TEST(Optimizer, TheGlobalNormIsASumOverUnitsAndChunks) {
  const GptConfig config{.vocabulary = 65, .context = 32, .layers = 2, .heads = 2, .channels = 32};
  const ParameterMap map = parameters_of(config);
  const ParameterMap other = parameters_of(config, {.first_elements = 1, .elements = 1, .pad = 64});
  ASSERT_NE(map.size(), other.size());
  std::vector<float> g(static_cast<std::size_t>(map.size())),
      moved(static_cast<std::size_t>(other.size()));
  for (std::size_t t = 0; t < map.tensors().size(); ++t) {
    const Parameter& tensor = map.tensors()[t];
    kernels::philox_normal(g.data() + tensor.offset, tensor.size, 1, t, 0, 0.0f, 0.01f);
    std::copy_n(g.begin() + tensor.offset, tensor.size, moved.begin() + other.tensors()[t].offset);
  }
  const double norm = global_norm(map, g);
  EXPECT_EQ(norm, global_norm(other, moved));
  double exact = 0;
  for (const float value : g) exact += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(norm / std::sqrt(exact), 1, 1e-12);
  for (const int owners : {2, 3, 5}) {
    double total = 0;
    for (const Unit& unit : map.units()) {
      const std::int64_t chunks = (unit.size + kNormChunk - 1) / kNormChunk;
      for (int owner = 0; owner < owners; ++owner) {
        const std::int64_t first = chunks * owner / owners * kNormChunk,
                           end = std::min(chunks * (owner + 1) / owners * kNormChunk, unit.size);
        const auto owned = std::span<const float>(g).subspan(
            static_cast<std::size_t>(unit.offset + first), static_cast<std::size_t>(end - first));
        for (const double square : chunk_squares(owned)) total += square;
      }
    }
    EXPECT_EQ(std::sqrt(total), norm) << owners << " owners";
  }
  EXPECT_THROW(global_norm(map, moved), InvalidArgument);
}

TEST(Optimizer, TheGlobalNormDoesNotDependOnTheThreadsMode) {
  const std::vector<float> tiny(3000, 1e-40f);
  const double norm = global_norm(tiny);
  const kernels::FlushDenormals flush;
  EXPECT_EQ(global_norm(tiny), norm);
}

TEST(Optimizer, AStepThatIsNotFiniteChangesNothing) {
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size()), 1.0f), g(p.size(), 1.0f);
  AdamW optimizer(map.size());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    g[2] = bad;
    EXPECT_FALSE(std::isfinite(optimizer.update(map, p, g, {})));
    EXPECT_EQ(optimizer.steps(), 0);
    EXPECT_EQ(p, std::vector<float>(p.size(), 1.0f));
  }
}

TEST(Optimizer, SizesAreChecked) {
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size())), few(3);
  AdamW optimizer(map.size()), other(3);
  EXPECT_THROW(optimizer.update(map, few, p, {}), InvalidArgument);
  EXPECT_THROW(optimizer.update(map, p, few, {}), InvalidArgument);
  EXPECT_THROW(other.update(map, p, p, {}), InvalidArgument);
}

TEST(Schedule, RisesThenFalls) {
  const RateSchedule s{.peak = 1.0f, .warmup = 10, .total = 110, .floor = 0.1f};
  for (const auto rate : {constant_rate, linear_rate, cosine_rate}) {
    EXPECT_FLOAT_EQ(rate(s, 0), 0.1f);
    EXPECT_FLOAT_EQ(rate(s, 9), 1.0f);
    EXPECT_FLOAT_EQ(rate(s, 10), 1.0f);
  }
  EXPECT_FLOAT_EQ(constant_rate(s, 1000), 1.0f);
  EXPECT_FLOAT_EQ(linear_rate(s, 60), 0.55f);
  EXPECT_FLOAT_EQ(cosine_rate(s, 60), 0.55f);
  EXPECT_GT(cosine_rate(s, 35), linear_rate(s, 35));
  EXPECT_FLOAT_EQ(linear_rate(s, 110), 0.1f);
  EXPECT_FLOAT_EQ(cosine_rate(s, 5000), 0.1f);
}

TEST(Schedule, NoRoomBetweenWarmupAndTotalMeansTheFloor) {
  EXPECT_FLOAT_EQ(cosine_rate({.peak = 1, .warmup = 5, .total = 5, .floor = .2f}, 5), .2f);
}

TEST(Hash, KnownAnswersOfXxh64) {
  auto hash = [](const std::string& s) { return hash_bytes(s.data(), s.size()); };
  EXPECT_EQ(hash(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash("The quick brown fox jumps over the lazy dog"), 0x0b242d361fda71bcu);
}

}  // namespace
}  // namespace troupe::train
