// Tests what ranks agree on before a step, from the counts of all ranks.
#include "troupe/train/engine/internal/totals.hpp"

#include "troupe/train/engine/engine.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace troupe::train::internal {
namespace {

using collective::MeshShape;

/// Returns counts: ranks of dp index d have d + 1 samples, 10 targets for each, and d batches.
std::vector<Counts> counts_of(const MeshShape& shape) {
  std::vector<Counts> all;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const int dp = rank / shape.tp % shape.dp;
    all.push_back({.targets = std::int64_t{10} * (dp + 1),
                   .samples = dp + 1,
                   .batches = dp,
                   .sizes = 100u + static_cast<unsigned>(dp),
                   .values = 200u + static_cast<unsigned>(dp)});
  }
  return all;
}

TEST(Totals, CountTheSamplesOfADpIndexOnceInEveryMesh) {
  for (const MeshShape& shape : {MeshShape{.dp = 3}, MeshShape{.dp = 3, .tp = 2},
                                 MeshShape{.dp = 3, .pp = 2}, MeshShape{.dp = 3, .tp = 4, .pp = 2}})
    for (int dp = 0; dp < 3; ++dp) {
      const Totals totals = tally(counts_of(shape), shape, dp);
      EXPECT_EQ(totals.samples, 6);
      EXPECT_EQ(totals.targets, 60);
      EXPECT_EQ(totals.batches, 2);
      EXPECT_EQ(totals.first_sample, dp * (dp + 1) / 2);
      EXPECT_EQ(totals.refused_by, -1);
      EXPECT_EQ(totals.mismatch, "");
    }
}

TEST(Totals, TakeTargetsFromTheLastStageAndSamplesFromTheFirst) {
  const MeshShape shape{.dp = 1, .pp = 3};
  std::vector<Counts> all = counts_of(shape);
  all[0].targets = all[1].targets = 7;
  all[1].samples = all[2].samples = 9;
  const Totals totals = tally(all, shape, 0);
  EXPECT_EQ(totals.targets, 10);
  EXPECT_EQ(totals.samples, 1);
}

TEST(Totals, NameTheFirstRankOfTheWorldThatRefuses) {
  const MeshShape shape{.dp = 2, .tp = 2, .pp = 2};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    std::vector<Counts> all = counts_of(shape);
    all[static_cast<std::size_t>(rank)] = {.batches = kRefused};
    all.back() = {.batches = kRefused};
    const Totals totals = tally(all, shape, 0);
    EXPECT_EQ(totals.refused_by, rank);
    EXPECT_EQ(totals.mismatch, "") << "a rank that refuses has no fingerprint";
  }
}

TEST(Totals, RefuseOtherBatchesOnARankOfTheSameDpIndex) {
  const MeshShape shape{.dp = 2, .tp = 2, .pp = 2};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    std::vector<Counts> all = counts_of(shape);
    all[static_cast<std::size_t>(rank)].values ^= 1;
    const std::string values = tally(all, shape, 0).mismatch;
    EXPECT_NE(values.find("differ in values"), std::string::npos) << values;
    EXPECT_NE(values.find("dp index " + std::to_string(rank / 2 % 2)), std::string::npos) << values;
    all[static_cast<std::size_t>(rank)].sizes ^= 1;
    const std::string sizes = tally(all, shape, 0).mismatch;
    EXPECT_NE(sizes.find("number or shape"), std::string::npos) << sizes;
  }
}

TEST(Totals, NameTheFirstRankWhoseOtherArgumentsAreNotThoseOfRankZero) {
  const MeshShape shape{.dp = 2, .tp = 2, .pp = 2};
  EXPECT_EQ(tally(counts_of(shape), shape, 0).differs, -1);
  for (int rank = 1; rank < shape.ranks(); ++rank) {
    std::vector<Counts> all = counts_of(shape);
    all.back().common = 6;
    all[static_cast<std::size_t>(rank)].common = 5;
    EXPECT_EQ(tally(all, shape, 0).differs, rank);
    all.front() = {.batches = kRefused};
    EXPECT_EQ(tally(all, shape, 0).differs, -1) << "a refusal comes first";
  }
}

struct Fingerprints : ::testing::Test {
  static Counts of(const std::vector<MicroBatch>& micros, const MeshShape& shape = {.tp = 2}) {
    Counts counts;
    fingerprint(micros, shape, counts);
    return counts;
  }
  MicroBatch micro() {
    return {.input = {inputs.data(), DType::i32, {2, 3}},
            .targets = {targets.data(), DType::i32, {2, 3}},
            .samples = samples};
  }
  std::vector<std::int32_t> inputs = {1, 2, 3, 4, 5, 6}, targets = {2, 3, 4, 5, 6, 7};
  std::vector<std::int64_t> samples = {0, 1};
};

TEST_F(Fingerprints, DependOnShapesAndOnEveryValue) {
  const Counts first = of({micro()});
  EXPECT_EQ(of({micro()}).values, first.values);
  for (std::vector<std::int32_t>* ids : {&inputs, &targets}) {
    ++ids->back();
    EXPECT_EQ(of({micro()}).sizes, first.sizes);
    EXPECT_NE(of({micro()}).values, first.values);
    --ids->back();
  }
  samples[1] = 5;
  EXPECT_NE(of({micro()}).values, first.values) << "numbers of samples";
  samples[1] = 1;
  MicroBatch other = micro();
  other.input.shape = {3, 2};
  EXPECT_NE(of({other}).sizes, first.sizes);
  EXPECT_NE(of({micro(), micro()}).sizes, first.sizes);
  MicroBatch unnumbered = micro();
  unnumbered.samples = {};
  EXPECT_NE(of({unnumbered}).sizes, first.sizes);
}

TEST_F(Fingerprints, AreNotMadeWhereEveryRankHasSamplesOfItsOwn) {
  EXPECT_EQ(of({micro()}, {.dp = 4}).values, 0u);
  EXPECT_NE(of({micro()}, {.pp = 2}).values, 0u);
}

TEST_F(Fingerprints, TakeTheEndsOfLongFloats) {
  std::vector<float> image(100000, 1.0f);
  const auto values = [&] {
    return of({{.input = {image.data(), DType::f32, {1, 100000}}, .targets = {}}}).values;
  };
  const std::uint64_t first = values();
  image.front() = 2;
  EXPECT_NE(values(), first);
  image.front() = 1;
  EXPECT_EQ(values(), first);
  image.back() = 2;
  EXPECT_NE(values(), first);
}

}  // namespace
}  // namespace troupe::train::internal
