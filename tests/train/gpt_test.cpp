// The model's mathematics: gradients against differences, accumulation, buckets, recompute, seeds.
#include "troupe/train/gpt.hpp"

#include "troupe/kernels/kernels.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/train/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace troupe::train {
namespace {

const GptConfig kTiny{.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .channels = 8};

Batch random_batch(std::int64_t rows, std::int64_t time, std::int64_t vocabulary,
                   std::uint64_t seed) {
  Random random(seed);
  Batch batch;
  batch.rows = rows;
  batch.time = time;
  for (std::int64_t i = 0; i < rows * time; ++i) {
    batch.inputs.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    batch.targets.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
  }
  return batch;
}

class GptTest : public testing::Test {
 protected:
  // fixed order of summation: bitwise statements hold whatever library is installed
  void SetUp() override {
    before_ = kernels::load_blas();
    kernels::use_blas(kernels::Blas::builtin);
  }
  void TearDown() override { kernels::use_blas(before_); }
  kernels::Blas before_ = kernels::Blas::builtin;
};

TEST_F(GptTest, GradientsMatchDifferences) {
  Gpt model(kTiny, 5);
  for (float& p : model.parameters()) p *= 5;  // away from the flat start
  for (const Parameter& t : model.map().tensors())
    if (t.name.find("ln_") != std::string::npos && t.name.find("weight") != std::string::npos)
      for (std::int64_t i = 0; i < t.size; ++i)
        model.parameters()[static_cast<std::size_t>(t.offset + i)] /= 5;
  const Batch batch = random_batch(3, 5, 11, 1);
  model.zero_gradients();
  model.forward_backward(batch);
  const float step = 2e-2f;
  for (const Parameter& tensor : model.map().tensors()) {
    double difference = 0, size = 1e-4;
    for (std::int64_t i = 0; i < tensor.size; i += 1 + tensor.size / 12) {
      float& p = model.parameters()[static_cast<std::size_t>(tensor.offset + i)];
      const float kept = p;
      p = kept + step;
      const double above = model.loss(batch);
      p = kept - step;
      const double below = model.loss(batch);
      p = kept;
      const double numeric = (above - below) / (2 * static_cast<double>(step));
      const double exact = model.gradients()[static_cast<std::size_t>(tensor.offset + i)];
      difference = std::max(difference, std::abs(numeric - exact));
      size = std::max(size, std::abs(exact));
    }
    EXPECT_LT(difference / size, 2e-2) << tensor.name;
  }
}

TEST_F(GptTest, GradientsAddUpAndMicroBatchesMakeTheBatch) {
  Gpt whole(kTiny, 1), split(kTiny, 1);
  const Batch batch = random_batch(4, 6, 11, 2);
  const double loss = whole.forward_backward(batch);
  double sum = 0;
  for (int half = 0; half < 2; ++half) {
    const std::ptrdiff_t first = std::ptrdiff_t{12} * half, end = first + 12;
    Batch part{{batch.inputs.begin() + first, batch.inputs.begin() + end},
               {batch.targets.begin() + first, batch.targets.begin() + end},
               2,
               6};
    sum += 0.5 * split.forward_backward(part, 0.5f);
  }
  EXPECT_NEAR(sum, loss, 1e-6);
  for (std::size_t i = 0; i < whole.gradients().size(); ++i)
    ASSERT_NEAR(whole.gradients()[i], split.gradients()[i], 1e-6);
}

TEST_F(GptTest, BucketsBecomeReadyOnceInOrderAndComplete) {
  Gpt model(kTiny, 1, {.first_elements = 16, .elements = 300, .pad = 16});
  const Batch batch = random_batch(2, 6, 11, 3);
  std::vector<int> order;
  std::vector<std::vector<float>> seen;
  model.forward_backward(batch, 1.0f, [&](int bucket) {
    order.push_back(bucket);
    const auto now = model.gradients(bucket);
    seen.emplace_back(now.begin(), now.end());
  });
  ASSERT_EQ(order.size(), model.map().buckets().size());
  ASSERT_GT(order.size(), 3u);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i], static_cast<int>(i));
    const auto last = model.gradients(order[i]);
    EXPECT_TRUE(std::equal(last.begin(), last.end(), seen[i].begin())) << "bucket " << i;
  }
}

TEST_F(GptTest, AnEmptyShareStillReportsEveryBucket) {
  Gpt model(kTiny, 1);
  Batch empty;
  empty.time = 6;
  std::size_t reported = 0;
  EXPECT_EQ(model.forward_backward(empty, 1.0f, [&](int) { ++reported; }), 0);
  EXPECT_EQ(reported, model.map().buckets().size());
  for (const float g : model.gradients()) ASSERT_EQ(g, 0.0f);
}

