// Tests AdamW, elementwise operations, column sums, sums of squares by chunk, embeddings and
// casts.
#include "../helpers.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/kernels/half/half.hpp"

#include <cstring>
#include <limits>
#include <numeric>

namespace troupe::kernels {
namespace {

const std::vector<std::int64_t> kCounts = {0, 1, 31, 33, 1025, 70001};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// Runs `f` on devices of 1, 2 and 3 threads.
template <class F>
void on_devices(const F& f) {
  for (const int threads : {1, 2, 3}) {
    Device device = cpu_device({.threads = threads});
    f(device, device.kernels(), device.compute());
  }
}

struct Moments {
  std::vector<float> w, m, v;
  explicit Moments(std::size_t n)
      : w(random_vector(n, 1)), m(random_vector(n, 2)), v(random_vector(n, 3)) {
    for (float& x : v) x = std::abs(x);
  }
  AdamW step(const std::vector<float>& g) {
    return {.n = static_cast<std::int64_t>(w.size()),
            .weights = w.data(),
            .m = m.data(),
            .v = v.data(),
            .gradients = g.data(),
            .rate = 1e-2f,
            .decay = 0.1f,
            .gradient_scale = 0.5f,
            .step = 3};
  }
};

TEST(AdamWOperation, IsTorchsOverThreeSteps) {
  Device device = cpu_device();
  for (const bool decays : {true, false}) {
    float w = 1, m = 0, v = 0;
    const float gradients[] = {.1f, -.2f, .3f};
    const double expected[2][3] = {{0.900000010, 0.936610360388, 0.902286253948},
                                   {0.899000010, 0.934711360378, 0.899452542577}};
    for (int i = 0; i < 3; ++i) {
      device.kernels().adamw(device.compute(), {.n = 1,
                                                .weights = &w,
                                                .m = &m,
                                                .v = &v,
                                                .gradients = &gradients[i],
                                                .rate = .1f,
                                                .beta2 = .999f,
                                                .decay = decays ? .01f : 0.0f,
                                                .step = i + 1});
      EXPECT_NEAR(w, expected[decays][i], 2e-7) << "step " << i + 1;
    }
  }
}

TEST(AdamWOperation, ScalesGradientsBeforeUse) {
  Device device = cpu_device();
  const std::vector<float> g = random_vector(33, 4);
  std::vector<float> halves = g;
  for (float& value : halves) value *= 0.5f;
  Moments scaled(33), given(33);
  device.kernels().adamw(device.compute(), scaled.step(g));
  AdamW o = given.step(halves);
  o.gradient_scale = 1;
  device.kernels().adamw(device.compute(), o);
  EXPECT_EQ(scaled.w, given.w);
  EXPECT_EQ(scaled.v, given.v);
}

TEST(AdamWOperation, BitsDoNotDependOnTheNumberOfThreads) {
  for (const std::int64_t n : kCounts) {
    const std::vector<float> g = random_vector(size(n), 4);
    Moments one(size(n));
    Device device = cpu_device();
    device.kernels().adamw(device.compute(), one.step(g));
    on_devices([&](Device&, const Kernels& k, Queue& queue) {
      Moments x(size(n));
      k.adamw(queue, x.step(g));
      ASSERT_EQ(x.w, one.w);
      ASSERT_EQ(x.m, one.m);
      ASSERT_EQ(x.v, one.v);
    });
  }
}

TEST(AdamWOperation, AGradientWhoseSquareOverflowsMovesItsParameterNowAndLater) {
  Device device = cpu_device();
  for (const float huge : {2e19f, -2e19f, 1e25f, 3e38f}) {
    float w = 1, m = 0, v = 0, g = huge;
    AdamW o{.n = 1, .weights = &w, .m = &m, .v = &v, .gradients = &g, .rate = 0.1f, .decay = 0};
    device.kernels().adamw(device.compute(), o);
    // The first step of Adam is rate * sign, for gradients of any size.
    ASSERT_NEAR(w, huge > 0 ? 0.9f : 1.1f, 1e-3f) << huge;
    ASSERT_TRUE(std::isfinite(v) && std::isfinite(m)) << huge;
    for (o.step = 2; o.step < 40; ++o.step) {
      const float before = w;
      device.kernels().adamw(device.compute(), o);
      ASSERT_TRUE(std::isfinite(w)) << huge;
      ASSERT_GT(std::abs(w - before), 0.01f) << huge << ' ' << o.step;
    }
  }
}

TEST(AdamWOperation, SecondMomentOfAHugeGradientIsTheExactOne) {
  Device device = cpu_device();
  float w = 1, m = 0, v = 0, g = 2e19f;
  device.kernels().adamw(
      device.compute(),
      {.n = 1, .weights = &w, .m = &m, .v = &v, .gradients = &g, .rate = 0.1f, .beta2 = 0.95f});
  EXPECT_NEAR(v / (0.05 * 2e19 * 2e19), 1.0, 1e-6);
}

TEST(AdamWOperation, GradientsThatAreNotFiniteShow) {
  Device device = cpu_device();
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    float w = 1, m = 0, v = 0, g = bad;
    device.kernels().adamw(device.compute(),
                           {.n = 1, .weights = &w, .m = &m, .v = &v, .gradients = &g});
    EXPECT_FALSE(std::isfinite(m)) << bad;
  }
}

TEST(VectorOperations, AddScaleAndFillAreRightInPlaceToo) {
  on_devices([](Device&, const Kernels& k, Queue& queue) {
    for (const std::int64_t n : kCounts) {
      const std::vector<float> a = random_vector(size(n), 1), b = random_vector(size(n), 2);
      std::vector<float> sum(a), scaled(size(n)), filled(size(n));
      k.add(queue, {.n = n, .a = sum.data(), .b = b.data(), .out = sum.data(), .factor = 0.5});
      k.scale(queue, {.n = n, .a = a.data(), .out = scaled.data(), .factor = -2});
      k.fill(queue, {.n = n, .out = filled.data(), .factor = 3});
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(sum[i], a[i] + 0.5f * b[i]);
        ASSERT_EQ(scaled[i], -2 * a[i]);
        ASSERT_EQ(filled[i], 3.0f);
      }
    }
  });
}

