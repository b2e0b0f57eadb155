// Tests cross-entropy: whole, in shards of the vocabulary, with ignored rows and extreme logits.
#include "testing.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/denormals/denormals.hpp"

namespace troupe::kernels {
namespace {

template <class T>
struct Rows {
  std::vector<T> logits;
  std::vector<std::int32_t> targets;
  std::vector<T> losses = std::vector<T>(targets.size()), maximum = losses, sum = losses,
                 at_target = losses;

  CrossEntropy call(double scale = 1, bool gradient = true) {
    const auto rows = std::ssize(targets),
               classes = std::ssize(logits) / std::max<std::ptrdiff_t>(1, rows);
    return {.type = type_of<T>,
            .rows = rows,
            .first = 0,
            .classes = classes,
            .row = classes,
            .logits = logits.data(),
            .targets = targets.data(),
            .maximum = maximum.data(),
            .sum = sum.data(),
            .target_logit = at_target.data(),
            .losses = losses.data(),
            .gradient = gradient,
            .scale = scale};
  }
};

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int32_t classes) {
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r)
    targets.push_back(r % 4 == 3 ? kIgnore : static_cast<std::int32_t>((r * 17 + 64) % classes));
  return targets;
}

TEST(CrossEntropy, IsTorchs) {
  Rows<double> rows{{2, 1, .1}, {0}};
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call(1, false));
  EXPECT_NEAR(rows.losses[0], .41703001628, 1e-10);
  EXPECT_EQ(rows.logits, (std::vector<double>{2, 1, .1}));
}

TEST(CrossEntropy, OfEqualLogitsIsTheLogarithmOfTheirNumber) {
  for (const std::size_t classes : {10u, 65u, 50257u}) {
    Rows<float> rows{std::vector<float>(classes, 0.5f), {3}};
    SplitQueue queue;
    cpu::cross_entropy(queue, rows.call(1, false));
    EXPECT_NEAR(rows.losses[0], std::log(static_cast<double>(classes)), 2e-6 * 11);
  }
}

// Scores far below the maximum give subnormal probabilities.
TEST(CrossEntropy, GivesNoSubnormalNumbersWhenTheyAreFlushed) {
  const FlushDenormals flush;
  Rows<float> rows{{100, 12.5f, 13, -50}, {0}};
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call(0.25));
  for (const float value : rows.logits) EXPECT_NE(std::fpclassify(value), FP_SUBNORMAL) << value;
}

TEST(CrossEntropy, GradientIsCentralDifferences) {
  Rows<double> rows{randoms<double>(5 * 9, 1, 3), some_targets(5, 9)}, copy = rows;
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call(0.25));
  expect_gradient(copy.logits, rows.logits, [&] {
    cpu::cross_entropy(queue, copy.call(1, false));
    double total = 0;
    for (const double loss : copy.losses) total += loss;
    return 0.25 * total;
  });
}

TEST(CrossEntropy, GradientDoesNotChangeTheLoss) {
  Rows<float> rows{randoms<float>(6 * 65, 1, 4), some_targets(6, 65)}, copy = rows;
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call(1, false));
  cpu::cross_entropy(queue, copy.call());
  EXPECT_EQ(rows.losses, copy.losses);
}

TEST(CrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
  Rows<float> rows{{kNaN, kInfinity, 1, 2}, {kIgnore, 1}};
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call());
  EXPECT_EQ(rows.losses[0], 0);
  EXPECT_EQ(rows.logits[0], 0);
  EXPECT_EQ(rows.logits[1], 0);
  EXPECT_GT(rows.losses[1], 0);
}

/// Returns columns [first, end) of the rows, as rows of their own.
template <class T>
Rows<T> shard_of(const Rows<T>& rows, std::int64_t first, std::int64_t end) {
  const auto classes = std::ssize(rows.logits) / std::ssize(rows.targets);
  Rows<T> shard{{}, rows.targets};
  for (std::int64_t r = 0; r < std::ssize(rows.targets); ++r)
    shard.logits.insert(shard.logits.end(), rows.logits.begin() + r * classes + first,
                        rows.logits.begin() + r * classes + end);
  return shard;
}

