// The slab's map: reverse order, buckets, padding; and the published parameter counts of known
// models.
#include "troupe/train/parameters.hpp"
#include "troupe/train/gpt.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

namespace troupe::train {
namespace {

TEST(Parameters, LieInReverseOrderInPaddedUnits) {
  ParameterMap map;
  map.begin_unit();
  const int a = map.add("a", {10, 10}, true), b = map.add("b", {50}, false);
  map.begin_unit();
  const int c = map.add("c", {7}, false);
  map.seal({.first_elements = 7, .elements = 100, .pad = 16});
  EXPECT_EQ(map[c].offset, 0);
  EXPECT_EQ(map[c].bucket, 0);
  EXPECT_EQ(map[c].unit, 1);
  EXPECT_EQ(map[b].offset, 16);
  EXPECT_EQ(map[a].offset, 66);
  EXPECT_EQ(map[a].bucket, 1);
  EXPECT_EQ(map[a].unit, 0);
  ASSERT_EQ(map.units().size(), 2u);
  EXPECT_EQ(map.units()[0].offset, 16);
  EXPECT_EQ(map.units()[0].size, 160);
  EXPECT_EQ(map.units()[1].size, 16);
  ASSERT_EQ(map.buckets().size(), 2u);
  EXPECT_EQ(map.buckets()[0].size, 16);
  EXPECT_EQ(map.buckets()[1].offset, 16);
  EXPECT_EQ(map.buckets()[1].size, 160);
  EXPECT_EQ(map.size(), 176);
  EXPECT_EQ(map.parameter_count(), 157);
  EXPECT_EQ(map.find("b"), b);
  EXPECT_FALSE(map.find("d"));
}

TEST(Parameters, WithoutUnitsEachTensorIsOne) {
  ParameterMap map;
  map.add("a", {10}, true);
  map.add("b", {50}, false);
  map.begin_unit();
  map.begin_unit();  // the one before stayed empty
  map.add("c", {7}, false);
  map.add("d", {7}, false);
  map.seal();
  ASSERT_EQ(map.units().size(), 3u);
  for (const Unit& unit : map.units()) EXPECT_EQ(unit.offset % 1024, 0);
  EXPECT_EQ(map[2].unit, map[3].unit);
}

TEST(Parameters, UnitsOfAModelAreItsEmbeddingItsBlocksAndItsHead) {
  const ParameterMap map = parameters_of({.layers = 3});
  ASSERT_EQ(map.units().size(), 5u);
  EXPECT_EQ(map[*map.find("transformer.wpe.weight")].unit, 0);
  EXPECT_EQ(map[*map.find("transformer.h.0.ln_1.weight")].unit, 1);
  EXPECT_EQ(map[*map.find("transformer.h.2.mlp.c_proj.bias")].unit, 3);
  EXPECT_EQ(map[*map.find("transformer.ln_f.weight")].unit, 4);
  std::int64_t size = 0;
  for (const Unit& unit : map.units()) size += unit.size;
  EXPECT_EQ(size, map.size());
}

TEST(Parameters, BucketsCoverTheSlabWithoutOverlap) {
  const ParameterMap map =
      parameters_of({.layers = 3}, {.first_elements = 1000, .elements = 40000, .pad = 64});
  std::int64_t end = 0;
  for (const Bucket& bucket : map.buckets()) {
    EXPECT_EQ(bucket.offset, end);
    EXPECT_EQ(bucket.size % 64, 0);
    end += bucket.size;
  }
  EXPECT_EQ(end, map.size());
  EXPECT_GT(map.buckets().size(), 3u);
  for (const Parameter& tensor : map.tensors()) {
    const Bucket& bucket = map.buckets()[static_cast<std::size_t>(tensor.bucket)];
    EXPECT_GE(tensor.offset, bucket.offset);
    EXPECT_LE(tensor.offset + tensor.size, bucket.offset + bucket.size);
  }
}

TEST(Parameters, CountsOfKnownModels) {
  const GptConfig gpt2{
      .vocabulary = 50257, .context = 1024, .layers = 12, .heads = 12, .channels = 768};
  EXPECT_EQ(parameters_of(gpt2).parameter_count(), 124439808);
  GptConfig padded = gpt2;
  padded.vocabulary = 50304;
  EXPECT_EQ(parameters_of(padded).parameter_count(), 124475904);
  const GptConfig nano{
      .vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .channels = 384, .bias = false};
  EXPECT_EQ(parameters_of(nano).parameter_count(), 10745088);
  const GptConfig tiny{
      .vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .channels = 128, .bias = false};
  EXPECT_EQ(parameters_of(tiny).parameter_count(), 804096);
}

TEST(Parameters, MistakesAreRefused) {
  ParameterMap map;
  map.add("a", {2}, true);
  EXPECT_THROW(map.add("a", {2}, true), InvalidArgument);
  EXPECT_THROW(map.add("b", {-1}, true), InvalidArgument);
  EXPECT_THROW(map.add("c", {1 << 30, 1 << 30}, true), InvalidArgument);
  map.seal();
  EXPECT_THROW(map.seal(), InvalidArgument);
  EXPECT_THROW(map.add("d", {2}, true), InvalidArgument);
  EXPECT_THROW(parameters_of({.heads = 3, .channels = 128}), InvalidArgument);
  EXPECT_THROW(parameters_of({.layers = 0}), InvalidArgument);
  EXPECT_THROW(parameters_of({.vocabulary = std::int64_t{1} << 40}), InvalidArgument);
}

}  // namespace
}  // namespace troupe::train
