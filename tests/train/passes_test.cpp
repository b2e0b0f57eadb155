// Tests passes over sharded data: each is an epoch, and a restart gives the same ones.
#include "troupe/train/detail/passes.hpp"
#include "troupe/train/sampler.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace troupe::train::internal {
namespace {

constexpr PassRequest kEpoch{.samples = 64, .batch = 8, .per_epoch = 8};
constexpr PassRequest kOther{.samples = 30, .batch = 10, .per_epoch = 3};

/// Begins a pass, takes `batches` batches and leaves it.
Pass walk(PassBook& book, const PassRequest& request, std::uint64_t batches) {
  const Pass pass = book.begin(request);
  for (std::uint64_t i = 0; i < batches; ++i) book.batch_done();
  book.end(pass.number);
  return pass;
}

TEST(Passes, EachIsTheNextEpochOfItsData) {
  PassBook book;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Pass pass = walk(book, kEpoch, 8);
    EXPECT_EQ(pass.epoch, i);
    EXPECT_EQ(pass.done, 0u);
    EXPECT_EQ(pass.batches, 8u);
    EXPECT_EQ(walk(book, kOther, 3).epoch, i) << "data between has epochs of its own";
  }
}

TEST(Passes, AResumedLoopSkipsWhatHadEndedAndGoesOnBehindTheCheckpoint) {
  PassBook first;
  walk(first, kEpoch, 8);
  walk(first, kOther, 1);  // left before its end
  first.begin(kEpoch);
  for (int i = 0; i < 5; ++i) first.batch_done();
  const PassCursor cursor = first.cursor();
  EXPECT_EQ(cursor.passes, 2u);
  EXPECT_EQ(cursor.batches, 5u);

  PassBook again;
  again.resume(cursor);
  const Pass a = again.begin(kEpoch), b = again.begin(kOther);
  EXPECT_EQ(a.done, a.batches);
  EXPECT_EQ(b.done, b.batches);
  EXPECT_EQ(again.cursor().passes, 2u) << "a checkpoint here is still the old place";
  EXPECT_EQ(again.cursor().batches, 5u);
  const Pass c = again.begin(kEpoch);
  EXPECT_EQ(c.epoch, 1u);
  EXPECT_EQ(c.done, 5u);
  EXPECT_EQ(again.cursor().batches, 5u);
  again.batch_done();
  EXPECT_EQ(again.cursor().batches, 6u);
  again.end(c.number);
  EXPECT_EQ(again.cursor().passes, 3u);
  EXPECT_EQ(again.cursor().batches, 0u);
  EXPECT_EQ(again.begin(kEpoch).done, 0u);
}

TEST(Passes, StepsCountInTheRun) {
  PassBook book;
  const PassRequest twenty{.samples = 64, .batch = 8, .per_epoch = 8, .steps = 20};
  EXPECT_EQ(walk(book, twenty, 20).epoch, 0u);
  EXPECT_EQ(book.begin(kEpoch).epoch, 3u) << "20 steps began a third epoch";
}

TEST(Passes, AnEndOfAnOlderPassChangesNothing) {
  PassBook book;
  const Pass old = book.begin(kEpoch);
  book.begin(kEpoch);
  book.batch_done();
  book.end(old.number);
  EXPECT_EQ(book.cursor().passes, 1u);
  EXPECT_EQ(book.cursor().batches, 1u);
}

TEST(Passes, ManyEpochsDoNotOverflow) {
  PassBook book;
  PassRequest request = kEpoch;
  request.epochs = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(book.begin(request).batches, request.epochs);
  EXPECT_EQ(book.begin(request).epoch, request.epochs);
  EXPECT_EQ(book.begin(request).epoch, request.epochs);
}

TEST(Passes, ASamplerThatSeeksYieldsWhatOneThatWalkedDoes) {
  for (const bool drop : {true, false}) {
    const SamplerOptions options{.seed = 5, .global_batch = 7, .drop_last = drop};
    for (const std::uint64_t batches : {0u, 1u, 5u, 8u, 9u, 23u, 40u}) {
      Sampler walked(64, options), skipped(64, options), sought(64, options);
      for (std::uint64_t i = 0; i < batches; ++i) walked.next(0, 1);
      skipped.skip(batches);
      sought.seek(0, batches);
      EXPECT_EQ(skipped.epoch(), walked.epoch()) << batches;
      EXPECT_EQ(skipped.position(), walked.position()) << batches;
      const std::vector<std::uint64_t> right = walked.next(0, 1);
      EXPECT_EQ(skipped.next(0, 1), right) << batches;
      EXPECT_EQ(sought.next(0, 1), right) << batches;
    }
  }
}

}  // namespace
}  // namespace troupe::train::internal