TEST(VectorOperations, DoublesAreAddedScaledAndFilled) {
  Device device = cpu_device();
  const Kernels& k = device.kernels();
  std::vector<double> a = {1, 2, 1e-300}, b = {0.5, 1e300, 1e-300}, c(3);
  Elementwise o{.type = DType::f64, .n = 3, .a = a.data(), .b = b.data(), .out = c.data()};
  k.add(device.compute(), o);
  EXPECT_EQ(c, (std::vector<double>{1.5, 2 + 1e300, 2e-300}));
  o.factor = 3;
  k.scale(device.compute(), o);
  EXPECT_EQ(c, (std::vector<double>{3, 6, 3e-300}));
  k.fill(device.compute(), o);
  EXPECT_EQ(c, (std::vector<double>{3, 3, 3}));
}

TEST(ColumnSums, AddRowsInAscendingOrderForAnyNumberOfThreads) {
  on_devices([](Device&, const Kernels& k, Queue& queue) {
    for (const std::int64_t rows : {0, 1, 33, 1025})
      for (const std::int64_t columns : {1, 31, 1025}) {
        const std::vector<float> in = random_vector(size(rows * columns), 1);
        std::vector<float> expected = random_vector(size(columns), 2), out = expected;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < columns; ++c) expected[size(c)] += in[size(r * columns + c)];
        k.column_sum(queue, {.rows = rows, .columns = columns, .in = in.data(), .out = out.data()});
        ASSERT_EQ(out, expected);
      }
  });
}

TEST(ChunkSquares, EachChunkHasItsOwnSumAndTheLastMayBeShort) {
  on_devices([](Device&, const Kernels& k, Queue& queue) {
    const std::int64_t n = 300 * 1024 + 7;
    std::vector<float> x = random_vector(size(n), 1, 1e25);  // the squares overflow a float
    std::vector<double> out(301, -1.0);
    k.chunk_squares(queue, {.n = n, .x = x.data(), .out = out.data()});
    for (std::int64_t i = 0; i < 301; ++i) {
      double sum = 0;
      for (std::int64_t j = i * 1024; j < std::min((i + 1) * 1024, n); ++j)
        sum += static_cast<double>(x[size(j)]) * x[size(j)];
      ASSERT_NEAR(out[size(i)] / sum, 1, 1e-12);
    }
  });
}

