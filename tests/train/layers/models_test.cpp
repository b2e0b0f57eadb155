// Tests models: sizes, names, gradients, and equal results with selective recompute.
#include "troupe/train/models/models.hpp"

#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/layers/check.hpp"
#include "troupe/train/layers/internal/workbench.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace troupe::train {
namespace {

using internal::Workbench;

std::int64_t parameters(const Model& model) {
  Index index = declare(model);
  index.seal();
  return index.parameter_count();
}

TEST(Gpt2, HasAsManyParametersAsThePublishedModels) {
  const std::pair<const char*, std::int64_t> counts[] = {
      {"gpt2", 124439808},     {"gpt2-medium", 354823168}, {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200}, {"char", 10745088},         {"char-small", 804096},
  };
  for (const auto& [name, count] : counts)
    EXPECT_EQ(parameters(models::gpt2(models::gpt2_preset(name))), count) << name;
  models::Gpt2Config own = models::gpt2_preset("gpt2");
  own.tied = false;
  EXPECT_EQ(parameters(models::gpt2(own)), 124439808 + 50257 * 768);
}

TEST(Llama, HasAsManyParametersAsThePublishedModel) {
  EXPECT_EQ(parameters(models::llama({})), 1100048384);  // TinyLlama 1.1B
}

TEST(Gpt2, RefusesANameThatIsNoPreset) {
  try {
    models::gpt2_preset("gpt3");
    ADD_FAILURE() << "there is no gpt3";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("gpt2-medium"), std::string::npos);
  }
}

TEST(Models, NameTheLayerWhoseSizesMakeNoModel) {
  const auto refusal = [](auto&& make) -> std::string {
    try {
      make();
    } catch (const InvalidArgument& error) {
      return error.message();
    }
    return "none";
  };
  const auto begins = [](const std::string& text, const std::string& with) {
    EXPECT_EQ(text.find(with), 0u) << text;
  };
  begins(refusal([] { models::gpt2({.heads = 7}); }), "transformer.h.0: heads must divide");
  begins(refusal([] { models::gpt2({.dropout = 1.5f}); }), "transformer");
  begins(refusal([] { models::llama({.kv_heads = 5}); }), "model.layers.0: kv_heads must divide");
  begins(refusal([] { models::llama({.heads = 4, .kv_heads = 2, .channels = 12}); }),
         "model.layers.0: rotary embedding needs");
  begins(refusal([] { models::llama({.inner = 0}); }), "model.layers.0: the sizes of an MLP");
  begins(refusal([] { models::mlp({.in = 0}); }), "layers.0");
}

TEST(Models, NameTheirTensorsAsHuggingFaceDoes) {
  const Index gpt = declare(models::gpt2(
      {.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .channels = 4, .tied = false}));
  for (const char* name :
       {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
        "transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_proj.bias",
        "transformer.h.0.ln_2.bias", "transformer.h.0.mlp.c_fc.weight",
        "transformer.h.0.mlp.c_proj.weight", "transformer.ln_f.bias", "lm_head.weight"})
    EXPECT_TRUE(gpt.find(name).has_value()) << name;
  EXPECT_EQ(gpt[*gpt.find("transformer.h.0.mlp.c_fc.weight")].global, (Shape{16, 4}));
  const Index llama = declare(models::llama(
      {.vocabulary = 11, .layers = 1, .heads = 2, .kv_heads = 1, .channels = 4, .inner = 6}));
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
        "model.norm.weight", "lm_head.weight"})
    EXPECT_TRUE(llama.find(name).has_value()) << name;
  EXPECT_EQ(llama[*llama.find("model.layers.0.self_attn.k_proj.weight")].global, (Shape{2, 4}));
}

CheckOptions tokens(std::int64_t batch, std::int64_t vocabulary) {
  CheckOptions options{.input = {DType::i32, {batch, 5}}, .ids = vocabulary, .classes = vocabulary};
  options.elements = 6;
  return options;
}

TEST(Gpt2, HasTheGradientsOfItsDifferences) {
  for (const bool tied : {true, false})
    for (const std::int64_t batch : {1, 3}) {
      const GradientReport report = check_gradients(models::gpt2({.vocabulary = 11,
                                                                  .context = 6,
                                                                  .layers = 2,
                                                                  .heads = 3,
                                                                  .channels = 9,
                                                                  .bias = tied,
                                                                  .tied = tied,
                                                                  .dropout = tied ? 0.2f : 0.0f}),
                                                    tokens(batch, 11));
      EXPECT_EQ(report.tensors.size(), tied ? 2u + 24 + 2 : 2u + 12 + 2) << report.text();
    }
}

TEST(Llama, HasTheGradientsOfItsDifferences) {
  for (const bool tied : {true, false}) {
    const GradientReport report = check_gradients(models::llama({.vocabulary = 11,
                                                                 .layers = 2,
                                                                 .heads = 3,
                                                                 .kv_heads = 1,
                                                                 .channels = 6,
                                                                 .inner = 7,
                                                                 .tied = tied}),
                                                  tokens(3, 11));
    EXPECT_EQ(report.tensors.size(), tied ? 1u + 18 + 1 : 1u + 18 + 2) << report.text();
  }
}

