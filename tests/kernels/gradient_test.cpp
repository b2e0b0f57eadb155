// Every backward kernel against central differences of its forward kernel, at odd sizes; gradients
// add up.
#include "helpers.hpp"
#include "troupe/kernels/kernels.hpp"

namespace troupe::kernels {
namespace {

class Gradients : public testing::Test {
 protected:
  void SetUp() override { use_blas(Blas::builtin); }
};

TEST_F(Gradients, Gelu) {
  for (const std::size_t n : {1u, 31u, 33u}) {
    std::vector<float> x = random_vector(n, 1, 3), dout = random_vector(n, 2), y(n), dx(n, 0.0f);
    const auto n64 = static_cast<std::int64_t>(n);
    auto f = [&] {
      gelu_forward(y.data(), x.data(), n64);
      return dot(y, dout);
    };
    gelu_backward(dx.data(), dout.data(), x.data(), n64);
    EXPECT_LT(relative_error(dx, numeric_gradient(x, f)), 1e-3);
    const std::vector<float> once = dx;
    gelu_backward(dx.data(), dout.data(), x.data(), n64);
    for (std::size_t i = 0; i < n; ++i) EXPECT_FLOAT_EQ(dx[i], 2 * once[i]);
  }
}

TEST_F(Gradients, Layernorm) {
  for (const std::int64_t channels : {5, 31, 33}) {
    const std::int64_t rows = 3;
    const auto size = static_cast<std::size_t>(rows * channels);
    const auto width = static_cast<std::size_t>(channels);
    std::vector<float> x = random_vector(size, 1, 2), w = random_vector(width, 2),
                       b = random_vector(width, 3), dout = random_vector(size, 4), y(size), mean(3),
                       rstd(3);
    std::vector<float> dx(size, 0.0f), dw(width, 0.0f), db(width, 0.0f);
    auto f = [&] {
      layernorm_forward(y.data(), mean.data(), rstd.data(), x.data(), w.data(), b.data(), rows,
                        channels);
      return dot(y, dout);
    };
    f();
    layernorm_backward_input(dx.data(), dout.data(), x.data(), w.data(), mean.data(), rstd.data(),
                             rows, channels);
    layernorm_backward_weight(dw.data(), db.data(), dout.data(), x.data(), mean.data(), rstd.data(),
                              rows, channels);
    EXPECT_LT(relative_error(dx, numeric_gradient(x, f)), 2e-3);
    EXPECT_LT(relative_error(dw, numeric_gradient(w, f)), 1e-3);
    EXPECT_LT(relative_error(db, numeric_gradient(b, f)), 1e-3);
  }
}

TEST_F(Gradients, LayernormWithoutBias) {
  const std::vector<float> x = {1, 2, 3}, w = {1, 1, 1}, zero = {0, 0, 0};
  std::vector<float> with(3), without(3), dw(3, 0.0f);
  float mean = 0, rstd = 0;
  layernorm_forward(with.data(), &mean, &rstd, x.data(), w.data(), zero.data(), 1, 3);
  layernorm_forward(without.data(), &mean, &rstd, x.data(), w.data(), nullptr, 1, 3);
  EXPECT_EQ(with, without);
  layernorm_backward_weight(dw.data(), nullptr, x.data(), x.data(), &mean, &rstd, 1, 3);
  EXPECT_NE(dw[0], 0.0f);
}

TEST_F(Gradients, Embedding) {
  const std::vector<std::int32_t> tokens = {2, 0, 2, 1, 1, 2};  // batch 2, time 3
  std::vector<float> wte = random_vector(9, 1), wpe = random_vector(9, 2),
                     dout = random_vector(18, 3), y(18), dwte(9, 0.0f), dwpe(9, 0.0f);
  auto f = [&] {
    embedding_forward(y.data(), tokens.data(), wte.data(), wpe.data(), 2, 3, 3);
    return dot(y, dout);
  };
  embedding_backward(dwte.data(), dwpe.data(), dout.data(), tokens.data(), 2, 3, 3);
  EXPECT_LT(relative_error(dwte, numeric_gradient(wte, f)), 1e-3);
  EXPECT_LT(relative_error(dwpe, numeric_gradient(wpe, f)), 1e-3);
}

TEST_F(Gradients, Attention) {
  const std::int64_t batch = 2, time = 5, channels = 6, heads = 2;
  std::vector<float> qkv = random_vector(2 * 5 * 18, 1), dout = random_vector(60, 2), y(60),
                     p(2 * 2 * 25), dqkv(qkv.size(), 0.0f);
  auto f = [&] {
    attention_forward(y.data(), p.data(), qkv.data(), batch, time, channels, heads);
    return dot(y, dout);
  };
  f();
  attention_backward(dqkv.data(), dout.data(), qkv.data(), p.data(), batch, time, channels, heads);
  EXPECT_LT(relative_error(dqkv, numeric_gradient(qkv, f)), 2e-3);
}

TEST_F(Gradients, AttentionNeverLooksAhead) {
  const std::int64_t time = 33, channels = 8;
  std::vector<float> qkv = random_vector(33 * 24, 1), y(33 * 8), z(33 * 8), p(2 * 33 * 33);
  attention_forward(y.data(), p.data(), qkv.data(), 1, time, channels, 2);
  for (std::size_t i = 20 * 24; i < qkv.size(); ++i) qkv[i] += 1.0f;
  attention_forward(z.data(), p.data(), qkv.data(), 1, time, channels, 2);
  for (std::size_t i = 0; i < 20 * 8; ++i) ASSERT_EQ(y[i], z[i]) << "position " << i / 8;
  EXPECT_NE(y[20 * 8], z[20 * 8]);
}

TEST_F(Gradients, AttentionSurvivesHugeScores) {
  std::vector<float> qkv(3 * 6, 1e4f), y(3 * 2), p(9);
  attention_forward(y.data(), p.data(), qkv.data(), 1, 3, 2, 1);
  for (const float value : y) EXPECT_FLOAT_EQ(value, 1e4f);
}

TEST_F(Gradients, CrossEntropy) {
  for (const std::int64_t classes : {3, 17, 33}) {
    const std::vector<std::int32_t> targets = {1, kIgnore, 2};
    std::vector<float> logits = random_vector(static_cast<std::size_t>(3 * classes), 1, 3),
                       losses(3);
    auto f = [&] {
      cross_entropy_forward(losses.data(), logits.data(), targets.data(), 3, classes);
      return (static_cast<double>(losses[0]) + losses[1] + losses[2]) / 2;
    };
    const std::vector<float> numeric = numeric_gradient(logits, f);
    cross_entropy_fused(losses.data(), logits.data(), targets.data(), 3, classes, 0.5f);
    EXPECT_LT(relative_error(logits, numeric), 2e-3);
  }
}

TEST_F(Gradients, CrossEntropySurvivesHugeLogits) {
  std::vector<float> logits = {1e4f, -1e4f, 0};
  const std::int32_t target = 1;
  float loss = 0;
  cross_entropy_fused(&loss, logits.data(), &target, 1, 3, 1.0f);
  EXPECT_FLOAT_EQ(loss, 2e4f);
  EXPECT_EQ(logits[0], 1.0f);
  EXPECT_EQ(logits[1], -1.0f);
  EXPECT_EQ(logits[2], 0.0f);
}

TEST(Denormals, AreZeroInsideTheScopeOnly) {
  volatile float tiny = 1e-30f, factor = 1e-10f;
  EXPECT_NE(tiny * factor, 0.0f);
  {
    const FlushDenormals flush;
    EXPECT_EQ(tiny * factor, 0.0f);
  }
  EXPECT_NE(tiny * factor, 0.0f);
}

// Far-away scores are where they come from.
TEST(Denormals, NoneComeOutOfTheSoftmaxWhenFlushed) {
  const FlushDenormals flush;
  std::vector<float> logits = {100, 12.5f, 13, -50};
  const std::int32_t target = 0;
  float loss = 0;
  cross_entropy_fused(&loss, logits.data(), &target, 1, 4, 0.25f);
  for (const float value : logits) EXPECT_NE(std::fpclassify(value), FP_SUBNORMAL) << value;
}

TEST(Elementwise, DoesWhatItSays) {
  for (const std::size_t n : {0u, 1u, 31u, 33u, 1025u}) {
    const auto size = static_cast<std::int64_t>(n);
    std::vector<float> x(n, 7.0f), y(n, 1.0f), z(n);
    fill(x.data(), 2.0f, size);
    scale(x.data(), 1.5f, size);
    axpy(y.data(), 2.0f, x.data(), size);
    add(z.data(), x.data(), y.data(), size);
    EXPECT_EQ(z, std::vector<float>(n, 10.0f));
    add_backward(x.data(), y.data(), z.data(), size);
    EXPECT_EQ(x, std::vector<float>(n, 13.0f));
    EXPECT_EQ(y, std::vector<float>(n, 17.0f));
    EXPECT_EQ(sum_of_squares(z.data(), size), 100.0 * static_cast<double>(n));
  }
}

TEST(Elementwise, SumOfIsAscendingAndSplitsFreely) {
  const std::vector<float> a = random_vector(1025, 1), b = random_vector(1025, 2, 1e6),
                           c = random_vector(1025, 3);
  const float* parts[] = {a.data(), b.data(), c.data()};
  const float* tails[] = {a.data() + 100, b.data() + 100, c.data() + 100};
  std::vector<float> whole(1025), split(1025);
  sum_of(whole.data(), parts, 3, 1025);
  sum_of(split.data(), parts, 3, 100);
  sum_of(split.data() + 100, tails, 3, 925);
  EXPECT_EQ(whole, split);
  for (std::size_t i = 0; i < 1025; ++i) ASSERT_EQ(whole[i], (a[i] + b[i]) + c[i]);
}

}  // namespace
}  // namespace troupe::kernels
