// Any number of ranks equals one process on the same global batch, though shares, micro-batches and
// counted targets are unequal.
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/adamw.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

namespace troupe::train::unequal_shares {
namespace {

using collective::Communicator;
using collective::Reduce;

constexpr GptConfig kConfig{
    .vocabulary = 256, .context = 32, .layers = 2, .heads = 2, .channels = 32};
constexpr int kSteps = 20;

const TextDataset& headers() {
  static const TextDataset data(read_standard_headers(1 << 20), {.context = kConfig.context});
  return data;
}

/// Windows of the text, three of ten targets ignored: which, depends on the window and the place.
Batch batch_of(std::span<const std::uint64_t> windows) {
  Batch batch = headers().batch(windows);
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    const auto context = static_cast<std::size_t>(kConfig.context);
    if (kernels::philox_uniform(3, windows[i / context], i % context) < 0.3)
      batch.targets[i] = kernels::kIgnore;
  }
  return batch;
}

/// Rank r cuts its share into r + 1 micro-batches, which differ in their rows.
std::vector<Batch> micro_batches(const std::vector<std::uint64_t>& share, int rank) {
  const auto parts = static_cast<std::size_t>(rank) + 1;
  std::vector<Batch> micros;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t first = share.size() * i / parts, end = share.size() * (i + 1) / parts;
    micros.push_back(batch_of(std::span(share).subspan(first, end - first)));
  }
  return micros;
}

enum class Way : std::uint8_t { sums, means };

struct Learner {
  Gpt model{kConfig, /*seed=*/1};
  AdamW optimizer{model.map().size()};
  Sampler sampler{headers().size(), {.seed = 1, .global_batch = 16}};
  std::vector<double> losses, norms;

  void step(Communicator* comm, Way way) {
    const int rank = comm ? comm->rank() : 0, world = comm ? comm->size() : 1;
    const std::vector<Batch> micros = micro_batches(sampler.next(rank, world), rank);
    model.zero_gradients();
    losses.push_back(way == Way::sums ? by_sums(comm, micros) : by_means(comm, micros));
    norms.push_back(optimizer.update(model.map(), model.parameters(), model.gradients(),
                                     {.rate = 1e-3f, .max_norm = 1}));
  }

  double by_sums(Communicator* comm, const std::vector<Batch>& micros) {
    std::int64_t targets = 0;
    for (const Batch& micro : micros) targets += counted_targets(micro);
    if (comm) comm->all_reduce(std::span(&targets, 1)).wait();
    LossSum loss;
    for (const Batch& micro : micros)
      loss.sum +=
          model.accumulate(micro, {.targets = targets, .last = &micro == &micros.back()}).sum;
    if (comm) {
      comm->all_reduce(model.gradients()).wait();
      comm->all_reduce(std::span(&loss.sum, 1)).wait();
    }
    return loss.sum / static_cast<double>(targets);
  }

  double by_means(Communicator* comm, const std::vector<Batch>& micros) {
    double loss = 0;
    for (const Batch& micro : micros)
      loss += model.forward_backward(micro, 1.0f / static_cast<float>(micros.size())) /
              static_cast<double>(micros.size());
    if (comm) {
      comm->all_reduce(model.gradients(), Reduce::mean).wait();
      comm->all_reduce(std::span(&loss, 1), Reduce::mean).wait();
    }
    return loss;
  }
};

std::vector<Learner> run(int world, Way way) {
  const auto group = collective::local_group(world);
  std::vector<Learner> learners(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      for (int i = 0; i < kSteps; ++i) learners[r].step(group[r].get(), way);
    });
  for (std::thread& thread : threads) thread.join();
  return learners;
}

double worst(const Learner& group, const Learner& alone) {
  double difference = 0;
  for (std::size_t i = 0; i < kSteps; ++i)
    difference = std::max(difference, std::abs(group.losses[i] / alone.losses[i] - 1));
  return difference;
}

TEST(UnequalShares, OneTwoThreeAndFiveRanksEqualOneProcess) {
  Learner alone;
  for (int i = 0; i < kSteps; ++i) alone.step(nullptr, Way::sums);
  for (const int world : {1, 2, 3, 5}) {
    const std::vector<Learner> ranks = run(world, Way::sums);
    EXPECT_LT(worst(ranks[0], alone), 1e-5) << world << " ranks";
    for (const Learner& learner : ranks) {
      EXPECT_EQ(learner.norms, ranks[0].norms);
      EXPECT_EQ(learner.losses, ranks[0].losses);
      EXPECT_EQ(hash_floats(learner.model.parameters()), hash_floats(ranks[0].model.parameters()));
    }
    if (world == 1) {
      EXPECT_EQ(hash_floats(ranks[0].model.parameters()), hash_floats(alone.model.parameters()));
    }
  }
}

// What the sums are for: with the same batches, the mean of means is another loss.
TEST(UnequalShares, TheMeanOfMeansIsNotTheMean) {
  Learner alone;
  for (int i = 0; i < kSteps; ++i) alone.step(nullptr, Way::sums);
  EXPECT_GT(worst(run(3, Way::means)[0], alone), 1e-4);
}

// The output layer's gradient of the shared embedding joins the input's once, behind the last
// micro-batch, also when that one counts no target.
TEST(UnequalShares, TheLastMicroBatchMayBeEmpty) {
  const std::vector<std::uint64_t> windows = {1, 5, 9};
  const Batch batch = batch_of(windows);
  Batch ignored = batch;
  for (std::int32_t& target : ignored.targets) target = kernels::kIgnore;
  Batch none;
  none.time = batch.time;
  Gpt whole(kConfig, 1);
  whole.accumulate(batch, {});
  for (const Batch& last : {ignored, none}) {
    Gpt split(kConfig, 1);
    std::size_t reported = 0;
    split.accumulate(batch, {.last = false, .on_ready = [&](int) { ++reported; }});
    EXPECT_EQ(reported, 0u);
    EXPECT_NE(hash_floats(split.gradients()), hash_floats(whole.gradients()));
    const LossSum loss = split.accumulate(last, {.on_ready = [&](int) { ++reported; }});
    EXPECT_EQ(loss.count, 0);
    EXPECT_EQ(reported, split.map().buckets().size());
    EXPECT_EQ(hash_floats(split.gradients()), hash_floats(whole.gradients()));
  }
}

TEST(UnequalShares, ZeroedGradientsForgetAnUnfinishedStep) {
  const std::vector<std::uint64_t> windows = {1, 5, 9};
  const Batch batch = batch_of(windows);
  Gpt fresh(kConfig, 1), again(kConfig, 1);
  fresh.accumulate(batch, {});
  again.accumulate(batch, {.last = false});
  again.zero_gradients();
  again.accumulate(batch, {});
  EXPECT_EQ(hash_floats(again.gradients()), hash_floats(fresh.gradients()));
  EXPECT_THROW(again.accumulate(batch, {.targets = -1}), InvalidArgument);
}

}  // namespace
}  // namespace troupe::train::unequal_shares
