// Tests language models on text: one learns the machine's own C++ headers, is evaluated on
// held-out text, and generates text.
#include "troupe/train/engine/language.hpp"
#include "tests/train/engine/ranks.hpp"
#include "troupe/train/engine/micro_batches.hpp"
#include "troupe/train/models/models.hpp"
#include "troupe/train/sampler.hpp"
#include "troupe/train/schedule.hpp"

#include <cmath>

namespace troupe::train::testing {
namespace {

constexpr std::int64_t kWindow = 64;

const TextDataset& headers() {
  static const TextDataset data(read_standard_headers(4 << 20), {.context = kWindow});
  return data;
}

Model bytes_model(std::int64_t vocabulary = 256) {
  return models::gpt2(
      {.vocabulary = vocabulary, .context = kWindow, .layers = 2, .heads = 2, .channels = 64});
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // far slower: tests memory and races, not learning
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

TEST(Language, TwoRanksLearnRealTextAndStayEqual) {
  constexpr long steps = kSanitized ? 5 : 200;
  double held_out[2] = {}, first = 0;
  std::uint64_t weights[2] = {};
  on_ranks(2, Wire::local, [&](RankContext& context) {
    const int rank = context.mesh.dp_rank;
    Engine engine(bytes_model(), {.dp = 2}, context.mesh, context.device, {});
    engine.initialize(1);
    Sampler sampler(headers().size(), {.seed = 1, .global_batch = 16});
    for (long step = 0; step < steps; ++step) {
      Batch batch = headers().batch(sampler.next(rank, 2));
      const float rate = cosine_rate({8e-3f, 10, steps, 8e-4f}, step);
      const StepResult result = engine.step(micro_batches(batch, 1), {.rate = rate});
      if (step == 0 && rank == 0) first = result.loss;
    }
    held_out[rank] = held_out_loss(engine, headers(), 64);
    weights[rank] = engine.weights_hash();
  });
  EXPECT_EQ(held_out[0], held_out[1]);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_LT(held_out[0], kSanitized ? first : 0.8 * unigram_entropy(headers().text()));
}

TEST(Language, HeldOutLossIsThatOfOneRankOnAnyNumberOfRanks) {
  double alone = 0;
  const auto loss = [](RankContext& context, int dp, std::uint64_t windows) {
    Engine engine(bytes_model(), {.dp = dp}, context.mesh, context.device, {});
    engine.initialize(1);
    return held_out_loss(engine, headers(), windows);
  };
  for (const std::uint64_t windows :
       {2u, 37u}) {  // fewer than ranks, and more than a batch of them
    on_ranks(1, Wire::local, [&](RankContext& context) { alone = loss(context, 1, windows); });
    EXPECT_NEAR(alone, std::log(256.0), 0.2);
    on_ranks(3, Wire::local, [&](RankContext& context) {
      EXPECT_NEAR(loss(context, 3, windows) / alone, 1, 1e-6);
    });
  }
}

TEST(Language, GenerationRepeatsForASeedAndFollowsGreedily) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    Engine engine(bytes_model(), {}, context.mesh, context.device, {});
    engine.initialize(3);
    const GenerateOptions few{.context = 8, .seed = 4};
    const Generated text = generate(engine, "ab", 20, few);
    EXPECT_EQ(text.size(), 20u);
    EXPECT_EQ(text, generate(engine, "ab", 20, few));
    EXPECT_NE(text, generate(engine, "ab", 20, {.context = 8, .seed = 5}));
    EXPECT_EQ(generate(engine, "", 5, {.temperature = 0, .seed = 1}),
              generate(engine, "\n", 5, {.temperature = 1, .top_k = 1, .seed = 2}));
  });
}

TEST(Language, GenerationSeesTheLastTokensOfItsContextAlone) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    Engine engine(bytes_model(), {}, context.mesh, context.device, {});
    engine.initialize(3);
    const GenerateOptions four{.context = 4};
    EXPECT_EQ(generate(engine, "xyzabcd", 9, four), generate(engine, "abcd", 9, four));
    EXPECT_EQ(generate(engine, "abcd", 2 * kWindow, four).end, GenerationEnd::count);
  });
}

TEST(Language, GenerationBeyondTheModelsContextReturnsWhatItHasAndSaysWhyItEnded) {
  for (const Layout& layout : {Layout{}, Layout{.tp = 2}})
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      Engine engine(bytes_model(), layout, context.mesh, context.device, {});
      engine.initialize(3);
      const Generated all = generate(engine, "hello", 100), some = generate(engine, "hello", 60);
      EXPECT_EQ(all.size(), 60u) << "one for each prompt of 5 to 64 tokens";
      EXPECT_EQ(all.end, GenerationEnd::context);
      EXPECT_NE(all.why.find("time <= 64], not i32 [1, 65]"), std::string::npos) << all.why;
      EXPECT_EQ(some, all);
      EXPECT_EQ(some.end, GenerationEnd::count);
      EXPECT_EQ(some.why, "");
      EXPECT_EQ(generate(engine, std::string(64, 'a'), 5).size(), 1u);
      EXPECT_THROW(generate(engine, std::string(65, 'a'), 5), InvalidArgument) << "of the prompt";
    });
}

TEST(Language, AModelWhoseTokensAreNotBytesCannotWrite) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    const auto refusal = [&](std::int64_t vocabulary) -> std::string {
      Engine engine(bytes_model(vocabulary), {}, context.mesh, context.device, {});
      engine.initialize(3);
      try {
        EXPECT_EQ(generate(engine, "a", 1).size(), 1u);
      } catch (const InvalidArgument& e) {
        return e.message();
      }
      return "none";
    };
    for (const std::int64_t vocabulary : {200, 255, 513, 50257})
      EXPECT_NE(refusal(vocabulary).find("this model has " + std::to_string(vocabulary)),
                std::string::npos);
    for (const std::int64_t vocabulary : {256, 257, 512}) EXPECT_EQ(refusal(vocabulary), "none");
  });
}

}  // namespace
}  // namespace troupe::train::testing
