// Tests layer norm and RMS norm: values of another framework, gradients, and rows that overflow
// or are constant.
#include "testing.hpp"

namespace troupe::kernels {
namespace {

template <class T>
struct Case {
  std::int64_t rows, columns;
  bool rms;
  std::vector<T> in, weight, bias, dout;
  std::vector<T> out = std::vector<T>(in.size()), din = std::vector<T>(in.size()),
                 mean = std::vector<T>(static_cast<std::size_t>(rows)), rstd = mean,
                 dweight = std::vector<T>(weight.size()), dbias = dweight;

  Norm forward() {
    return {.type = type_of<T>,
            .rms = rms,
            .rows = rows,
            .columns = columns,
            .in = in.data(),
            .weight = weight.data(),
            .bias = bias.empty() ? nullptr : bias.data(),
            .out = out.data(),
            .mean = rms ? nullptr : mean.data(),
            .rstd = rstd.data()};
  }
  NormBackward backward(bool add = false) {
    return {.forward = forward(),
            .dout = dout.data(),
            .din = din.data(),
            .add = add,
            .dweight = dweight.data(),
            .dbias = bias.empty() ? nullptr : dbias.data()};
  }
  void run(Queue& queue) {
    cpu::norm(queue, forward());
    cpu::norm_backward_input(queue, backward());
    cpu::norm_backward_weight(queue, backward());
  }
};

template <class T>
Case<T> random_case(std::int64_t rows, std::int64_t columns, bool rms) {
  return {rows,
          columns,
          rms,
          randoms<T>(rows * columns, 1, 3),
          randoms<T>(columns, 2),
          rms ? std::vector<T>() : randoms<T>(columns, 3),
          randoms<T>(rows * columns, 4)};
}

TEST(Norms, LayerNormIsTorchs) {
  Case<double> c{1, 4, false, {1, 2, 3, 4}, {1, .5, 2, 1}, {0, .1, .2, .3}, {1, 2, 3, 4}};
  SplitQueue queue;
  c.run(queue);
  const double out[] = {-1.34163541997, -.12360590333, 1.09442361331, 1.64163541997};
  const double din[] = {.08942733513, -1.16275570604, 2.05717931935, -.98385094845};
  for (std::size_t i = 0; i < 4; ++i) {
    // epsilon is a float, so 1e-5 has eight digits only
    EXPECT_NEAR(c.out[i], out[i], 1e-10);
    EXPECT_NEAR(c.din[i], din[i], 1e-10);
  }
}

TEST(Norms, GradientsAreCentralDifferences) {
  for (const bool rms : {false, true}) {
    SCOPED_TRACE(rms ? "rms" : "layer");
    auto c = random_case<double>(3, 9, rms);
    SplitQueue queue;
    c.run(queue);
    const auto f = [&] {
      cpu::norm(queue, c.forward());
      return dot(c.out, c.dout);
    };
    expect_gradient(c.in, c.din, f);
    expect_gradient(c.weight, c.dweight, f);
    if (!rms) expect_gradient(c.bias, c.dbias, f);
  }
}

TEST(Norms, InputGradientIsAddedWhereItIsTold) {
  auto c = random_case<double>(3, 9, false);
  SplitQueue queue;
  c.run(queue);
  const auto written = c.din;
  cpu::norm_backward_input(queue, c.backward(true));
  for (std::size_t i = 0; i < written.size(); ++i) EXPECT_DOUBLE_EQ(c.din[i], 2 * written[i]);
}

TEST(Norms, WeightGradientsAddRowByRow) {
  // Parts must give the bits of one call of all rows, as accumulation over micro-batches demands.
  auto c = random_case<float>(8, 33, false), parts = c;
  SplitQueue queue(3);
  c.run(queue);
  cpu::norm(queue, parts.forward());
  for (const std::int64_t first : {0, 4}) {
    NormBackward half = parts.backward();
    half.forward.rows = 4;
    half.forward.in = parts.in.data() + first * 33;
    half.forward.mean = parts.mean.data() + first;
    half.forward.rstd = parts.rstd.data() + first;
    half.dout = parts.dout.data() + first * 33;
    cpu::norm_backward_weight(queue, half);
  }
  EXPECT_EQ(parts.dweight, c.dweight);
  EXPECT_EQ(parts.dbias, c.dbias);
}

/// Compares every result of the f32 case with f64.
void expect_close(Case<float>& c, double tolerance) {
  const auto wide = [](const std::vector<float>& x) {
    return std::vector<double>(x.begin(), x.end());
  };
  Case<double> exact{c.rows,         c.columns,    c.rms,       wide(c.in),
                     wide(c.weight), wide(c.bias), wide(c.dout)};
  SplitQueue queue;
  c.run(queue);
  exact.run(queue);
  const auto expect = [&](const std::vector<float>& a, const std::vector<double>& b,
                          const char* what) {
    double size = 1e-30;
    for (const double value : b) size = std::max(size, std::abs(value));
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i] / size, b[i] / size, tolerance) << what << " " << i;
  };
  expect(c.out, exact.out, "out");
  expect(c.din, exact.din, "din");
  expect(c.dweight, exact.dweight, "dweight");
}