TEST_F(GptTest, RecomputeGivesTheSameBitsWithLessMemory) {
  GptConfig config = kTiny;
  Gpt plain(config, 4);
  config.recompute = true;
  Gpt frugal(config, 4);
  const Batch batch = random_batch(3, 6, 11, 4);
  EXPECT_EQ(plain.forward_backward(batch), frugal.forward_backward(batch));
  EXPECT_EQ(hash_floats(plain.gradients()), hash_floats(frugal.gradients()));
  EXPECT_LT(frugal.saved_bytes({3, 6}), plain.saved_bytes({3, 6}));
}

TEST_F(GptTest, SavedBytesAreExact) {
  // per block: two norms (2 rows each), planes 1+3+1+1+1+4+4 of C, probabilities B*H*T*T
  const std::int64_t rows = 3 * 6, block = 4 * (4 * rows + 15 * rows * 8 + 3 * 2 * 6 * 6);
  Gpt model(kTiny, 1);
  EXPECT_EQ(model.saved_bytes({3, 6}), 2 * block + 4 * rows * 8 * 4 + 8 * rows);
}

TEST_F(GptTest, UntrainedLossIsNearLogVocabulary) {
  Gpt model({.vocabulary = 65, .context = 32, .layers = 2, .heads = 2, .channels = 32}, 9);
  EXPECT_NEAR(model.loss(random_batch(4, 32, 65, 5)), std::log(65.0), 0.05);
}

TEST_F(GptTest, WeightsAreAFunctionOfTheSeedAndTheTensorAlone) {
  Gpt a(kTiny, 7), b(kTiny, 7, {.first_elements = 64, .elements = 128, .pad = 16}), c(kTiny, 8);
  EXPECT_EQ(hash_floats(a.parameters()), hash_floats(Gpt(kTiny, 7).parameters()));
  EXPECT_NE(hash_floats(a.parameters()), hash_floats(c.parameters()));
  for (const Parameter& tensor : a.map().tensors()) {  // another layout, the same tensors
    const Parameter& other = b.map()[*b.map().find(tensor.name)];
    for (std::int64_t i = 0; i < tensor.size; ++i)
      ASSERT_EQ(a.parameters()[static_cast<std::size_t>(tensor.offset + i)],
                b.parameters()[static_cast<std::size_t>(other.offset + i)]);
  }
}

TEST_F(GptTest, BadBatchesAreRefused) {
  Gpt model(kTiny, 1);
  Batch batch = random_batch(2, 6, 11, 6);
  batch.inputs[3] = 11;
  EXPECT_THROW(model.loss(batch), InvalidArgument);
  batch.inputs[3] = -1;
  EXPECT_THROW(model.forward_backward(batch), InvalidArgument);
  EXPECT_THROW(model.loss(random_batch(1, 7, 11, 1)), InvalidArgument);
  batch = random_batch(2, 6, 11, 6);
  batch.targets.pop_back();
  EXPECT_THROW(model.loss(batch), InvalidArgument);
}

/// What a model says that has the weights of another one.
std::string refusal_of(Gpt& model, const Gpt& other) {
  fields(model) = fields(other);
  try {
    model.loss(random_batch(1, 6, 11, 1));
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "taken";
}

TEST_F(GptTest, ForeignWeightsAreRefusedByTheTensorThatDiffers) {
  Gpt small(kTiny, 1);
  const Gpt deeper({.vocabulary = 11, .context = 6, .layers = 3, .heads = 2, .channels = 8});
  const Gpt turned({.vocabulary = 6, .context = 11, .layers = 2, .heads = 2, .channels = 8});
  ASSERT_EQ(turned.parameter_count(), small.parameter_count());
  EXPECT_NE(refusal_of(small, deeper).find("transformer.h.2.ln_1.weight"), std::string::npos);
  EXPECT_NE(refusal_of(small, turned).find("transformer.wte.weight [6, 8]"), std::string::npos);
}

TEST_F(GptTest, GenerationRepeatsForASeedAndFollowsGreedily) {
  Gpt model({.vocabulary = 256, .context = 8, .layers = 1, .heads = 1, .channels = 16}, 3);
  const std::string a = generate(model, "ab", 20, {.seed = 4});
  EXPECT_EQ(a.size(), 20u);
  EXPECT_EQ(a, generate(model, "ab", 20, {.seed = 4}));
  EXPECT_NE(a, generate(model, "ab", 20, {.seed = 5}));
  EXPECT_EQ(generate(model, "", 5, {.temperature = 0, .seed = 1}),
            generate(model, "", 5, {.temperature = 1, .top_k = 1, .seed = 2}));
  Gpt words(kTiny, 1);
  EXPECT_THROW(generate(words, "a", 1), InvalidArgument);
}

}  // namespace
}  // namespace troupe::train
