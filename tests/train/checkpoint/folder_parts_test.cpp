// Tests the pure parts of checkpoints in a folder: names, shares, the document, what stays, and
// what a run starts from.
#include "troupe/train/checkpoint/folder/document.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/folder/retention.hpp"
#include "troupe/train/checkpoint/folder/share.hpp"
#include "troupe/train/checkpoint/folder/staged_state.hpp"
#include "troupe/train/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe::train::folder_parts_test {
namespace {

TEST(FolderNames, AreReadBackAndRefuseOthers) {
  EXPECT_EQ(step_folder_name(100), "step-00000100");
  EXPECT_EQ(step_folder_name(123456789), "step-123456789");
  EXPECT_EQ(step_of_folder("step-00000100"), 100);
  EXPECT_EQ(step_of_folder("step-123456789"), 123456789);
  for (const char* other : {"step-100", "step-0000010x", "step-", "step-000000100", "x",
                            "step-99999999999999999999", ".step-00000100.a.tmp", "step--0000001"})
    EXPECT_FALSE(step_of_folder(other)) << other;
  EXPECT_EQ(writing_folder_name(7, "ab"), ".step-00000007.ab.tmp");
  EXPECT_TRUE(is_writing_folder(".step-00000007.ab.tmp"));
  for (const char* other : {"step-00000007", ".step-7.ab.tmp", ".step-00000007..tmp", ".tmp"})
    EXPECT_FALSE(is_writing_folder(other)) << other;
  EXPECT_FALSE(step_of_folder(skipped_folder_name(7, "ab")));
  EXPECT_EQ(tensor_file_name(FileKind::model, 1, 3), "model-00001-of-00003.safetensors");
  EXPECT_EQ(tensor_file_name(FileKind::optimizer, 2, 3), "optimizer-00002-of-00003.safetensors");
  EXPECT_EQ(kind_of_file("model-00001-of-00003.safetensors"), FileKind::model);
  EXPECT_EQ(kind_of_file("optimizer-00001-of-00003.safetensors"), FileKind::optimizer);
  for (const char* other : {"model.safetensors.index.json", "model-1-of-3.safetensors", "parts.bin",
                            "model-00001-of-.safetensors"})
    EXPECT_FALSE(kind_of_file(other)) << other;
  EXPECT_TRUE(is_file_name("model.safetensors.index.json"));
  for (const char* other : {"", ".", "..", "../lock", "a/b", ".hidden", "a b"})
    EXPECT_FALSE(is_file_name(other)) << other;
}

TEST(ShareOf, DiffersByAtMostTheLargestTensorAndUsesEveryRank) {
  const std::vector<std::int64_t> bytes = {5, 100, 7, 30, 30, 30, 1, 1, 90, 12};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const std::vector<int> writers = share_of(bytes, ranks);
    std::vector<std::int64_t> shares(static_cast<std::size_t>(ranks));
    for (std::size_t t = 0; t < bytes.size(); ++t)
      shares.at(static_cast<std::size_t>(writers[t])) += bytes[t];
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    EXPECT_GT(*least, 0) << ranks;
    EXPECT_LE(*most - *least, 100) << ranks;
  }
  EXPECT_EQ(share_of(bytes, 2), share_of(bytes, 2));
  EXPECT_EQ(share_of(std::vector<std::int64_t>{8}, 3), std::vector<int>{0});
}

PlannedTensor planned(std::string name, std::int64_t rows, int tp, bool whole, int dp) {
  PlannedTensor tensor{.name = name, .kind = FileKind::model, .place = {}, .whole = whole};
  tensor.place.name = std::move(name);
  tensor.place.global = {rows * tp, 2};
  tensor.place.local = {rows, 2};
  if (tp > 1) tensor.place.shard = {.axis = 0, .parts = tp};
  if (whole) return tensor;
  const std::int64_t each = rows * 2 / dp;
  for (int d = 0; d < dp; ++d) tensor.owned.push_back({d * each, each});
  return tensor;
}

TEST(StagePlan, StagesEachElementOnce) {
  for (const bool whole : {false, true})
    for (const int tp : {1, 2}) {
      std::vector<PlannedTensor> tensors = {planned("b", 4, tp, whole, 2),
                                            planned("a", 8, tp, whole, 2),
                                            planned("c", 4, 1, whole, 2)};
      const StagePlan plan = plan_stage(tensors, /*first=*/4, /*dp=*/2, tp);
      EXPECT_EQ(plan.ranks, 2 * tp);
      EXPECT_EQ(plan.tensors.front().name, "a");
      std::int64_t staged = 0;
      for (const StagedTensor& tensor : plan.tensors) {
        std::int64_t count = 0;
        for (const StagedPiece& piece : tensor.pieces) count += piece.range.count;
        EXPECT_EQ(count, tensor.place.global.count()) << tensor.name;
        staged += count;
        if (whole && (tp == 1 || tensor.place.shard.axis < 0)) {
          ASSERT_EQ(tensor.pieces.size(), 1u);
          EXPECT_EQ(tensor.pieces[0].from, tensor.writer) << "what a rank has does not travel";
        }
      }
      EXPECT_EQ(std::accumulate(plan.elements.begin(), plan.elements.end(), std::int64_t{0}),
                staged);
    }
}

