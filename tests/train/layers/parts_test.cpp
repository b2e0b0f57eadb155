// Tests the parts of layers: initial values by global element, parts of buffers, dropout by
// sample, counted operations.
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/layers/parts/norm.hpp"
#include "troupe/train/models/models.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace troupe::train {
namespace {

constexpr std::uint64_t kSeed = 9;

/// Returns this rank's values of a tensor that is divided as `shard` says.
std::vector<double> filled(const Shape& global, const TensorShard& shard, DType type) {
  Index index;
  const TensorId id = index.add(index.begin_unit("u"), "w", global, Group::decay, shard);
  index.seal();
  kernels::Device device = kernels::cpu_device();
  const Layout layout;
  const Spec spec{type, index[id].local};
  const kernels::Memory memory = device.allocate(static_cast<std::size_t>(spec.bytes()));
  const TensorView view(memory.data(), spec);
  const Tensors w(index, [&](TensorId) { return view; });
  fill_normal({.device = device, .layout = layout, .seed = kSeed}, w, id, 0.5f);
  std::vector<double> values;
  for (std::int64_t i = 0; i < view.count(); ++i)
    values.push_back(type == DType::f64 ? view.as<double>()[i]
                                        : static_cast<double>(view.as<float>()[i]));
  return values;
}

/// Returns the whole tensor, made in one piece.
std::vector<double> whole(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  kernels::philox_normal(values.data(), count, kSeed, hash_bytes("w", 1), 0, 0.0f, 0.5f);
  return {values.begin(), values.end()};
}

TEST(FillNormal, GivesEveryShardItsElementsOfTheWhole) {
  const std::vector<double> all = whole(12 * 10);
  for (const DType type : {DType::f32, DType::f64}) {
    EXPECT_EQ(filled({12, 10}, {}, type), all);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<double> rows, columns, groups;  // the values that the rank should have
      for (std::size_t i = 0; i < all.size(); ++i) {
        const int r = static_cast<int>(i / 10), c = static_cast<int>(i % 10);
        if (r / 6 == rank) rows.push_back(all[i]);
        if (c / 5 == rank) columns.push_back(all[i]);
        if (r % 4 / 2 == rank) groups.push_back(all[i]);  // three groups of four rows
      }
      EXPECT_EQ(filled({12, 10}, {.axis = 0, .parts = 2, .index = rank}, type), rows);
      EXPECT_EQ(filled({12, 10}, {.axis = 1, .parts = 2, .index = rank}, type), columns);
      EXPECT_EQ(filled({12, 10}, {.axis = 0, .parts = 2, .index = rank, .groups = 3}, type),
                groups);
    }
  }
}

TEST(FillNormal, LeavesPaddingZero) {
  const std::vector<double> all = whole(5 * 3);
  const auto shard = [&](int axis, int rank) {
    return filled({5, 3}, {.axis = axis, .parts = 4, .index = rank, .padded = true}, DType::f32);
  };
  EXPECT_EQ(shard(0, 1), std::vector<double>(all.begin() + 6, all.begin() + 12));
  EXPECT_EQ(shard(0, 2), (std::vector<double>{all[12], all[13], all[14], 0, 0, 0}));
  EXPECT_EQ(shard(0, 3), std::vector<double>(6));
  EXPECT_EQ(shard(1, 2), (std::vector<double>{all[2], all[5], all[8], all[11], all[14]}));
  EXPECT_EQ(shard(1, 3), std::vector<double>(5));
}

TEST(FillNormal, GoesThroughManyAxes) {
  const std::vector<double> all = whole(2 * 3 * 4 * 5);
  std::vector<double> middle;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i / 5 % 4 / 2 == 1) middle.push_back(all[i]);  // the last two of axis 2
  EXPECT_EQ(filled({2, 3, 4, 5}, {.axis = 2, .parts = 2, .index = 1}, DType::f32), middle);
}

TEST(FillNormal, StagesTensorsOfMoreThanOnePiece) {
  EXPECT_EQ(filled({300, 701}, {}, DType::f64), whole(300 * 701));
}

TEST(Carve, CountsAndHandsOutTheSameParts) {
  alignas(256) std::byte memory[2048];
  Carve counted, carved(TensorView(memory, DType::u8, {2048}));
  EXPECT_EQ(counted.take(DType::f32, {3}).data, nullptr);
  EXPECT_EQ(counted.take(DType::f64, {100}).data, nullptr);
  EXPECT_EQ(counted.bytes(), 256 + 1024);
  EXPECT_EQ(carved.take(DType::f32, {3}).data, memory);
  EXPECT_EQ(carved.take(DType::f64, {100}).data, memory + 256);
  EXPECT_EQ(carved.take(DType::u8, {0}).data, memory + 1280);
  EXPECT_EQ(carved.bytes(), counted.bytes());
}

