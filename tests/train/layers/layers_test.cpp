// Tests that every layer's backward is the derivative of its forward, at odd sizes, and that it
// stays inside its memory.
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/layers/check.hpp"
#include "troupe/train/layers/dense.hpp"
#include "troupe/train/layers/embedding.hpp"
#include "troupe/train/layers/head.hpp"
#include "troupe/train/layers/image.hpp"
#include "troupe/train/layers/internal/workbench.hpp"
#include "troupe/train/layers/transformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace troupe::train::layers {
namespace {

using internal::number;
using internal::Workbench;

CheckOptions sequences(std::int64_t batch, std::int64_t channels) {
  return {.input = {DType::f64, {batch, 5, channels}}};
}

CheckOptions tokens(std::int64_t batch) {
  return {.input = {DType::i32, {batch, 5}}, .ids = 11};
}

class Gpt2Block : public testing::TestWithParam<std::tuple<int, int, float, Recompute>> {};

TEST_P(Gpt2Block, HasTheGradientsOfItsDifferences) {
  const auto [batch, heads, dropout, recompute] = GetParam();
  GptBlock block("h", {.channels = 3L * heads, .heads = heads, .dropout = dropout});
  CheckOptions options = sequences(batch, 3L * heads);
  options.recompute = recompute;
  const GradientReport report = check_gradients(block, options);
  EXPECT_EQ(report.tensors.size(), 13u) << report.text();
}

INSTANTIATE_TEST_SUITE_P(OddSizes, Gpt2Block,
                         testing::Combine(testing::Values(1, 3), testing::Values(1, 3),
                                          testing::Values(0.0f, 0.3f),
                                          testing::Values(Recompute::none, Recompute::selective)));

TEST(GptBlock, GoesWithoutBiases) {
  GptBlock block("h", {.channels = 9, .heads = 3, .inner = 7, .bias = false});
  EXPECT_EQ(check_gradients(block, sequences(3, 9)).tensors.size(), 7u);
}

class Llama : public testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(Llama, HasTheGradientsOfItsDifferences) {
  const auto [batch, heads, kv_heads] = GetParam();
  LlamaBlock block("l", {.channels = 4L * heads, .heads = heads, .kv_heads = kv_heads, .inner = 7});
  const GradientReport report = check_gradients(block, sequences(batch, 4L * heads));
  EXPECT_EQ(report.tensors.size(), 10u) << report.text();
}

INSTANTIATE_TEST_SUITE_P(OddSizes, Llama,
                         testing::Values(std::tuple(1, 1, 1), std::tuple(3, 3, 1),
                                         std::tuple(3, 3, 3), std::tuple(1, 4, 2)));

TEST(Attention, LongRowsHaveTheGradientsOfTheirDifferences) {
  // With the online softmax, the second-order error of the difference step grows with the row.
  GptBlock block("h", {.channels = 2, .heads = 1, .inner = 3});
  CheckOptions options{.input = {DType::f64, {1, parts::kKeptProbabilities + 1, 2}}};
  options.elements = 2;
  EXPECT_EQ(check_gradients(block, options).tensors.size(), 13u);
}

TEST(Attention, LongRowsKeepNoProbabilities) {
  const GptBlock block("h", {.channels = 2, .heads = 1});
  const auto saved = [&](std::int64_t time, Recompute recompute) {
    return block.need({DType::f32, {1, time, 2}}, {.recompute = recompute}).saved;
  };
  const std::int64_t kept = parts::kKeptProbabilities;
  EXPECT_GT(saved(kept, Recompute::none), 4 * kept * kept);
  EXPECT_LT(saved(kept + 1, Recompute::none), 4 * kept * kept);
  EXPECT_LE(saved(kept, Recompute::selective), saved(kept, Recompute::none) - 4 * kept * kept);
}

TEST(Embedding, HasTheGradientsOfItsDifferences) {
  for (const std::int64_t batch : {1, 3}) {
    Embedding both("e", {.vocabulary = 11, .context = 6, .channels = 7});
    EXPECT_EQ(check_gradients(both, tokens(batch)).tensors.size(), 2u);
    Embedding alone("e", {.vocabulary = 11, .channels = 7, .dropout = 0.5f});
    EXPECT_EQ(check_gradients(alone, tokens(batch)).tensors.size(), 1u);
  }
}

TEST(LmHead, HasTheGradientsOfItsDifferences) {
  for (const bool rms : {false, true}) {
    LmHead head("ln_f", {.vocabulary = 11, .channels = 7, .rms = rms});
    CheckOptions options = sequences(3, 7);
    options.classes = 11;
    EXPECT_EQ(check_gradients(head, options).tensors.size(), rms ? 3u : 4u);
  }
}

TEST(LmHead, PredictsTheLogitsThatItsLossesComeFrom) {
  LmHead head("ln_f", {.vocabulary = 11, .channels = 7});
  Workbench bench({&head}, {.layout = {.compute = DType::f64}, .input = {DType::f64, {2, 3, 7}}});
  bench.initialize();
  for (std::int64_t i = 0; i < 42; ++i) internal::set_number(bench.input(), i, (i * 37 % 19) - 9.0);
  for (std::int32_t i = 0; i < 6; ++i) bench.targets().as<std::int32_t>()[i] = i;
  bench.forward(/*training=*/false);
  const std::vector<double> logits = bench.predict();
  ASSERT_EQ(logits.size(), 66u);
  for (std::int64_t row = 0; row < 6; ++row) {
    double sum = 0;
    const double* of_row = logits.data() + 11 * row;
    for (int c = 0; c < 11; ++c) sum += std::exp(of_row[c]);
    EXPECT_NEAR(number(bench.output(), row), std::log(sum) - of_row[row], 1e-12);
  }
}

TEST(Dense, HasTheGradientsOfItsDifferences) {
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::silu}) {
    Dense dense("d", {.in = 7, .out = 5, .activation = activation});
    EXPECT_EQ(check_gradients(dense, {.input = {DType::f64, {3, 7}}}).tensors.size(), 3u);
  }
  Dense plain("d", {.in = 7, .out = 1, .bias = false});
  EXPECT_EQ(check_gradients(plain, {.input = {DType::f64, {1, 2, 7}}}).tensors.size(), 2u);
}