TEST(Mlp, HasTheGradientsOfItsDifferences) {
  const CheckOptions options{.input = {DType::f64, {3, 7}}, .classes = 4};
  EXPECT_EQ(check_gradients(models::mlp({.in = 7, .hidden = {5, 6}, .classes = 4}), options)
                .tensors.size(),
            7u);
}

TEST(Cnn, HasTheGradientsOfItsDifferences) {
  const CheckOptions options{.input = {DType::f64, {3, 2, 9, 7}}, .classes = 4};
  const Model model = models::cnn({.channels = 2,
                                   .height = 9,
                                   .width = 7,
                                   .first = 3,
                                   .second = 2,
                                   .kernel = 3,
                                   .padding = 1,
                                   .hidden = 5,
                                   .classes = 4});
  EXPECT_EQ(check_gradients(model, options).tensors.size(), 9u);
}

/// A model with values that is ready for forward().
struct Bench {
  Model model;
  Workbench bench;

  Bench(Model made, DType type, Recompute recompute, const Spec& input, std::int64_t classes)
      : model(std::move(made)),
        bench(pointers(), {.layout = {.compute = type, .recompute = recompute}, .input = input}) {
    bench.initialize();
    for (std::int64_t i = 0; i < input.count(); ++i) {
      const auto value = static_cast<std::int32_t>(i * 7 % classes);
      if (input.type == DType::i32)
        bench.input().as<std::int32_t>()[i] = value;
      else
        internal::set_number(bench.input(), i, std::sin(static_cast<double>(i)));
    }
    for (std::int64_t i = 0; i < bench.targets().count(); ++i)
      bench.targets().as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 5 % classes);
  }
  std::vector<Layer*> pointers() const {
    std::vector<Layer*> all;
    for (const auto& layer : model) all.push_back(layer.get());
    return all;
  }
  double mean_loss(bool training = false) {
    const double rows = static_cast<double>(bench.output().count());
    return bench.forward(training) * (rows + 3) / rows;  // the bench divides by three more rows
  }
};

TEST(Models, BeginWithTheLossOfAGuess) {
  const auto untrained = [](Model model, const Spec& input, std::int64_t classes) {
    return Bench(std::move(model), DType::f32, Recompute::none, input, classes).mean_loss();
  };
  EXPECT_NEAR(untrained(models::gpt2(models::gpt2_preset("char-small")), {DType::i32, {2, 64}}, 65),
              std::log(65), 0.1);
  EXPECT_NEAR(untrained(models::llama({.vocabulary = 65,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .channels = 64,
                                       .inner = 96}),
                        {DType::i32, {2, 64}}, 65),
              std::log(65), 0.1);
  EXPECT_NEAR(untrained(models::mlp({}), {DType::f32, {4, 784}}, 10), std::log(10), 0.3);
  EXPECT_NEAR(untrained(models::cnn({}), {DType::f32, {4, 1, 28, 28}}, 10), std::log(10), 0.3);
}

TEST(SelectiveRecompute, KeepsLessAndGivesTheSameBits) {
  const kernels::Blas before = kernels::load_blas();
  kernels::use_blas(kernels::Blas::builtin);
  const auto run = [](Recompute recompute) {
    return Bench(models::gpt2({.vocabulary = 11,
                               .context = 40,
                               .layers = 2,
                               .heads = 3,
                               .channels = 33,
                               .dropout = 0.1f}),
                 DType::f32, recompute, {DType::i32, {3, 33}}, 11);
  };
  Bench kept = run(Recompute::none), again = run(Recompute::selective);
  for (Bench* b : {&kept, &again}) {
    b->bench.forward();
    b->bench.fill_gradients(0);
    b->bench.backward();
  }
  for (std::int64_t i = 0; i < kept.bench.output().count(); ++i)
    ASSERT_EQ(internal::number(kept.bench.output(), i), internal::number(again.bench.output(), i));
  for (const TensorId id : kept.bench.tensors())
    EXPECT_EQ(kept.bench.whole_gradient(id), again.bench.whole_gradient(id))
        << kept.bench.index()[id].name;
  EXPECT_LE(again.bench.saved_bytes(), kept.bench.saved_bytes() - 2 * 3 * 3 * 33 * 33 * 4);
  kernels::use_blas(before);
}

TEST(Dropout, DependsOnTrainingAndLeavesTheInitialWeights) {
  const models::Gpt2Config plain{
      .vocabulary = 11, .context = 8, .layers = 1, .heads = 2, .channels = 8};
  models::Gpt2Config dropping = plain;
  dropping.dropout = 0.5f;
  const Spec input{DType::i32, {2, 8}};
  Bench without(models::gpt2(plain), DType::f64, Recompute::none, input, 11);
  Bench with(models::gpt2(dropping), DType::f64, Recompute::none, input, 11);
  EXPECT_EQ(with.mean_loss(false), without.mean_loss(false));
  EXPECT_NE(with.mean_loss(true), without.mean_loss(true));
  EXPECT_EQ(with.mean_loss(true), with.mean_loss(true));
}

}  // namespace
}  // namespace troupe::train