class DropoutTest : public testing::Test {
 protected:
  /// Returns the result of dropout on ones of these samples.
  std::vector<float> dropped(const std::vector<std::int64_t>& samples, const std::string& name,
                             std::int64_t step) {
    const parts::Dropout dropout(name, 0.25f);
    const Spec spec{DType::f32, {std::ssize(samples), 5, 7}};
    std::vector<float> in(static_cast<std::size_t>(spec.count()), 1.0f), out(in.size());
    dropout.apply({.device = device_, .layout = layout_, .step = step, .samples = samples},
                  TensorView(in.data(), spec), TensorView(out.data(), spec), 5);
    return out;
  }
  kernels::Device device_ = kernels::cpu_device();
  Layout layout_;
};

TEST_F(DropoutTest, DependsOnTheSampleNotOnItsPlace) {
  const std::vector<float> all = dropped({0, 1, 2, 3}, "a", 1);
  const std::vector<float> half = dropped({2, 3}, "a", 1);
  EXPECT_TRUE(std::equal(half.begin(), half.end(), all.begin() + 2 * 35));
  const std::vector<float> turned = dropped({3, 2}, "a", 1);
  EXPECT_TRUE(std::equal(turned.begin(), turned.begin() + 35, half.begin() + 35));
  EXPECT_NE(turned, half);
  EXPECT_NE(dropped({2, 3}, "b", 1), half);
  EXPECT_NE(dropped({2, 3}, "a", 2), half);
}

TEST_F(DropoutTest, RowsOfARankHaveTheBitsOfTheWhole) {
  const std::vector<std::int64_t> samples{4, 0, 7, 2};
  const std::vector<float> all = dropped(samples, "a", 1);
  const parts::Dropout dropout("a", 0.25f);
  auto group = collective::local_group(4);
  for (int rank = 0; rank < 4; ++rank) {  // rows of 5 samples in 4 parts end within samples
    const Layout layout{.tp = 4, .sequence = true};
    const Spec own{DType::f32, {4, 5, 7}, 4};
    std::vector<float> in(static_cast<std::size_t>(own.count()), 1.0f), out(in.size());
    dropout.apply({.device = device_,
                   .layout = layout,
                   .tp = group[static_cast<std::size_t>(rank)].get(),
                   .step = 1,
                   .samples = samples},
                  TensorView(in.data(), own), TensorView(out.data(), own), 5);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin() + rank * own.count()));
  }
}

TEST_F(DropoutTest, KeepsTheMean) {
  std::vector<std::int64_t> samples(400);
  std::iota(samples.begin(), samples.end(), 0);
  const std::vector<float> out = dropped(samples, "a", 1);
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  EXPECT_NEAR(sum / static_cast<double>(out.size()), 1.0, 0.03);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(out, 0.0f)) / static_cast<double>(out.size()),
              0.25, 0.02);
}

TEST_F(DropoutTest, RefusesNumbersOfOtherSamplesAndProbabilitiesThatAreNone) {
  const parts::Dropout dropout("a", 0.25f);
  float memory[70] = {};
  const TensorView view(memory, DType::f32, {2, 5, 7});
  const std::vector<std::int64_t> three{0, 1, 2};
  EXPECT_THROW(
      dropout.apply({.device = device_, .layout = layout_, .samples = three}, view, view, 5),
      InvalidArgument);
  EXPECT_THROW(parts::Dropout("a", 1.0f), InvalidArgument);
  EXPECT_THROW(parts::Dropout("a", -0.1f), InvalidArgument);
}

TEST(Flops, AreTwoPerWeightAndTokenAndAttention) {
  const models::Gpt2Config c = models::gpt2_preset("char-small");
  const Model model = models::gpt2(c);
  Spec spec{DType::i32, {2, c.context}};
  double flops = 0;
  for (const auto& layer : model) {
    flops += layer->flops(spec);
    spec = layer->need(spec, {}).out;
  }
  const double channels = static_cast<double>(c.channels), layers = static_cast<double>(c.layers);
  const double weights =
      12 * layers * channels * channels + static_cast<double>(c.vocabulary) * channels;
  const double tokens = 2.0 * static_cast<double>(c.context);
  EXPECT_EQ(flops, tokens * (2 * weights + 4 * layers * channels * static_cast<double>(c.context)));
}

}  // namespace
}  // namespace troupe::train