TEST(Conv2d, HasTheGradientsOfItsDifferences) {
  for (const std::int64_t batch : {1, 3}) {
    Conv2d padded("c", {.in = 2, .out = 3, .padding = 1, .activation = Activation::relu});
    const Spec image{DType::f64, {batch, 2, 5, 7}};
    EXPECT_EQ(check_gradients(padded, {.input = image}).tensors.size(), 3u);
    Conv2d strided("c", {.in = 2, .out = 1, .kernel = 2, .stride = 2, .bias = false});
    EXPECT_EQ(check_gradients(strided, {.input = image}).tensors.size(), 2u);
  }
}

TEST(Conv2d, IsACrossCorrelation) {
  Conv2d layer("c", {.in = 1, .out = 1, .kernel = 2, .bias = false});
  Workbench bench({&layer},
                  {.layout = {.compute = DType::f64}, .input = {DType::f64, {1, 1, 2, 3}}});
  for (std::int64_t i = 0; i < 6; ++i) internal::set_number(bench.input(), i, i + 1.0);
  for (std::int64_t i = 0; i < 4; ++i) internal::set_number(bench.weights(0), i, i == 1 ? 10 : i);
  bench.forward();
  ASSERT_EQ(bench.output().shape, (Shape{1, 1, 1, 2}));
  EXPECT_EQ(number(bench.output(), 0), 10 * 2 + 2 * 4 + 3 * 5);
  EXPECT_EQ(number(bench.output(), 1), 10 * 3 + 2 * 5 + 3 * 6);
}

TEST(MaxPool, HasTheGradientsOfItsDifferences) {
  for (const std::int64_t window : {1, 2, 3}) {
    MaxPool pool("p", window);
    EXPECT_EQ(check_gradients(pool, {.input = {DType::f64, {3, 2, 5, 7}}}).tensors.size(), 1u);
  }
}

TEST(Flatten, HasTheGradientsOfItsDifferences) {
  Flatten flatten("f");
  EXPECT_EQ(check_gradients(flatten, {.input = {DType::f64, {3, 2, 5}}}).tensors.size(), 1u);
}

TEST(SoftmaxLoss, HasTheGradientsOfItsDifferences) {
  for (const std::int64_t batch : {1, 3}) {
    SoftmaxLoss loss("loss");
    const CheckOptions options{.input = {DType::f64, {batch, 7}}, .classes = 7};
    EXPECT_EQ(check_gradients(loss, options).tensors.size(), 1u);
  }
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Layers, RefuseInputsThatTheyCannotTake) {
  const GptBlock block("h.0", {.channels = 8, .heads = 2});
  EXPECT_NE(refusal([&] {
              block.need({DType::f32, {3, 8}}, {});
            }).find("h.0 takes f32 [batch, time, 8], not f32 [3, 8]"),
            std::string::npos);
  const Embedding embedding("e", {.vocabulary = 5, .context = 4, .channels = 2});
  EXPECT_NE(refusal([&] { embedding.need({DType::i32, {1, 5}}, {}); }).find("time <= 4"),
            std::string::npos);
  EXPECT_NE(refusal([] { GptBlock("h", {.channels = 8, .heads = 3}); }).find("divide"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Index index;
              Conv2d("c", {.in = 1, .out = 2}).declare(index, index.begin_unit("c"), {.tp = 2});
            }).find("tp = 1"),
            std::string::npos);
}

TEST(Embedding, RefusesATokenOutsideItsVocabulary) {
  Embedding embedding("e", {.vocabulary = 5, .channels = 2});
  Workbench bench({&embedding}, {.layout = {}, .input = {DType::i32, {1, 3}}});
  bench.input().as<std::int32_t>()[2] = 5;
  EXPECT_NE(refusal([&] { bench.forward(); }).find("e: id 5 at place 2 is not in [0, 5)"),
            std::string::npos);
}

}  // namespace
}  // namespace troupe::train::layers