TEST(EmbeddingOperation, TokensElsewhereGiveZeroRowsAndNoGradient) {
  on_devices([](Device&, const Kernels& k, Queue& queue) {
    const std::int64_t rows = 1025, time = 25, columns = 130, first = 3, table_rows = 5;
    std::vector<std::int32_t> tokens(size(rows));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int>(i * 7 % 11);
    const std::vector<float> table = random_vector(size(table_rows * columns), 1);
    const std::vector<float> positions = random_vector(size(time * columns), 2);
    const std::vector<float> dout = random_vector(size(rows * columns), 3);
    for (const bool with_positions : {false, true}) {
      std::vector<float> out(dout.size(), 9.0f), expected(out.size());
      std::vector<float> dtable(table.size(), 1.0f), dpositions(positions.size(), 1.0f);
      std::vector<float> expected_table(dtable), expected_positions(dpositions);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t row = tokens[size(r)] - first;
          const bool here = row >= 0 && row < table_rows;
          const auto at = size(r * columns + c), place = size(r % time * columns + c);
          expected[at] = (here ? table[size(row * columns + c)] : 0.0f) +
                         (with_positions ? positions[place] : 0.0f);
          if (here) expected_table[size(row * columns + c)] += dout[at];
          expected_positions[place] += dout[at];
        }
      const Embedding o{.rows = rows,
                        .time = time,
                        .columns = columns,
                        .tokens = tokens.data(),
                        .table = table.data(),
                        .first = first,
                        .table_rows = table_rows,
                        .positions = with_positions ? positions.data() : nullptr,
                        .out = out.data(),
                        .dout = dout.data(),
                        .dtable = dtable.data(),
                        .dpositions = with_positions ? dpositions.data() : nullptr};
      k.embedding(queue, o);
      k.embedding_backward(queue, o);
      ASSERT_EQ(out, expected);
      ASSERT_EQ(dtable, expected_table);
      if (with_positions) {
        ASSERT_EQ(dpositions, expected_positions);
      }
    }
  });
}

template <class To, class From>
std::vector<To> cast_to(DType to, DType from, const std::vector<From>& in) {
  Device device = cpu_device({.threads = 2});
  std::vector<To> out(in.size());
  device.kernels().cast(device.compute(), {.from = from,
                                           .to = to,
                                           .n = static_cast<std::int64_t>(in.size()),
                                           .in = in.data(),
                                           .out = out.data()});
  return out;
}

TEST(CastOperation, GoesToTheNearestAndBack) {
  const std::vector<float> x = random_vector(70001, 1, 100);
  const auto bf16 = cast_to<std::uint16_t>(DType::bf16, DType::f32, x);
  const auto f16 = cast_to<std::uint16_t>(DType::f16, DType::f32, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bf16[i], to_bf16(x[i]));
    ASSERT_EQ(f16[i], to_f16(x[i]));
  }
  const auto back = cast_to<float>(DType::f32, DType::f16, f16);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back[i], from_f16(f16[i]));
  const auto wide = cast_to<double>(DType::f64, DType::bf16, bf16);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(wide[i], from_bf16(bf16[i]));
}

TEST(CastOperation, DoublesAreRoundedOnce) {
  // Just above the middle of two bfloat16 numbers. Rounding to float first would give the middle.
  const double middle = 1 + 1.0 / 256, above = middle + 1e-12, below = middle - 1e-12;
  const std::vector<double> x = {middle, above, below, -above, 1e300, -1e300};
  const auto bf16 = cast_to<std::uint16_t>(DType::bf16, DType::f64, x);
  EXPECT_EQ(bf16, (std::vector<std::uint16_t>{0x3f80, 0x3f81, 0x3f80, 0xbf81, 0x7f80, 0xff80}));
  const auto f16 = cast_to<std::uint16_t>(DType::f16, DType::f64,
                                          std::vector<double>{1 + 0x1p-11, 1 + 0x1p-11 + 1e-12});
  EXPECT_EQ(f16, (std::vector<std::uint16_t>{0x3c00, 0x3c01}));
}

}  // namespace
}  // namespace troupe::kernels
