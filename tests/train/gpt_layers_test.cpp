// The gpt2 model of layers is the model that Gpt is: initial weights, loss, gradients.
#include "troupe/kernels/kernels.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/layers/internal/workbench.hpp"
#include "troupe/train/models/models.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace troupe::train {
namespace {

constexpr GptConfig kShape{.vocabulary = 31, .context = 9, .layers = 3, .heads = 3, .channels = 33};
constexpr std::int64_t kRows = 3, kTokens = kRows * 9;
constexpr std::uint64_t kSameSeed = 7;

class GptLayers : public testing::Test {
 protected:
  GptLayers()
      : layers_(models::gpt2(
            {.vocabulary = 31, .context = 9, .layers = 3, .heads = 3, .channels = 33})),
        bench_(pointers(layers_),
               {.layout = {}, .input = {DType::i32, {kRows, 9}}, .seed = kSameSeed}) {
    bench_.initialize();
    batch_.rows = kRows;
    batch_.time = 9;
    for (std::int32_t i = 0; i < kTokens; ++i) {
      batch_.inputs.push_back(i * 7 % 31);
      batch_.targets.push_back(i % 5 == 0 ? kernels::kIgnore : i * 11 % 31);
    }
    std::ranges::copy(batch_.inputs, bench_.input().as<std::int32_t>());
    std::ranges::copy(batch_.targets, bench_.targets().as<std::int32_t>());
  }
  static std::vector<Layer*> pointers(const Model& model) {
    std::vector<Layer*> all;
    for (const auto& layer : model) all.push_back(layer.get());
    return all;
  }
  const Parameter& parameter(const std::string& name) const {
    return gpt_.map()[gpt_.map().find(name).value()];
  }

  Gpt gpt_{kShape, kSameSeed};
  Model layers_;
  internal::Workbench bench_;
  Batch batch_;
};

TEST_F(GptLayers, OneSeedGivesTheSameInitialWeights) {
  EXPECT_EQ(bench_.index().parameter_count(), gpt_.parameter_count());
  EXPECT_EQ(bench_.tensors().size(), gpt_.map().tensors().size());
  for (const TensorId id : bench_.tensors()) {
    const Parameter& theirs = parameter(bench_.index()[id].name);
    ASSERT_EQ(theirs.size, bench_.weights(id).count()) << theirs.name;
    EXPECT_TRUE(std::equal(bench_.weights(id).as<float>(),
                           bench_.weights(id).as<float>() + theirs.size,
                           gpt_.parameters().data() + theirs.offset))
        << theirs.name;
  }
}

TEST_F(GptLayers, LossAndGradientsAgree) {
  gpt_.zero_gradients();
  const LossSum loss = gpt_.accumulate(batch_, {.targets = kTokens + 3});
  EXPECT_NEAR(bench_.forward() * (kTokens + 3) / loss.sum, 1, 1e-6);
  bench_.fill_gradients(0);
  bench_.backward();
  double largest = 0;
  for (const float g : gpt_.gradients())
    largest = std::max(largest, std::abs(static_cast<double>(g)));
  for (const TensorId id : bench_.tensors()) {
    const Parameter& theirs = parameter(bench_.index()[id].name);
    const std::vector<double> ours = bench_.whole_gradient(id);
    for (std::size_t i = 0; i < ours.size(); ++i)
      ASSERT_NEAR(ours[i], gpt_.gradients()[static_cast<std::size_t>(theirs.offset) + i],
                  1e-6 * largest)
          << theirs.name << " " << i;
  }
}

}  // namespace
}  // namespace troupe::train