/// Gathers and combines the three statistics of each row, as ranks do.
template <class T>
void combine(std::vector<Rows<T>>& shards) {
  const std::size_t rows = shards[0].targets.size();
  std::vector<T> all, together(3 * rows);
  for (const Rows<T>& s : shards)
    for (const std::vector<T>* each : {&s.maximum, &s.sum, &s.at_target})
      all.insert(all.end(), each->begin(), each->end());
  SplitQueue queue(2);
  cpu::combine_stats(queue, {.type = type_of<T>,
                             .rows = static_cast<std::int64_t>(rows),
                             .parts = static_cast<int>(shards.size()),
                             .in = all.data(),
                             .out = together.data()});
  for (Rows<T>& s : shards)
    for (std::size_t r = 0; r < rows; ++r) {
      s.maximum[r] = together[r];
      s.sum[r] = together[rows + r];
      s.at_target[r] = together[2 * rows + r];
    }
}

/// Returns losses and gradients of shards that end at `ends`, joined.
template <class T>
Rows<T> in_shards(const Rows<T>& rows, const std::vector<std::int64_t>& ends, double scale) {
  SplitQueue queue(2);
  std::vector<Rows<T>> shards;
  std::vector<std::int64_t> firsts;
  for (std::int64_t first = 0; const std::int64_t end : ends) {
    shards.push_back(shard_of(rows, first, end));
    firsts.push_back(first);
    first = end;
  }
  const auto call = [&](std::size_t i) {
    CrossEntropy o = shards[i].call(scale);
    o.first = firsts[i];
    return o;
  };
  for (std::size_t i = 0; i < shards.size(); ++i) cpu::cross_entropy_stats(queue, call(i));
  combine(shards);
  for (std::size_t i = 0; i < shards.size(); ++i) cpu::cross_entropy_finish(queue, call(i));
  Rows<T> result{{}, rows.targets};
  result.losses = shards[0].losses;
  for (const Rows<T>& s : shards) EXPECT_EQ(s.losses, result.losses);
  for (std::size_t r = 0; r < rows.targets.size(); ++r)
    for (const Rows<T>& s : shards) {
      const auto n = std::ssize(s.logits) / std::ssize(s.targets),
                 at = n * static_cast<std::ptrdiff_t>(r);
      result.logits.insert(result.logits.end(), s.logits.begin() + at, s.logits.begin() + at + n);
    }
  return result;
}

TEST(CrossEntropy, OneShardGivesTheBitsOfTheWhole) {
  Rows<float> rows{randoms<float>(6 * 65, 1, 4), some_targets(6, 65)};
  const Rows<float> one = in_shards(rows, {65}, 0.2);
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call(0.2));
  EXPECT_EQ(one.losses, rows.losses);
  EXPECT_EQ(one.logits, rows.logits);
}

TEST(CrossEntropy, ShardsOfTheVocabularyGiveTheWhole) {
  for (const std::vector<std::int64_t>& ends :
       {std::vector<std::int64_t>{33, 65}, {22, 44, 65}, {1, 64, 65}, {0, 65}}) {
    Rows<float> rows{randoms<float>(6 * 65, 1, 4), some_targets(6, 65)};
    const Rows<float> parts = in_shards(rows, ends, 0.2);
    SplitQueue queue;
    cpu::cross_entropy(queue, rows.call(0.2));
    for (std::size_t i = 0; i < rows.losses.size(); ++i)
      EXPECT_NEAR(parts.losses[i], rows.losses[i], 2e-6);
    for (std::size_t i = 0; i < rows.logits.size(); ++i)
      EXPECT_NEAR(parts.logits[i], rows.logits[i], 1e-7);
  }
}

TEST(CrossEntropy, CombinedStatsAreThoseOfAllClasses) {
  // Two rows of three ranks. In the second row the first rank has padding only.
  const std::vector<double> in = {1, -kInfinity, 2, 0, -kInfinity, -kInfinity, 3,          0, 4, 1,
                                  7, -kInfinity, 2, 1, 5,          2,          -kInfinity, 9};
  std::vector<double> out(6);
  SplitQueue queue;
  cpu::combine_stats(
      queue, {.type = DType::f64, .rows = 2, .parts = 3, .in = in.data(), .out = out.data()});
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 1);
  EXPECT_NEAR(out[2], 2 * std::exp(-2.0) + 4 + 5 * std::exp(-1.0), 1e-15);
  EXPECT_NEAR(out[3], std::exp(-1.0) + 2, 1e-15);
  EXPECT_EQ(out[4], 7);
  EXPECT_EQ(out[5], 9);
}

