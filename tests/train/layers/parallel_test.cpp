// Tests layers that tensor-parallel ranks divide. Outputs, input gradients and weight gradients
// equal those of one rank, with and without sequence parallelism. The layers move the payload
// that the formulas give.
#include "tests/train/layers/tensor_ranks.hpp"
#include "troupe/kernels/gemm/blas.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/layers/dense.hpp"
#include "troupe/train/layers/embedding.hpp"
#include "troupe/train/layers/head.hpp"
#include "troupe/train/layers/transformer.hpp"
#include "troupe/train/models/models.hpp"

#include <string>
#include <tuple>

namespace troupe::train::layers {
namespace {

using divided::Case;
using divided::expect_equal;
using divided::on_tensor_ranks;
using divided::Outcome;
using divided::outcome_of;
using divided::Rank;

template <class L, class Config>
std::function<Model()> one(const std::string& name, const Config& config) {
  return [=] {
    Model model;
    model.push_back(std::make_unique<L>(name, config));
    return model;
  };
}

Spec stream(std::int64_t batch, std::int64_t time, std::int64_t channels) {
  return {DType::f32, {batch, time, channels}};
}

models::Gpt2Config small_gpt(std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .context = 7,
          .layers = 2,
          .heads = 4,
          .channels = 12,
          .dropout = 0.2f};
}

/// Sizes are odd where they may be. Rows of ranks end within a sample, vocabularies need padding,
/// and a vocabulary of 5 leaves the last of four ranks without any.
struct Named {
  const char* name;
  Case what;
};

std::vector<Named> cases() {
  const GptBlockConfig gpt{.channels = 12, .heads = 4, .inner = 20};
  GptBlockConfig bare = gpt, dropping = gpt;
  bare.bias = false;
  dropping.dropout = 0.3f;
  const LlamaBlockConfig llama{.channels = 24, .heads = 4, .kv_heads = 4, .inner = 28};
  const EmbeddingConfig positions{.vocabulary = 11, .context = 7, .channels = 5};
  const EmbeddingConfig plain{.vocabulary = 5, .channels = 3, .dropout = 0.4f};
  const LmHeadConfig layer_norm{.vocabulary = 11, .channels = 7};
  const LmHeadConfig rms{.vocabulary = 5, .channels = 6, .rms = true};
  const Spec tokens{DType::i32, {2, 6}};
  return {
      {"GptBlock", {one<GptBlock>("h", gpt), stream(2, 6, 12)}},
      {"GptBlockOfThreeSamples", {one<GptBlock>("h", gpt), stream(3, 4, 12)}},
      {"GptBlockWithoutBiases", {one<GptBlock>("h", bare), stream(4, 1, 12)}},
      {"GptBlockWithDropout", {one<GptBlock>("h", dropping), stream(2, 6, 12)}},
      {"GptBlockSelective",
       {one<GptBlock>("h", gpt), stream(2, 6, 12), 2, 2, Recompute::selective}},
      {"LlamaBlock", {one<LlamaBlock>("l", llama), stream(2, 6, 24)}},
      {"EmbeddingWithPositions", {one<Embedding>("e", positions), tokens, 2, 11}},
      {"EmbeddingWithDropout", {one<Embedding>("e", plain), tokens, 2, 5}},
      {"LmHead", {one<LmHead>("ln", layer_norm), stream(2, 6, 7), 11}},
      {"LmHeadRms", {one<LmHead>("ln", rms), stream(4, 3, 6), 5}},
      {"Gpt2Tied", {[] { return models::gpt2(small_gpt(65)); }, tokens, 65, 65}},
      {"Gpt2OfFiveTokens", {[] { return models::gpt2(small_gpt(5)); }, tokens, 5, 5}},
      {"LlamaUntied",
       {[] {
          return models::llama({.vocabulary = 9,
                                .layers = 2,
                                .heads = 4,
                                .kv_heads = 4,
                                .channels = 8,
                                .inner = 12});
        },
        tokens, 9, 9}},
  };
}

using Setting = std::tuple<int, bool, DType>;

class Divided : public testing::TestWithParam<Setting> {
 protected:
  Divided() { kernels::use_blas(kernels::Blas::builtin); }
  ~Divided() override { kernels::use_blas(before_); }
  Layout layout() const {
    const auto [tp, sequence, type] = GetParam();
    return {.tp = tp, .sequence = sequence, .compute = type};
  }
  double tolerance() const { return std::get<2>(GetParam()) == DType::f64 ? 2e-14 : 1e-5; }

