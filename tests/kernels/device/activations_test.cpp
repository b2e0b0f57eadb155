// Tests activations against values of another framework: results, gradients, and extreme inputs
// that must stay finite.
#include "testing.hpp"

namespace troupe::kernels {
namespace {

constexpr Activation kAll[] = {Activation::none, Activation::relu, Activation::gelu,
                               Activation::silu};

template <class T>
std::vector<T> activated(Activation activation, const std::vector<T>& x) {
  SplitQueue queue;
  std::vector<T> y(x.size());
  cpu::activate(queue, {type_of<T>, activation, std::ssize(x), x.data(), y.data()});
  return y;
}

template <class T>
std::vector<T> slopes(Activation activation, const std::vector<T>& x, const std::vector<T>& dout,
                      T start = 0, bool add = false) {
  SplitQueue queue;
  std::vector<T> dx(x.size(), start);
  cpu::activate_backward(
      queue, {type_of<T>, activation, std::ssize(x), x.data(), dout.data(), dx.data(), add});
  return dx;
}

TEST(Activations, GeluAndItsSlopeAreTorchs) {
  const std::vector<double> x = {-3, -1, -.5, .5, 1, 3};
  const std::vector<double> expected = {-.00363739208, -.15880800939, -.15428599017,
                                        .34571400983,  .84119199061,  2.99636260792};
  const auto y = activated(Activation::gelu, x);
  const auto single = activated(Activation::gelu, std::vector<float>(x.begin(), x.end()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(y[i], expected[i], 1e-10);
    EXPECT_NEAR(single[i], expected[i], 1e-6);
  }
  EXPECT_NEAR(slopes<double>(Activation::gelu, {1}, {1})[0], 1.08296408385, 1e-10);
}

TEST(Activations, SiluIsItsFormula) {
  for (const double x : {-30.0, -2.0, 0.0, 0.7, 5.0, 40.0}) {
    const double expected = x / (1 + std::exp(-x));
    EXPECT_NEAR(activated<double>(Activation::silu, {x})[0], expected,
                1e-14 + std::abs(expected) * 1e-14);
    EXPECT_NEAR(activated<float>(Activation::silu, {static_cast<float>(x)})[0], expected,
                1e-6 * (1e-6 + std::abs(expected)));
  }
}

TEST(Activations, GradientsAreCentralDifferences) {
  for (const Activation activation : kAll) {
    SCOPED_TRACE(static_cast<int>(activation));
    auto x = randoms<double>(33, 1, 4);
    const auto dout = randoms<double>(33, 2);
    expect_gradient(x, slopes(activation, x, dout),
                    [&] { return dot(activated(activation, x), dout); });
  }
}

TEST(Activations, BackwardAddsWhereItIsTold) {
  const std::vector<float> x = {-1, 0.5f, 2}, dout = {1, 2, 3};
  for (const Activation activation : kAll) {
    const auto written = slopes(activation, x, dout, 9.0f),
               added = slopes(activation, x, dout, 9.0f, true);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(added[i], written[i] + 9);
  }
}

TEST(Activations, InPlaceGivesTheSameBits) {
  SplitQueue queue;
  for (const Activation activation : kAll) {
    auto x = randoms<float>(1025, 1, 4), dout = randoms<float>(1025, 2);
    const auto y = activated(activation, x), dx = slopes(activation, x, dout);
    cpu::activate_backward(
        queue, {DType::f32, activation, 1025, x.data(), dout.data(), dout.data(), false});
    cpu::activate(queue, {DType::f32, activation, 1025, x.data(), x.data()});
    EXPECT_EQ(x, y);
    EXPECT_EQ(dout, dx);
  }
}

TEST(Activations, HugeInputsHaveTheLimitsAndNotNaN) {
  for (const float x : {50.0f, 1e10f, 1.9e19f, 1e30f, kHuge})
    for (const Activation activation : {Activation::relu, Activation::gelu, Activation::silu}) {
      SCOPED_TRACE(x);
      // 16 elements, so that the vector path computes them, not the remainder's
      const std::vector<float> up(16, x), down(16, -x), ones(16, 1.0f);
      EXPECT_EQ(activated(activation, up), up);
      EXPECT_EQ(slopes(activation, up, ones), ones);
      EXPECT_NEAR(activated(activation, down)[3], 0.0f, 1e-20);
      EXPECT_NEAR(slopes(activation, down, ones)[3], 0.0f, 1e-19);
      EXPECT_NEAR(activated(activation, std::vector<double>(2, -x))[1], 0, 1e-20);
      EXPECT_NEAR(slopes(activation, std::vector<double>(2, -x), {1, 1})[1], 0, 1e-19);
    }
}

TEST(Activations, NaNGivesNaN) {
  const std::vector<float> x(17, kNaN), one(17, 1.0f);
  for (const Activation activation : kAll) {
    SCOPED_TRACE(static_cast<int>(activation));
    for (const float y : activated(activation, x)) EXPECT_TRUE(std::isnan(y));
    for (const float y : slopes(activation, one, x)) EXPECT_TRUE(std::isnan(y));
    if (activation == Activation::none) continue;
    for (const float y : slopes(activation, x, one)) EXPECT_TRUE(std::isnan(y));
  }
}

TEST(Activations, ReluLeavesNothingOfWhatItDoesNotUse) {
  const auto dx = slopes<float>(Activation::relu, {-1, 0, 1}, {kInfinity, kNaN, 2});
  EXPECT_EQ(dx, (std::vector<float>{0, 0, 2}));
}

struct Gate {
  std::vector<double> in = randoms<double>(3 * 20, 1, 3);  ///< rows of gate (7), up (7), others
  std::vector<double> dout = randoms<double>(3 * 7, 2), out = std::vector<double>(3 * 7),
                      din = std::vector<double>(3 * 20, 5.0);
  GatedSilu call() {
    return {.type = DType::f64,
            .rows = 3,
            .columns = 7,
            .gate = in.data(),
            .up = in.data() + 7,
            .row_in = 20,
            .out = out.data(),
            .dout = dout.data(),
            .dgate = din.data(),
            .dup = din.data() + 7};
  }
};

TEST(GatedSilu, GradientsAreCentralDifferencesAndOtherColumnsStay) {
  Gate gate;
  SplitQueue queue(2);
  cpu::gated_silu_backward(queue, gate.call());
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 14; c < 20; ++c) {
      EXPECT_EQ(gate.din[r * 20 + c], 5.0);
      gate.din[r * 20 + c] = 0;
    }
  expect_gradient(gate.in, gate.din, [&] {
    cpu::gated_silu(queue, gate.call());
    return dot(gate.out, gate.dout);
  });
}

TEST(GatedSilu, IsTheProductOfSiluAndUp) {
  Gate gate;
  SplitQueue queue;
  cpu::gated_silu(queue, gate.call());
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 7; ++c) {
      const double x = gate.in[r * 20 + c];
      EXPECT_NEAR(gate.out[r * 7 + c], x / (1 + std::exp(-x)) * gate.in[r * 20 + 7 + c], 1e-14);
    }
}

}  // namespace
}  // namespace troupe::kernels
