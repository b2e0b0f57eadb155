// Tests text and samplers: entropy, the split, and windows; a permutation for every epoch; equal
// batches for any number of workers; exact resuming.
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/sampler.hpp"
#include "troupe/train/text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

namespace troupe::train {
namespace {

TEST(Text, UnigramEntropyOfKnownTexts) {
  EXPECT_EQ(unigram_entropy(""), 0);
  EXPECT_EQ(unigram_entropy("aaaa"), 0);
  EXPECT_NEAR(unigram_entropy("abab"), std::log(2.0), 1e-12);
  EXPECT_NEAR(unigram_entropy("aaab"), 0.5623351446188083, 1e-12);
}

std::string numbered(std::size_t n) {
  std::string text(n, ' ');
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>('a' + i % 26);
  return text;
}

TEST(Text, WindowsHoldTheTextAndItsNextBytes) {
  const TextDataset data(numbered(4000), {.context = 10, .block = 100, .held_out_every = 4});
  const std::vector<std::uint64_t> indices = {0, 5, 31};
  const Batch batch = data.batch(indices);
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.time, 10);
  EXPECT_EQ(batch.inputs[0], 'a');
  EXPECT_EQ(batch.targets[0], 'b');
  for (std::size_t i = 0; i < 30; ++i)
    EXPECT_EQ(batch.targets[i], 'a' + (batch.inputs[i] - 'a' + 1) % 26);
}

TEST(Text, IgnoredTargetsDoNotCount) {
  EXPECT_EQ(counted_targets({}), 0);
  EXPECT_EQ(counted_targets({.inputs = {1, 2, 3, 4},
                             .targets = {kernels::kIgnore, 0, 255, kernels::kIgnore},
                             .rows = 2,
                             .time = 2}),
            2);
}

TEST(Text, TheHeldOutPartSharesNoByteWithTraining) {
  std::string text(4000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = i / 100 % 4 == 3 ? 'H' : 'T';
  const TextDataset data(text, {.context = 10, .block = 100, .held_out_every = 4});
  std::vector<std::uint64_t> all(data.size());
  std::iota(all.begin(), all.end(), 0u);
  const Batch train = data.batch(all);
  for (const auto* tokens : {&train.inputs, &train.targets})
    EXPECT_EQ(std::count(tokens->begin(), tokens->end(), 'H'), 0);
  all.resize(data.held_out_size());
  const Batch held_out = data.held_out(all);
  EXPECT_EQ(std::count(held_out.targets.begin(), held_out.targets.end(), 'T'), 0);
  EXPECT_EQ(data.held_out_size() * 3, data.size());
}

TEST(Text, MistakesAreRefused) {
  EXPECT_THROW(TextDataset("too short", {}), InvalidArgument);
  EXPECT_THROW(TextDataset(numbered(4000), {.context = 0}), InvalidArgument);
  EXPECT_THROW(TextDataset(numbered(4000), {.context = 100, .block = 100}), InvalidArgument);
  const TextDataset data(numbered(4000), {.context = 10, .block = 100, .held_out_every = 4});
  const std::vector<std::uint64_t> outside = {data.size()};
  EXPECT_THROW(static_cast<void>(data.batch(outside)), InvalidArgument);
  EXPECT_THROW(read_text("/nonexistent/text", 100), InvalidArgument);
}

TEST(Text, ReadsFilesAndFoldersInOrderUpToALimit) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "troupe_text_test";
  fs::remove_all(folder);
  fs::create_directories(folder / "b");
  std::ofstream(folder / "c.txt") << "third";
  std::ofstream(folder / "a.txt") << "first";
  std::ofstream(folder / "b" / "x.txt") << "second";
  EXPECT_EQ(read_text(folder.string(), 1000), "firstsecondthird");
  EXPECT_EQ(read_text(folder.string(), 8), "firstsec");
  EXPECT_EQ(read_text((folder / "c.txt").string(), 1000), "third");
  fs::remove_all(folder);
}

TEST(Sampler, EveryEpochIsAPermutation) {
  for (const std::uint64_t n : {1u, 2u, 3u, 17u, 64u, 1000u}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < n; ++i) seen.insert(permuted(i, n, 5, 1));
    EXPECT_EQ(seen.size(), n);
    EXPECT_LT(*seen.rbegin(), n);
  }
}

TEST(Sampler, EpochsAndSeedsDifferAndLookRandom) {
  std::uint64_t same = 0, fixed = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same += permuted(i, 1000, 5, 0) == permuted(i, 1000, 5, 1);
    same += permuted(i, 1000, 5, 0) == permuted(i, 1000, 6, 0);
    fixed += permuted(i, 1000, 5, 0) == i;
  }
  EXPECT_LT(same, 15u);   // 2 expected
  EXPECT_LT(fixed, 10u);  // 1 expected
}

std::vector<std::uint64_t> global_batches(std::uint64_t samples, SamplerOptions options, int world,
                                          int steps) {
  std::vector<Sampler> ranks(static_cast<std::size_t>(world), Sampler(samples, options));
  std::vector<std::uint64_t> all;
  for (int step = 0; step < steps; ++step)
    for (int rank = 0; rank < world; ++rank)
      for (const std::uint64_t i : ranks[static_cast<std::size_t>(rank)].next(rank, world))
        all.push_back(i);
  return all;
}

TEST(Sampler, TheOrderDoesNotDependOnTheNumberOfWorkers) {
  for (const bool drop : {true, false}) {
    const SamplerOptions options{.seed = 3, .global_batch = 10, .drop_last = drop};
    const auto one = global_batches(47, options, 1, 12);
    for (const int world : {2, 3, 4, 11}) EXPECT_EQ(one, global_batches(47, options, world, 12));
  }
}

TEST(Sampler, WithoutDropEverySampleComesOnceAnEpoch) {
  auto all = global_batches(47, {.global_batch = 10, .drop_last = false}, 3, 5);
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 47u);
  for (std::uint64_t i = 0; i < 47; ++i) EXPECT_EQ(all[i], i);
}

TEST(Sampler, ResumesExactlyAlsoWithAnotherNumberOfWorkers) {
  Sampler sampler(100, {.seed = 1, .global_batch = 12});
  for (int i = 0; i < 10; ++i) sampler.next(0, 2);  // into the second epoch
  EXPECT_EQ(sampler.epoch(), 1u);
  Sampler copy, skipped(100, {.seed = 1, .global_batch = 12});
  fields(copy) = fields(sampler);  // as a checkpoint does
  skipped.skip(10);
  const auto expected = sampler.next(0, 1);
  EXPECT_EQ(copy.next(0, 1), expected);
  EXPECT_EQ(skipped.next(0, 1), expected);
}

TEST(Sampler, MistakesAreRefused) {
  EXPECT_THROW(Sampler(0, {}), InvalidArgument);
  EXPECT_THROW(Sampler(10, {.global_batch = 0}), InvalidArgument);
  EXPECT_THROW(Sampler(10, {.global_batch = 11}), InvalidArgument);
  Sampler sampler(10, {.global_batch = 2});
  EXPECT_THROW(sampler.next(2, 2), InvalidArgument);
  EXPECT_EQ(sampler.batches_per_epoch(), 5u);
}

}  // namespace
}  // namespace troupe::train