 private:
  kernels::Blas before_ = kernels::load_blas();
};

TEST_P(Divided, LayersGiveWhatOneRankGives) {
  for (const Named& each : cases()) {
    SCOPED_TRACE(each.name);
    const Outcome whole = outcome_of(each.what, {.compute = layout().compute});
    expect_equal(outcome_of(each.what, layout()), whole, tolerance());
  }
}

TEST_P(Divided, LongRowsOfAttentionGiveWhatOneRankGives) {
  const Case c{one<GptBlock>("h", GptBlockConfig{.channels = 8, .heads = 4, .inner = 4}),
               stream(1, parts::kKeptProbabilities + 4, 8)};
  expect_equal(outcome_of(c, layout()), outcome_of(c, {.compute = layout().compute}),
               10 * tolerance());
}

TEST_P(Divided, ASecondForwardGivesTheSameBits) {
  for (const Named& each : cases()) {
    SCOPED_TRACE(each.name);
    on_tensor_ranks(each.what, layout(), [](Rank& rank) {
      rank.bench().forward();
      const std::uint64_t first = rank.bench().forward_hash();
      rank.bench().forward();
      EXPECT_EQ(rank.bench().forward_hash(), first);
    });
  }
}

TEST_P(Divided, HeadPredictsWholeLogitsOnEveryRank) {
  for (const std::int64_t vocabulary : {5, 11, 12}) {
    const Case c{one<LmHead>("ln", LmHeadConfig{.vocabulary = vocabulary, .channels = 7}),
                 stream(2, 6, 7), vocabulary};
    const auto predicted = [&](const Layout& how) {
      std::vector<std::vector<double>> all(static_cast<std::size_t>(how.tp));
      on_tensor_ranks(c, how, [&](Rank& rank) {
        all[rank.tp() == nullptr ? 0 : static_cast<std::size_t>(rank.tp()->rank())] =
            rank.bench().predict();
      });
      return all;
    };
    const std::vector<double> whole = predicted({.compute = layout().compute})[0];
    ASSERT_EQ(std::ssize(whole), 12 * vocabulary);
    for (const std::vector<double>& logits : predicted(layout()))
      EXPECT_LE(divided::distance(logits, whole), tolerance() * divided::length(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Divided,
                         testing::Combine(testing::Values(2, 4), testing::Bool(),
                                          testing::Values(DType::f32, DType::f64)));

TEST(Divided, QueriesShareKeysAndValuesWithinARank) {
  const Case c{
      one<LlamaBlock>("l", LlamaBlockConfig{.channels = 24, .heads = 6, .kv_heads = 2, .inner = 6}),
      stream(3, 2, 24)};
  const Outcome whole = outcome_of(c, {.compute = DType::f64});
  for (const bool sequence : {false, true})
    expect_equal(outcome_of(c, {.tp = 2, .sequence = sequence, .compute = DType::f64}), whole,
                 2e-14);
}

TEST(Divided, PlainLayersAreReplicated) {
  const Case c{
      [] { return models::mlp({.in = 7, .hidden = {5}, .classes = 3}); }, {DType::f32, {4, 7}}, 3};
  const Outcome whole = outcome_of(c, {});
  const Outcome replicated = outcome_of(c, {.tp = 2});
  EXPECT_EQ(replicated.output, whole.output);
  EXPECT_EQ(replicated.gradients, whole.gradients);
}

/// Returns the payload of one forward pass and of one backward pass.
std::pair<std::uint64_t, std::uint64_t> payload(const Case& c, const Layout& layout) {
  std::pair<std::uint64_t, std::uint64_t> bytes;
  on_tensor_ranks(c, layout, [&](Rank& rank) {
    rank.bench().forward();
    const std::uint64_t forward = rank.tp()->traffic().payload();
    rank.bench().backward();
    if (rank.tp()->rank() == 0) bytes = {forward, rank.tp()->traffic().payload() - forward};
    const collective::Traffic all = rank.tp()->traffic();
    EXPECT_EQ(all.norm + all.count + all.padding, 0u);
  });
  return bytes;
}

class PayloadTest : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  const int ranks_ = std::get<0>(GetParam());
  const bool sequence_ = std::get<1>(GetParam());
  const Layout layout_{.tp = ranks_, .sequence = sequence_};
  /// Returns the payload of one sum of f32 elements over the ranks.
  std::uint64_t sum(std::uint64_t elements) const {
    const auto n = static_cast<std::uint64_t>(ranks_);
    return 2 * (n - 1) * elements * 4 / n;
  }
};

TEST_P(PayloadTest, ABlockMovesTwoSumsForwardAndTwoBackward) {
  for (const float dropout : {0.0f, 0.3f}) {
    const Case c{one<GptBlock>("h", GptBlockConfig{.channels = 12, .heads = 4, .dropout = dropout}),
                 stream(2, 6, 12)};
    EXPECT_EQ(payload(c, layout_), std::pair(2 * sum(144), 2 * sum(144)));
  }
  const Case llama{one<LlamaBlock>("l", LlamaBlockConfig{.channels = 24, .heads = 4, .inner = 8}),
                   stream(2, 6, 24)};
  EXPECT_EQ(payload(llama, layout_), std::pair(2 * sum(288), 2 * sum(288)));
}

TEST_P(PayloadTest, AnEmbeddingMovesOneSum) {
  const Case c{one<Embedding>("e", EmbeddingConfig{.vocabulary = 5, .context = 6, .channels = 4}),
               {DType::i32, {2, 6}},
               2,
               5};
  const std::uint64_t all = sum(48), half = all / 2;
  EXPECT_EQ(payload(c, layout_),
            sequence_ ? std::pair(half, half) : std::pair(all, std::uint64_t{0}));
}

TEST_P(PayloadTest, AHeadMovesOneSumAndThreeNumbersARow) {
  const Case c{one<LmHead>("ln", LmHeadConfig{.vocabulary = 5, .channels = 4}), stream(2, 6, 4), 5};
  const std::uint64_t all = sum(48), half = all / 2;
  const auto stats = static_cast<std::uint64_t>(ranks_ - 1) * 3 * 12 * 4;
  EXPECT_EQ(payload(c, layout_), sequence_ ? std::pair(half + stats, half) : std::pair(stats, all));
}

INSTANTIATE_TEST_SUITE_P(Ranks, PayloadTest,
                         testing::Combine(testing::Values(2, 4), testing::Bool()));

TEST(Divided, MemoryOfARankIsItsPart) {
  const GptBlock block("h", {.channels = 64, .heads = 4});
  const Spec in{DType::f32, {8, 16, 64}};
  const Spec divided{DType::f32, {8, 16, 64}, 4};
  const Need whole = block.need(in, {}), tp = block.need(in, {.tp = 4}),
             sequence = block.need(divided, {.tp = 4, .sequence = true});
  const std::int64_t rows = 8 * 16, stream = rows * 64 * 4;
  EXPECT_EQ(whole.out.bytes(), stream);
  EXPECT_EQ(tp.out.bytes(), stream);
  EXPECT_EQ(sequence.out.bytes(), stream / 4);
  // Activations inside the block: qkv, attention's output, probabilities, and the MLP before and
  // after its activation.
  const std::int64_t inside = stream * (3 + 1 + 4 + 4) + 8 * 4 * 16 * 16 * 4;
  const std::int64_t statistics = 2 * 2 * rows * 4;
  EXPECT_EQ(whole.saved, inside + 3 * stream + statistics);
  EXPECT_EQ(tp.saved, inside / 4 + 3 * stream + statistics);
  EXPECT_EQ(sequence.saved, inside / 4 + 2 * stream + stream / 4 + statistics / 4);
}

template <class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "nothing was refused";
}

template <class L, class Config>
std::string refusal_of(const Config& config, const Layout& layout) {
  return refused([&] {
    Index index;
    L("h.0", config).declare(index, index.begin_unit("h.0"), layout);
  });
}

TEST(Divided, RefusesWhatRanksCannotDivide) {
  EXPECT_EQ(refusal_of<GptBlock>(GptBlockConfig{.channels = 12, .heads = 3}, {.tp = 2}),
            "h.0.attn: 2 tensor-parallel ranks cannot divide its 3 heads and 3 kv_heads: choose a "
            "tp that divides both");
  EXPECT_EQ(refusal_of<LlamaBlock>(
                LlamaBlockConfig{.channels = 24, .heads = 4, .kv_heads = 2, .inner = 8}, {.tp = 4}),
            "h.0.self_attn: 4 tensor-parallel ranks cannot divide its 4 heads and 2 kv_heads: "
            "choose a tp that divides both");
  EXPECT_EQ(refusal_of<GptBlock>(GptBlockConfig{.channels = 12, .heads = 2, .inner = 7}, {.tp = 2}),
            "h.0.mlp: 2 tensor-parallel ranks cannot divide its 7 inner channels: choose a tp that "
            "divides them");
}

TEST(Divided, RefusesRowsThatSequenceParallelRanksCannotDivide) {
  const Layout layout{.tp = 2, .sequence = true};
  const Embedding embedding("wte", {.vocabulary = 5, .channels = 4});
  EXPECT_EQ(refused([&] { embedding.need({DType::i32, {3, 5}}, layout); }),
            "wte: sequence parallelism over tp = 2 needs a multiple of that in batch * time, not "
            "3 * 5: choose other sizes, or sequence = false");
  const GptBlock block("h.0", {.channels = 4, .heads = 2});
  EXPECT_NE(refused([&] { block.need({DType::f32, {3, 5, 4}, 2}, layout); }).find("3 * 5"),
            std::string::npos);
  EXPECT_EQ(refused([&] { block.need({DType::f32, {2, 5, 4}, 4}, layout); }),
            "h.0 takes f32 [batch, time, 4], not f32 [2, 5, 4] divided over 4 ranks");
  const Dense dense("d", {.in = 4, .out = 2});
  EXPECT_NE(refused([&] { dense.need({DType::f32, {2, 5, 4}, 2}, layout); }).find("divided over"),
            std::string::npos);
}

TEST(Divided, RefusesARunWithoutItsRanks) {
  GptBlock block("h.0", {.channels = 4, .heads = 2});
  internal::Workbench bench({&block}, {.layout = {.tp = 2}, .input = stream(1, 2, 4)});
  EXPECT_NE(refused([&] { bench.forward(); }).find("needs Run::tp"), std::string::npos);
}

TEST(Divided, TargetsThatAreNoClassAreRefusedOnEveryRank) {
  const Case c{one<LmHead>("ln", LmHeadConfig{.vocabulary = 5, .channels = 4}), stream(2, 6, 4), 5};
  on_tensor_ranks(c, {.tp = 2}, [](Rank& rank) {
    rank.bench().targets().as<std::int32_t>()[3] = 5;
    EXPECT_EQ(refused([&] { rank.bench().forward(); }), "ln: id 5 at place 3 is not in [-1, 5)");
  });
}

}  // namespace
}  // namespace troupe::train::layers