TEST(CrossEntropy, NaNOfOneRankIsThatOfAll) {
  for (const std::size_t at : {0u, 3u}) {
    std::vector<float> in = {1, 2, 0, 1, 2, 0}, out(3);
    in[at] = kNaN;
    SplitQueue queue;
    cpu::combine_stats(queue, {.rows = 1, .parts = 2, .in = in.data(), .out = out.data()});
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1])) << at;
  }
}

TEST(CrossEntropy, PaddedClassesChangeNothing) {
  // 65 classes are padded to 66 for two ranks. The third rank of 22 columns has padding only.
  Rows<double> rows{randoms<double>(4 * 65, 1, 4), some_targets(4, 65)}, padded{{}, rows.targets};
  for (std::size_t r = 0; r < 4; ++r) {
    padded.logits.insert(padded.logits.end(),
                         rows.logits.begin() + static_cast<std::ptrdiff_t>(r * 65),
                         rows.logits.begin() + static_cast<std::ptrdiff_t>(r * 65 + 65));
    padded.logits.insert(padded.logits.end(), 23, -std::numeric_limits<double>::infinity());
  }
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call());
  for (const std::vector<std::int64_t>& ends :
       {std::vector<std::int64_t>{88}, {33, 88}, {33, 66, 88}}) {
    const Rows<double> parts = in_shards(padded, ends, 1);
    for (std::size_t r = 0; r < 4; ++r) {
      EXPECT_NEAR(parts.losses[r], rows.losses[r], 1e-13);
      for (std::size_t c = 0; c < 88; ++c)
        EXPECT_NEAR(parts.logits[r * 88 + c], c < 65 ? rows.logits[r * 65 + c] : 0, 1e-15);
    }
  }
}

TEST(CrossEntropy, HugeLogitsAreFinite) {
  // Row by row: equal and huge logits; the target far above; the target far below, but within a
  // float.
  Rows<float> rows{{3e38f, 3e38f, 1e38f, -1e38f, -1e38f, 1e38f, 1e7f, 1e7f}, {0, 0, 0, 1}};
  SplitQueue queue;
  cpu::cross_entropy(queue, rows.call());
  EXPECT_NEAR(rows.losses[0], std::log(2.0), 1e-6);
  EXPECT_EQ(rows.losses[1], 0);
  EXPECT_FLOAT_EQ(rows.losses[2], 2e38f);
  EXPECT_NEAR(rows.losses[3], std::log(2.0), 1e-6);
  const std::vector<float> expected = {-.5f, .5f, 0, 0, -1, 1, .5f, -.5f};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(rows.logits[i], expected[i], 1e-6);
}

TEST(CrossEntropy, NaNSpoilsItsRowWhereverItStands) {
  for (std::size_t at = 0; at < 33; ++at)
    for (const bool gradient : {false, true}) {
      Rows<float> rows{randoms<float>(2 * 33, 1), {3, 4}};
      rows.logits[at] = kNaN;
      SplitQueue queue;
      cpu::cross_entropy(queue, rows.call(1, gradient));
      EXPECT_TRUE(std::isnan(rows.losses[0])) << at;
      EXPECT_FALSE(std::isnan(rows.losses[1]));
      EXPECT_TRUE(!gradient || std::isnan(rows.logits[5]));
    }
}

TEST(CrossEntropy, RowsMayLieApart) {
  Rows<float> rows{randoms<float>(3 * 8, 1), {1, 2, 0}};
  CrossEntropy o = rows.call();
  o.classes = 5;
  const auto before = rows.logits;
  SplitQueue queue(2);
  cpu::cross_entropy(queue, o);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(rows.logits[i] == before[i], i % 8 >= 5) << i;
}

}  // namespace
}  // namespace troupe::kernels
