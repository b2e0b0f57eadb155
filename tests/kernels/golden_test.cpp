// Reference values from torch in double precision and from the papers: the kernels compute the
// right function.
#include "helpers.hpp"
#include "troupe/kernels/kernels.hpp"

namespace troupe::kernels {
namespace {

TEST(Golden, GeluMatchesTorch) {
  const std::vector<float> x = {-3, -1, -.5f, .5f, 1, 3};
  const std::vector<double> expected = {-.00363739208, -.15880800939, -.15428599017,
                                        .34571400983,  .84119199061,  2.99636260792};
  std::vector<float> y(x.size());
  gelu_forward(y.data(), x.data(), 6);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], expected[i], 3e-7) << "x " << x[i];
}

TEST(Golden, GeluSlopeAtOne) {
  const float x = 1, dout = 1;
  float din = 0;
  gelu_backward(&din, &dout, &x, 1);
  EXPECT_NEAR(din, 1.08296408385, 5e-7);
}

TEST(Golden, GeluIsExactInItsTails) {
  const std::vector<float> x = {-1e30f, -50, 50, 1e10f};
  std::vector<float> y(4);
  gelu_forward(y.data(), x.data(), 4);
  EXPECT_EQ(y, (std::vector<float>{0, 0, 50, 1e10f}));
}

TEST(Golden, LayernormMatchesTorch) {
  const std::vector<float> x = {1, 2, 3, 4}, w = {1, .5f, 2, 1}, b = {0, .1f, .2f, .3f};
  std::vector<float> y(4), dx(4, 0.0f), dout = {1, 2, 3, 4};
  float mean = 0, rstd = 0;
  layernorm_forward(y.data(), &mean, &rstd, x.data(), w.data(), b.data(), 1, 4);
  const std::vector<double> forward = {-1.34163541997, -.12360590333, 1.09442361331, 1.64163541997};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], forward[i], 1e-6);
  layernorm_backward_input(dx.data(), dout.data(), x.data(), w.data(), &mean, &rstd, 1, 4);
  const std::vector<double> backward = {.08942733513, -1.16275570604, 2.05717931935, -.98385094845};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(dx[i], backward[i], 1e-6);
}

TEST(Golden, CrossEntropyMatchesTorch) {
  std::vector<float> logits = {2, 1, .1f};
  const std::int32_t target = 0;
  float loss = 0, fused = 0;
  cross_entropy_forward(&loss, logits.data(), &target, 1, 3);
  EXPECT_NEAR(loss, .41703001628, 1e-6);
  cross_entropy_fused(&fused, logits.data(), &target, 1, 3, 1.0f);
  EXPECT_EQ(loss, fused);
  EXPECT_NEAR(logits[0], std::exp(-.41703001628) - 1, 1e-6);
}

TEST(Golden, CrossEntropyOfEqualLogitsIsLogClasses) {
  for (const std::int64_t classes : {10, 65, 50257}) {
    const std::vector<float> logits(static_cast<std::size_t>(classes), 0.5f);
    const std::int32_t target = 3;
    float loss = 0;
    cross_entropy_forward(&loss, logits.data(), &target, 1, classes);
    EXPECT_NEAR(loss, std::log(static_cast<double>(classes)), 2e-6 * 11);
  }
}

TEST(Golden, CrossEntropyIgnoresMaskedRows) {
  std::vector<float> logits = {1, 2, 3, 4};
  const std::vector<std::int32_t> targets = {kIgnore, 1};
  std::vector<float> losses(2, 9.0f);
  cross_entropy_fused(losses.data(), logits.data(), targets.data(), 2, 2, 1.0f);
  EXPECT_EQ(losses[0], 0.0f);
  EXPECT_EQ(logits[0], 0.0f);
  EXPECT_EQ(logits[1], 0.0f);
  EXPECT_GT(losses[1], 0.0f);
}

TEST(Golden, AdamWMatchesTorchOverThreeSteps) {
  for (const bool decays : {true, false}) {
    float p = 1, m = 0, v = 0;
    const float gradients[] = {.1f, -.2f, .3f};
    const double expected[2][3] = {{0.900000010, 0.936610360388, 0.902286253948},
                                   {0.899000010, 0.934711360378, 0.899452542577}};
    for (int i = 0; i < 3; ++i) {
      adamw(&p, &m, &v, &gradients[i], 1,
            {.rate = .1f, .decay = decays ? .01f : 0.0f, .step = i + 1});
      EXPECT_NEAR(p, expected[decays][i], 2e-7) << "step " << i + 1;
    }
  }
}

TEST(Golden, AdamWScalesGradientsBeforeUse) {
  std::vector<float> a = {1, 2, 3}, b = a, m(3), v(3), n(3), w(3), g = {.5f, -1, 2}, h(3);
  for (std::size_t i = 0; i < 3; ++i) h[i] = g[i] * 0.25f;
  adamw(a.data(), m.data(), v.data(), g.data(), 3, {.gradient_scale = 0.25f});
  adamw(b.data(), n.data(), w.data(), h.data(), 3, {});
  EXPECT_EQ(a, b);
}

TEST(Golden, PhiloxKnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Golden, PhiloxNormalDependsOnTheElementAlone) {
  std::vector<float> whole(1001), parts(1001);
  philox_normal(whole.data(), 1001, 7, 3, 0, 0, 1);
  philox_normal(parts.data(), 333, 7, 3, 0, 0, 1);
  philox_normal(parts.data() + 333, 668, 7, 3, 333, 0, 1);
  EXPECT_EQ(whole, parts);
}

TEST(Golden, PhiloxNormalHasItsMoments) {
  constexpr int n = 100000;
  std::vector<float> x(n);
  philox_normal(x.data(), n, 42, 0, 0, 1.0f, 2.0f);
  double mean = 0, square = 0;
  for (const float value : x) mean += value / n;
  for (const float value : x) square += (value - mean) * (value - mean) / n;
  EXPECT_NEAR(mean, 1, 0.03);
  EXPECT_NEAR(square, 4, 0.08);
}

TEST(Golden, PhiloxUniformFillsItsRange) {
  float low = 1, high = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = philox_uniform(1, 0, i);
    low = std::min(low, u);
    high = std::max(high, u);
  }
  EXPECT_GE(low, 0.0f);
  EXPECT_LT(low, 0.001f);
  EXPECT_LT(high, 1.0f);
  EXPECT_GT(high, 0.999f);
}

}  // namespace
}  // namespace troupe::kernels