CheckpointDocument document() {
  CheckpointDocument made;
  made.step = 100;
  made.steps = 99;
  made.seed = ~std::uint64_t{0};
  made.passes = 2;
  made.batches = 7;
  made.data = {.pass = 3, .samples = 1000, .batch = 24, .seed = 5};
  made.loss_scale = LossScale{.scale = 0.5f, .good_steps = 12};
  made.moments_since = 4;
  made.layout = {.dp = 2, .tp = 2, .zero = 1, .micro = 3, .compute = kernels::DType::f16};
  made.engine = 0;
  made.types = 0x0123456789abcdef;
  made.files = {{"model-00001-of-00001.safetensors", 12, 34}, {"parts.bin", 1, ~std::uint64_t{0}}};
  return made;
}

TEST(CheckpointDocument, ComesBack) {
  const CheckpointDocument made = document();
  const CheckpointDocument read = document_of(text_of(made)).value();
  EXPECT_EQ(text_of(read), text_of(made));
  EXPECT_EQ(identity_of(read), identity_of(made));
  EXPECT_EQ(read.seed, made.seed);
  EXPECT_EQ(read.data, made.data);
  EXPECT_EQ(read.loss_scale, made.loss_scale);
  EXPECT_EQ(read.layout.compute, kernels::DType::f16);
  EXPECT_EQ(read.files, made.files);
}

TEST(CheckpointDocument, FindsEveryChangedDigit) {
  const std::string text = text_of(document());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > '8') continue;
    std::string changed = text;
    ++changed[at];
    EXPECT_FALSE(document_of(changed)) << at << ": " << text.substr(at, 20);
  }
}

TEST(CheckpointDocument, RefusesOthersInOneSentence) {
  CheckpointDocument outside = document();
  outside.files[0].name = "../lock";
  CheckpointDocument twice = document();
  twice.files[1].name = twice.files[0].name;
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("{}"), std::string("{\"step\": 3}"),
        std::string("{\"troupe.checkpoint\": 2}"), text_of(outside), text_of(twice)}) {
    const Result<CheckpointDocument> read = document_of(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), Code::invalid_argument);
  }
  EXPECT_NE(document_of(text_of(outside)).error().message().find("files.name"), std::string::npos);
}

TEST(Retention, KeepsTheNewestAndTheBest) {
  const std::vector<long> steps = {30, 10, 20, 40};
  const std::map<long, double> values = {{10, 0.5}, {20, 0.1}, {30, 0.1}, {40, 0.4}};
  EXPECT_EQ(best_step(steps, values, false), 20) << "the earlier one of equal values";
  EXPECT_EQ(best_step(steps, values, true), 10);
  EXPECT_EQ(unneeded(steps, values, 2, false), std::vector<long>{10});
  EXPECT_EQ(unneeded(steps, values, 1, true), (std::vector<long>{20, 30}));
  EXPECT_EQ(unneeded(steps, {}, 1, false), (std::vector<long>{10, 20, 30}));
  EXPECT_TRUE(unneeded(steps, values, 9, false).empty());
  EXPECT_FALSE(best_step(steps, {{10, std::numeric_limits<double>::quiet_NaN()}, {50, 1}}, true));
}

TEST(Retention, StartsFromTheNewestCompleteFolderAndNamesNewerOnes) {
  const Start start = choose_start({{10, ""}, {40, "half"}, {20, "old"}, {30, ""}});
  EXPECT_EQ(start.steps, (std::vector<long>{30, 10}));
  ASSERT_EQ(start.skipped.size(), 1u);
  EXPECT_EQ(start.skipped[0], "the checkpoint step-00000040 is skipped: half");
  EXPECT_TRUE(choose_start({{1, "bad"}}).steps.empty());
}

TEST(HashStream, EqualsTheHashOfTheWhole) {
  std::vector<unsigned char> bytes(200);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(3));
  for (std::size_t size = 0; size <= bytes.size(); size += 7)
    for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{31},
                                    std::size_t{32}, std::size_t{33}, std::size_t{200}}) {
      HashStream hash;
      for (std::size_t at = 0; at < size; at += piece)
        hash.add(bytes.data() + at, std::min(piece, size - at));
      EXPECT_EQ(hash.value(), hash_bytes(bytes.data(), size)) << size << " by " << piece;
    }
  EXPECT_EQ(hash_bytes("", 0), 0xef46db3751d8e999u);
  EXPECT_EQ(hash_bytes("abc", 3), 0x44bc2cf5ad770999u);
}

}  // namespace
}  // namespace troupe::train::folder_parts_test