TEST(Norms, RowsWhoseSquaresOverflowAreComputed) {
  for (const bool rms : {false, true})
    for (const double scale : {1e18, 1e25, 1e37, 3e38}) {
      SCOPED_TRACE(testing::Message() << (rms ? "rms " : "layer ") << scale);
      auto c = random_case<float>(2, 33, rms);
      c.in = randoms<float>(2 * 33, 7, scale);
      expect_close(c, 1e-5);
      for (const float y : c.out) EXPECT_TRUE(std::isfinite(y));
    }
}

TEST(Norms, ARowOfEqualNumbersGivesTheBias) {
  for (const float value : {0.0f, 0.1f, 1.0f, -1e4f, 1e10f, kHuge})
    for (const std::int64_t columns : {1, 33, 1000}) {
      SCOPED_TRACE(testing::Message() << value << " " << columns);
      auto c = random_case<float>(1, columns, false);
      c.in.assign(c.in.size(), value);
      SplitQueue queue;
      c.run(queue);
      for (std::size_t i = 0; i < c.out.size(); ++i) EXPECT_NEAR(c.out[i], c.bias[i], 2e-5);
      EXPECT_NEAR(c.mean[0], value, std::abs(value) * 2e-6);
    }
}

TEST(Norms, AMeanThatDwarfsTheDeviationCostsNoDigits) {
  auto c = random_case<float>(2, 100, false);
  for (float& x : c.in) x += 3000;
  expect_close(c, 1e-4);  // the kept mean has 24 bits
}

TEST(Norms, TinyRowsAreDividedByEpsilon) {
  for (const bool rms : {false, true}) {
    auto c = random_case<float>(1, 33, rms);
    c.in = randoms<float>(33, 7, 1e-30);
    expect_close(c, 1e-5);
  }
}

TEST(Norms, NaNSpoilsItsRowOnly) {
  for (const bool rms : {false, true})
    for (const float bad : {kNaN, kInfinity}) {
      auto c = random_case<float>(3, 33, rms);
      c.in[33 + 5] = bad;
      SplitQueue queue;
      c.run(queue);
      for (std::size_t i = 0; i < c.out.size(); ++i) {
        const bool spoilt = i / 33 == 1;
        if (spoilt && bad == kInfinity) continue;  // some of its numbers are 0
        EXPECT_EQ(std::isnan(c.out[i]), spoilt) << i;
        EXPECT_EQ(std::isnan(c.din[i]), spoilt) << i;
      }
      EXPECT_TRUE(std::isnan(c.out[33 + 5]));
    }
}

}  // namespace
}  // namespace troupe::kernels
