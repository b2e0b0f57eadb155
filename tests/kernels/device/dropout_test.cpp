// Tests dropout: its rate, and that its mask depends only on (seed, stream, row, column).
#include "testing.hpp"
#include "troupe/kernels/philox/philox.hpp"

namespace troupe::kernels {
namespace {

/// Returns the call for all `rows` rows of `columns` columns, in place.
Dropout dropout_of(std::vector<float>& x, std::int64_t rows, std::int64_t columns, float p) {
  return {.p = p,
          .seed = 0x123456789abcdefu,
          .stream = 42,
          .rows = rows,
          .columns = columns,
          .all_columns = columns,
          .in = x.data(),
          .out = x.data()};
}

std::vector<float> dropped(std::int64_t rows, std::int64_t columns, float p) {
  std::vector<float> x(static_cast<std::size_t>(rows * columns), 1.0f);
  SplitQueue queue;
  cpu::dropout(queue, dropout_of(x, rows, columns, p));
  return x;
}

TEST(Dropout, PhiloxGivesItsKnownAnswers) {
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, KeepsWhatPhiloxSays) {
  const auto x = dropped(3, 133, 0.3f);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(x[i], philox_uniform(0x123456789abcdefu, 42, i) >= 0.3f
                        ? static_cast<float>(1 / (1 - static_cast<double>(0.3f)))
                        : 0.0f)
        << i;
}

TEST(Dropout, RateIsThatAskedFor) {
  for (const float p : {0.01f, 0.1f, 0.5f, 0.9f}) {
    double zeros = 0, sum = 0;
    for (const float value : dropped(1000, 1000, p)) zeros += value == 0, sum += value;
    const double deviation = std::sqrt(p * (1 - p) * 1e6);
    EXPECT_NEAR(zeros, p * 1e6, 5 * deviation);
    EXPECT_NEAR(sum, 1e6, 5 * deviation / (1 - p));
  }
}

TEST(Dropout, NothingIsDroppedAtZeroAndEverythingAtOne) {
  for (const float value : dropped(3, 33, 0)) EXPECT_EQ(value, 1);
  for (const float value : dropped(3, 33, 1)) EXPECT_EQ(value, 0);
}

TEST(Dropout, ADroppedNaNIsGone) {
  std::vector<float> x(1000, kNaN);
  SplitQueue queue;
  cpu::dropout(queue, dropout_of(x, 1, 1000, 0.5f));
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(std::isnan(x[i]), philox_uniform(0x123456789abcdefu, 42, i) >= 0.5f);
}

TEST(Dropout, AnySplitOfRowsAndColumnsGivesTheSameMask) {
  // 6 samples of 3 rows of 37 columns, divided by samples, reordered, and divided by columns.
  const auto all = dropped(18, 37, 0.5f);
  SplitQueue queue(3);
  for (const std::vector<std::int64_t>& samples :
       {std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}, {4}, {5, 0}, {2, 3, 1}})
    for (const std::int64_t first : {0, 1, 18, 36})
      for (const std::int64_t columns : {std::int64_t{1}, std::int64_t{19}, 37 - first}) {
        if (first + columns > 37) continue;
        const std::int64_t rows = std::ssize(samples) * 3;
        std::vector<float> x(static_cast<std::size_t>(rows * columns), 1.0f);
        Dropout o = dropout_of(x, rows, columns, 0.5f);
        o.samples = samples.data();
        o.time = 3;
        o.first_column = first;
        o.all_columns = 37;
        cpu::dropout(queue, o);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < columns; ++c)
            EXPECT_EQ(
                x[static_cast<std::size_t>(r * columns + c)],
                all[static_cast<std::size_t>(
                    (samples[static_cast<std::size_t>(r / 3)] * 3 + r % 3) * 37 + first + c)]);
      }
}

TEST(Dropout, RowsFromAFirstOneHaveTheMaskOfTheWhole) {
  const auto all = dropped(18, 37, 0.5f);
  const std::vector<std::int64_t> samples{0, 1, 2, 3, 4, 5};
  SplitQueue queue(3);
  for (const std::int64_t* numbers : {samples.data(), static_cast<const std::int64_t*>(nullptr)})
    for (const std::int64_t first : {0, 1, 7, 17}) {
      std::vector<float> x(static_cast<std::size_t>((18 - first) * 37), 1.0f);
      Dropout o = dropout_of(x, 18 - first, 37, 0.5f);
      o.samples = numbers;
      o.first_row = first;
      o.time = 3;
      cpu::dropout(queue, o);
      EXPECT_TRUE(std::equal(x.begin(), x.end(), all.begin() + first * 37)) << first;
    }
}

TEST(Dropout, SeedAndStreamChangeTheMask) {
  const auto base = dropped(10, 100, 0.5f);
  std::vector<float> x(1000, 1.0f), y = x;
  Dropout seed = dropout_of(x, 10, 100, 0.5f), stream = dropout_of(y, 10, 100, 0.5f);
  seed.seed = 7;
  stream.stream = 43;
  SplitQueue queue;
  cpu::dropout(queue, seed);
  cpu::dropout(queue, stream);
  EXPECT_NE(x, base);
  EXPECT_NE(y, base);
  EXPECT_NE(x, y);
}

}  // namespace
}  // namespace troupe::kernels
