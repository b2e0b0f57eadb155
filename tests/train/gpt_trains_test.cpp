// Training as a whole, on the machine's own C++ headers: it learns; two workers equal one process;
// ranks stay bitwise equal; a resumed run continues bitwise; buckets reduced early give the same
// bits.
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/train/adamw.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/parameter_files.hpp"
#include "troupe/train/sampler.hpp"
#include "troupe/train/schedule.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

namespace troupe::train {
namespace {

using collective::Communicator;
using collective::Reduce;

constexpr std::uint64_t kSeed = 1, kBatch = 16;

const TextDataset& headers() {
  static const TextDataset data(read_standard_headers(4 << 20), {.context = 64});
  return data;
}

GptConfig small() {
  return {.context = 64, .layers = 2, .heads = 2, .channels = 64};
}

/// Everything that one worker carries from step to step.
struct Learner {
  Gpt model{small(), kSeed, {.first_elements = 4096, .elements = 40000, .pad = 64}};
  AdamW optimizer{model.map().size()};
  Sampler sampler{headers().size(), {.seed = kSeed, .global_batch = kBatch}};
  std::vector<double> losses;

  /// One step; comm is null in a run of one process. `early`: reduce buckets as they are ready.
  void step(Communicator* comm, std::int64_t total, bool early = false) {
    const int rank = comm ? comm->rank() : 0, world = comm ? comm->size() : 1;
    const Batch batch = headers().batch(sampler.next(rank, world));
    model.zero_gradients();
    BucketReady reduce;
    std::vector<collective::Work> reductions;
    if (comm && early)
      reduce = [&](int bucket) {
        reductions.push_back(comm->all_reduce(model.gradients(bucket), Reduce::mean));
      };
    double loss = model.forward_backward(batch, 1.0f, reduce);
    for (collective::Work& reduction : reductions) reduction.wait();
    if (comm && !early) comm->all_reduce(model.gradients(), Reduce::mean).wait();
    if (comm) comm->all_reduce(std::span<double>(&loss, 1), Reduce::mean).wait();
    const RateSchedule schedule{.peak = 8e-3f, .warmup = 10, .total = total, .floor = 8e-4f};
    optimizer.update(model.map(), model.parameters(), model.gradients(),
                     {.rate = cosine_rate(schedule, optimizer.steps())});
    losses.push_back(loss);
  }
};

std::vector<Learner> run_group(std::vector<std::unique_ptr<Communicator>> group, int steps,
                               int total, bool early = false) {
  std::vector<Learner> learners(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      for (int i = 0; i < steps; ++i) learners[r].step(group[r].get(), total, early);
    });
  for (std::thread& thread : threads) thread.join();
  return learners;
}

std::uint64_t weights_of(const Learner& learner) {
  return hash_floats(learner.model.parameters());
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // twenty times slower: look at memory and races, not at learning
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

TEST(GptTrains, TwoWorkersLearnRealTextAndStayEqual) {
  constexpr int steps = kSanitized ? 5 : 200;
  std::vector<Learner> learners = run_group(collective::local_group(2), steps, steps);
  EXPECT_EQ(learners[0].losses, learners[1].losses);
  EXPECT_EQ(weights_of(learners[0]), weights_of(learners[1]));
  const double bar = 0.8 * unigram_entropy(headers().text());
  const double loss = held_out_loss(learners[0].model, headers(), kSanitized ? 16 : 64);
  EXPECT_LT(loss, kSanitized ? learners[0].losses.front() : bar)
      << "first loss " << learners[0].losses.front() << ", last " << learners[0].losses.back();
  RecordProperty("held_out_loss", std::to_string(loss));
  RecordProperty("bar", std::to_string(bar));
}

TEST(GptTrains, TwoAndFourWorkersEqualOneProcessOnTheSameGlobalBatch) {
  constexpr int steps = kSanitized ? 3 : 10;
  Learner alone;
  for (int i = 0; i < steps; ++i) alone.step(nullptr, 100);
  for (const int world : {2, 4}) {
    const std::vector<Learner> group = run_group(collective::local_group(world), steps, 100);
    for (std::size_t i = 0; i < steps; ++i)
      EXPECT_NEAR(group[0].losses[i] / alone.losses[i], 1.0, 1e-5) << "step " << i;
    for (const Learner& learner : group) EXPECT_EQ(weights_of(learner), weights_of(group[0]));
  }
}

TEST(GptTrains, AGroupOfOneEqualsThePlainRunBitwise) {
  Learner alone;
  for (int i = 0; i < 3; ++i) alone.step(nullptr, 100);
  const std::vector<Learner> group = run_group(collective::local_group(1), 3, 100);
  EXPECT_EQ(weights_of(group[0]), weights_of(alone));
}

TEST(GptTrains, SharedMemoryAndEarlyBucketsGiveTheSameBits) {
  const std::vector<Learner> plain = run_group(collective::local_group(2), 4, 100);
  const std::vector<Learner> early = run_group(collective::local_group(2), 4, 100, true);
  const std::vector<Learner> overlapped = run_group(
      collective::local_group(2, {.progress = collective::Progress::thread}), 4, 100, true);
  const Fd memory = collective::create_shm_group({.size = 2});
  std::vector<std::unique_ptr<Communicator>> shared;
  for (int r = 0; r < 2; ++r) shared.push_back(collective::join_shm_group(memory, r, 1));
  const std::vector<Learner> shm = run_group(std::move(shared), 4, 100);
  EXPECT_GT(plain[0].model.map().buckets().size(), 2u);
  EXPECT_EQ(weights_of(early[1]), weights_of(plain[0]));
  EXPECT_EQ(weights_of(overlapped[1]), weights_of(plain[0]));
  EXPECT_EQ(weights_of(shm[1]), weights_of(plain[0]));
}

TEST(GptTrains, AResumedRunContinuesBitwise) {
  const std::string path = testing::TempDir() + "troupe_gpt_trains.safetensors";
  Learner first;
  for (int i = 0; i < 6; ++i) first.step(nullptr, 100);
  const ParameterMap& map = first.model.map();
  std::vector<FileTensor> tensors = views(map, first.model.parameters());
  for (const auto& [prefix, slab] : {std::pair("m.", first.optimizer.first_moment()),
                                     std::pair("v.", first.optimizer.second_moment())})
    for (FileTensor view : views(map, slab)) {
      view.name = prefix + view.name;
      tensors.push_back(std::move(view));
    }
  write_safetensors_file(path, tensors, {{"steps", std::to_string(first.optimizer.steps())}})
      .value();
  for (int i = 0; i < 6; ++i) first.step(nullptr, 100);

  Learner resumed;
  const SafetensorsFile file = read_safetensors_file(path).value();
  load_parameters(file, map, resumed.model.parameters());
  auto [m, v, steps] = fields(resumed.optimizer);
  for (const Parameter& tensor : map.tensors())
    for (const auto& [prefix, slab] : {std::pair("m.", &m), std::pair("v.", &v)}) {
      const FileTensor* source = file.find(prefix + tensor.name);
      ASSERT_NE(source, nullptr);
      std::memcpy(slab->data() + tensor.offset, source->bytes.data(), source->bytes.size());
    }
  steps = std::stol(file.metadata.at("steps"));
  resumed.sampler.skip(static_cast<std::uint64_t>(steps));
  for (int i = 0; i < 6; ++i) resumed.step(nullptr, 100);
  EXPECT_EQ(resumed.losses, std::vector<double>(first.losses.begin() + 6, first.losses.end()));
  EXPECT_EQ(weights_of(resumed), weights_of(first));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace troupe::train
