// Tests a store's bytes and traffic, and that every zero gives the same bits.
#include "troupe/train/params/store.hpp"

#include "tests/train/params/ranks.hpp"
#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace troupe::train::store_test {
namespace {

using testing::kParameters;
using testing::kTied;
using testing::Learner;
using testing::odd_model;
using testing::on_ranks;

/// The results of one rank of a run.
struct End {
  std::vector<float> values;
  std::vector<double> norms;
  friend bool operator==(const End&, const End&) = default;
};

/// Trains and returns the results of each rank.
std::vector<End> train(const Learner::Options& options, int steps = 4) {
  std::vector<End> ends(static_cast<std::size_t>(options.ranks));
  on_ranks(options.ranks, [&](int rank, collective::Communicator* dp) {
    Learner learner(options, rank, dp);
    for (int i = 0; i < steps; ++i) learner.step();
    ends[static_cast<std::size_t>(rank)] = {learner.values(), learner.norms};
  });
  return ends;
}

TEST(StoreBits, ZeroOneIsDataParallelBitForBitForAnyMicroBatchesWithTheClipActive) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int micro : {1, 3}) {
      const std::vector<End> plain = train({.zero = 0, .ranks = ranks, .micro = micro});
      const std::vector<End> shared = train({.zero = 1, .ranks = ranks, .micro = micro});
      EXPECT_GT(plain[0].norms[0], 1.0) << "the clip is active";
      for (const End& end : plain) EXPECT_TRUE(end == plain[0]);
      for (const End& end : shared) EXPECT_TRUE(end == plain[0]) << ranks << " ranks, " << micro;
    }
}

TEST(StoreBits, ZeroTwoAndThreeAreDataParallelBitForBitWithOneMicroBatch) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const std::vector<End> plain = train({.zero = 0, .ranks = ranks});
    for (int zero : {2, 3})
      for (const End& end : train({.zero = zero, .ranks = ranks}))
        EXPECT_TRUE(end == plain[0]) << "zero " << zero << ", " << ranks << " ranks";
  }
}

TEST(StoreBits, SeveralMicroBatchesOfZeroTwoAndThreeDifferInRoundingOnly) {
  const std::vector<End> plain = train({.zero = 0, .ranks = 3, .micro = 3});
  for (int zero : {2, 3}) {
    const std::vector<End> shared = train({.zero = zero, .ranks = 3, .micro = 3});
    for (const End& end : shared) EXPECT_TRUE(end == shared[0]);
    for (std::size_t i = 0; i < plain[0].norms.size(); ++i)
      EXPECT_NEAR(shared[0].norms[i], plain[0].norms[i], 1e-6 * plain[0].norms[i]);
  }
  EXPECT_TRUE(train({.zero = 2, .ranks = 3, .micro = 3})[0] ==
              train({.zero = 3, .ranks = 3, .micro = 3})[0]);
}

TEST(StoreBits, OffloadedMomentsAndOtherOptimizersHaveTheSameBitsInEveryZero) {
  const OptimizerOptions sgd{.kind = OptimizerKind::sgd, .rate = 0.1f, .momentum = 0.9f};
  const OptimizerOptions plain_sgd{.kind = OptimizerKind::sgd, .rate = 0.1f, .max_norm = 0};
  for (const OptimizerOptions& optimizer : {OptimizerOptions{}, sgd, plain_sgd}) {
    const End plain = train({.ranks = 2, .optimizer = optimizer})[0];
    for (int zero = 0; zero <= 3; ++zero)
      EXPECT_TRUE(train({.zero = zero, .ranks = 2, .offload = true, .optimizer = optimizer})[1] ==
                  plain)
          << zero;
  }
}

TEST(StoreBits, TheNormDoesNotDependOnHowManyRanksShareTheChunks) {
  // Rank 0 has the whole gradient, so sums over ranks are exact.
  const auto gradient = [](int rank, int, int step, std::uint64_t element) {
    return rank == 0 ? testing::noise(1, 2, static_cast<std::uint64_t>(step), element) : 0.0f;
  };
  const End one = train({.gradient = gradient})[0];
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (int zero = 0; zero <= 3; ++zero)
      EXPECT_TRUE(train({.zero = zero, .ranks = ranks, .gradient = gradient})[0] == one)
          << "zero " << zero << ", " << ranks << " ranks";
}

TEST(StoreBits, AdamWMatchesItsFormulaWithoutDecayForNormsAndBiases) {
  const OptimizerOptions optimizer{.rate = 0.01f, .decay = 0.5f, .max_norm = 0};
  const auto gradient = [](int, int, int, std::uint64_t) { return 0.0f; };
  Learner learner({.optimizer = optimizer, .gradient = gradient}, 0, nullptr);
  const auto weight = [&](const char* name) {
    return learner.store().weights_of(*learner.index().find(name)).as<float>()[0];
  };
  const float bias = weight("h.0.bias"), matrix = weight("h.0.weight");
  learner.step();
  EXPECT_EQ(weight("h.0.bias"), bias);
  EXPECT_NEAR(weight("h.0.weight"), matrix * (1 - 0.01 * 0.5), 1e-7);
  EXPECT_NE(matrix, 0);
}

std::int64_t slab_of(int ranks) {
  // Padded sizes: embedding 2145 -> 2176 + 1023; blocks 33 -> 64, 3267 -> 3328 (64 + 3267 = 3331
  // -> 3392), + 99.
  const std::int64_t chunk = std::int64_t{1024} * ranks;
  const auto up = [chunk](std::int64_t n) { return (n + chunk - 1) / chunk * chunk; };
  return up(2176 + 1023) + 2 * up(3392 + 99) + up(1);
}

TEST(StoreBytes, AreTheFormulasToTheBytePlusStatedPadding) {
  const std::int64_t p = kParameters;
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int zero = 0; zero <= 3; ++zero)
      on_ranks(ranks, [&](int rank, collective::Communicator* dp) {
        const Index index = odd_model(ranks);
        kernels::Device device = kernels::cpu_device();
        const Store store(index, device, {.zero = zero, .dp_rank = rank}, dp);
        const Store::Bytes bytes = store.bytes();
        const std::int64_t formula = zero == 0   ? 16 * p
                                     : zero == 1 ? 8 * p + 8 * p / ranks
                                     : zero == 2 ? 4 * p + 12 * p / ranks
                                                 : 16 * p / ranks;
        EXPECT_EQ(bytes.total() - bytes.padding, formula + 4 * kTied)
            << "zero " << zero << ", rank " << rank << " of " << ranks;
        const std::int64_t slab = slab_of(ranks), whole = 4 * slab, share = whole / ranks;
        EXPECT_EQ(index.slab_size(), slab);
        EXPECT_EQ(bytes.weights, zero == 3 ? share : whole);
        EXPECT_EQ(bytes.gradients, zero >= 2 ? share : whole);
        EXPECT_EQ(bytes.moments, 2 * (zero >= 1 ? share : whole));
        EXPECT_EQ(bytes.tied, 4 * 2176);
        EXPECT_EQ(bytes.transient, 0);
        EXPECT_EQ(device.allocated().device, bytes.total()) << "the device is the second witness";
      });
}

TEST(StoreBytes, TransientOnesAreTheUnitsInUseAndNothingElse) {
  on_ranks(2, [&](int rank, collective::Communicator* dp) {
    const Index index = odd_model(2);
    kernels::Device device = kernels::cpu_device();
    Store store(index, device, {.zero = 3, .dp_rank = rank}, dp);
    const std::int64_t fixed = device.allocated().device;
    const auto unit_bytes = [&](std::size_t unit) { return 4 * index.units()[unit].size; };
    store.gather(1);
    store.gather(1);
    store.gather(0);
    EXPECT_EQ(store.bytes().transient, unit_bytes(0) + unit_bytes(1));
    const void* slab = store.weights(1).data;
    store.release(1);
    store.begin_gradients(2);  // a unit of the same size
    EXPECT_EQ(store.weights(1).data, slab) << "it is gathered once more";
    EXPECT_NE(store.gradients(2).data, slab);
    EXPECT_EQ(store.bytes().transient, unit_bytes(0) + 2 * unit_bytes(1));
    store.reduce(2);
    store.finish_reduce(2);
    store.release(1);
    EXPECT_THROW(store.weights(1), InvalidArgument);
    EXPECT_THROW(store.release(1), InvalidArgument);
    store.gather(2);
    EXPECT_EQ(store.bytes().transient, unit_bytes(0) + 2 * unit_bytes(1)) << "an idle slab";
    store.release(2);
    store.begin_gradients(3);
    EXPECT_EQ(store.bytes().transient, unit_bytes(0) + unit_bytes(1) + unit_bytes(3))
        << "one of two idle ones made room";
    EXPECT_EQ(store.bytes().peak_transient, unit_bytes(0) + 2 * unit_bytes(1));
    EXPECT_EQ(device.allocated().device, fixed + store.bytes().transient);
    EXPECT_EQ(device.allocated().peak_device, fixed + store.bytes().peak_transient);
    store.release(0);
  });
}

TEST(StoreBytes, OffloadedMomentsLieInMemoryOfTheHost) {
  const Index index = odd_model(1);
  kernels::Device device = kernels::cpu_device();
  const Store store(index, device, {.offload = true}, nullptr);
  EXPECT_EQ(device.allocated().host, 8 * index.slab_size());
  EXPECT_EQ(store.bytes().host, 8 * index.slab_size());
  EXPECT_EQ(device.allocated().device, store.bytes().total() - store.bytes().host);
}

/// Returns what a step moves, on rank 0.
collective::Traffic traffic_of(const Learner::Options& options) {
  collective::Traffic moved;
  on_ranks(options.ranks, [&](int rank, collective::Communicator* dp) {
    Learner learner(options, rank, dp);
    learner.step();
    dp->barrier();  // waits for operations that have begun
    const collective::Traffic before = dp->traffic();
    learner.step();
    dp->barrier();
    const collective::Traffic after = dp->traffic();
    if (rank == 0)
      moved = {.all_reduce = after.all_reduce - before.all_reduce,
               .reduce_scatter = after.reduce_scatter - before.reduce_scatter,
               .all_gather = after.all_gather - before.all_gather,
               .norm = after.norm - before.norm,
               .padding = after.padding - before.padding};
  });
  return moved;
}

/// Expects equality to a byte: the two counters are each rounded down once.
void expect_bytes(std::uint64_t moved, double formula, const char* what) {
  EXPECT_NEAR(static_cast<double>(moved), formula, 1.0) << what;
}

TEST(StoreTraffic, IsTheFormulasPayloadWithPaddingApart) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (int micro : {1, 3})
      for (int zero = 0; zero <= 3; ++zero) {
        SCOPED_TRACE("zero " + std::to_string(zero) + ", " + std::to_string(ranks) + " ranks, m " +
                     std::to_string(micro));
        const collective::Traffic moved =
            traffic_of({.zero = zero, .ranks = ranks, .micro = micro});
        const double once = 4.0 * static_cast<double>(kParameters) * (ranks - 1) / ranks;
        const double scatters = zero == 0 ? 0 : zero == 1 ? 1 : micro;
        // zero = 3 gathers in forward and in backward of each micro-batch.
        const double gathers = zero == 0 ? 0 : zero == 3 ? 2 * micro : 1;
        expect_bytes(moved.all_reduce, zero == 0 ? 2 * once : 0, "all_reduce");
        expect_bytes(moved.reduce_scatter, scatters * once, "reduce_scatter");
        expect_bytes(moved.all_gather, gathers * once, "all_gather");
        const double padding =
            4.0 * static_cast<double>(slab_of(ranks) - kParameters) * (ranks - 1) / ranks;
        expect_bytes(moved.padding, (zero == 0 ? 2 : scatters + gathers) * padding, "padding");
        const double chunks = static_cast<double>(slab_of(ranks)) / 1024;
        expect_bytes(moved.norm, zero == 0 ? 0 : 8 * chunks * (ranks - 1) / ranks, "norm");
      }
}

TEST(Store, TiedGradientsAreAddedOnceAndCleared) {
  const Index index = odd_model(1);
  kernels::Device device = kernels::cpu_device();
  Store store(index, device, {}, nullptr);
  const TensorId wte = *index.find("wte"), use = index.units()[3].tied[0];
  store.gradients_of(wte).as<float>()[5] = 1;
  store.gradients_of(use).as<float>()[5] = 2;
  store.gradients_of(use).as<float>()[kTied - 1] = 4;
  store.add_tied(1);
  EXPECT_EQ(store.gradients_of(wte).as<float>()[5], 1) << "another unit's";
  store.add_tied(0);
  EXPECT_EQ(store.gradients_of(wte).as<float>()[5], 3);
  EXPECT_EQ(store.gradients_of(wte).as<float>()[kTied - 1], 4);
  store.add_tied(0);
  EXPECT_EQ(store.gradients_of(wte).as<float>()[5], 3);
  EXPECT_EQ(store.weights_of(use).data, store.weights_of(wte).data);
  EXPECT_EQ(store.weights_of(use).shape, (Shape{65, 33}));
}

TEST(Store, AUnitThatWasNotReducedInAStepHasAGradientOfZero) {
  on_ranks(2, [&](int rank, collective::Communicator* dp) {
    const Index index = odd_model(2);
    kernels::Device device = kernels::cpu_device();
    Store store(index, device, {.zero = 2, .dp_rank = rank}, dp);
    const auto largest = [&] {
      const Store::Owned owned = store.owned(1);
      return *std::max_element(owned.gradients, owned.gradients + owned.range.count);
    };
    const auto add_one = [&] {
      store.begin_gradients(1);
      auto* slab = static_cast<float*>(store.gradients(1).data);
      std::fill(slab, slab + index.units()[1].size, 1.0f);
      store.reduce(1);
      store.finish_reduce(1);
    };
    store.zero_gradients();
    add_one();
    add_one();
    EXPECT_EQ(largest(), 4) << "two micro-batches of two ranks";
    store.zero_gradients();
    EXPECT_EQ(largest(), 0);
    add_one();
    EXPECT_EQ(largest(), 2) << "it adds to what owned() gave out";
  });
}

TEST(Store, WholeValuesGoOutAndComeBackInAnotherLayout) {
  const auto tensor = [](const Index& index, const std::vector<float>& slab, TensorId id) {
    const auto first = slab.begin() + index[id].offset;
    return std::vector<float>(first, first + index[id].local.count());
  };
  std::vector<float> saved;
  on_ranks(3, [&](int rank, collective::Communicator* dp) {
    Learner learner({.zero = 3, .ranks = 3}, rank, dp);
    learner.step();
    std::vector<float> slab(static_cast<std::size_t>(learner.index().units()[1].size));
    learner.store().read_whole(1, Part::second_moment, slab);
    if (rank == 0) saved = tensor(learner.index(), slab, *learner.index().find("h.0.weight"));
  });
  EXPECT_GT(saved.at(0), 0);
  on_ranks(2, [&](int rank, collective::Communicator* dp) {
    Learner learner({.zero = 1, .ranks = 2}, rank, dp);
    const Index& index = learner.index();
    const TensorId id = *index.find("h.0.weight");
    std::vector<float> slab(static_cast<std::size_t>(index.units()[1].size));
    std::copy(saved.begin(), saved.end(), slab.begin() + index[id].offset);
    learner.store().write_whole(1, Part::second_moment, slab);
    std::fill(slab.begin(), slab.end(), -1.0f);
    learner.store().read_whole(1, Part::second_moment, slab);
    EXPECT_EQ(tensor(index, slab, id), saved);
  });
}

TEST(Store, RefusesWhatDoesNotFitTogether) {
  kernels::Device device = kernels::cpu_device();
  const Index one = odd_model(1), two = odd_model(2);
  Index open;
  open.begin_unit("u");
  EXPECT_THROW(Store(open, device, {}, nullptr), InvalidArgument);
  EXPECT_THROW(Store(two, device, {}, nullptr), InvalidArgument);
  EXPECT_THROW(Store(one, device, {.dp_rank = 1}, nullptr), InvalidArgument);
  EXPECT_THROW(Store(one, device, {.zero = 4}, nullptr), InvalidArgument);
  EXPECT_THROW(Store(one, device, {.moments = 3}, nullptr), InvalidArgument);
  const auto group = collective::local_group(2);
  EXPECT_THROW(Store(two, device, {.dp_rank = 0}, group[1].get()), InvalidArgument);
  EXPECT_THROW(Store(one, device, {}, group[0].get()), InvalidArgument);
  Store store(two, device, {.zero = 2}, group[0].get());
  EXPECT_THROW(store.gradients(0), InvalidArgument) << "they have not begun";
  EXPECT_EQ(device.allocated().device, store.bytes().total()) << "what was refused holds nothing";
}

TEST(Store, AnErrorOfTheGroupIsThrownWhereItsResultIsNeeded) {
  const auto group = collective::local_group(2, {.progress = collective::Progress::thread});
  const Index index = odd_model(2);
  kernels::Device device = kernels::cpu_device();
  Store store(index, device, {.zero = 3}, group[0].get());
  const kernels::Event begun = store.gather(0);
  store.begin_gradients(1);
  store.reduce(1);
  group[1]->abort("the other one left");
  EXPECT_THROW(store.weights(0), Cancelled);
  EXPECT_TRUE(begun.has_happened());
  EXPECT_THROW(store.finish_reduce(1), Cancelled);
  EXPECT_NO_THROW(store.release(0));
}

TEST(OptimizerOptions, AreRefusedByMember) {
  const auto message = [](const OptimizerOptions& options) -> std::string {
    try {
      check(options);
    } catch (const InvalidArgument& error) {
      return error.message();
    }
    return "none";
  };
  EXPECT_EQ(message({}), "none");
  EXPECT_EQ(message({.kind = OptimizerKind::sgd, .momentum = 0.9f, .nesterov = true}), "none");
  EXPECT_NE(message({.rate = -1}).find(".rate is -1"), std::string::npos);
  EXPECT_NE(message({.rate = NAN}).find(".rate"), std::string::npos);
  EXPECT_NE(message({.beta1 = 1}).find(".beta1"), std::string::npos);
  EXPECT_NE(message({.beta2 = -0.1f}).find(".beta2"), std::string::npos);
  EXPECT_NE(message({.epsilon = 0}).find(".epsilon"), std::string::npos);
  EXPECT_NE(message({.momentum = 1}).find(".momentum"), std::string::npos);
  EXPECT_NE(message({.nesterov = true}).find(".nesterov"), std::string::npos);
  EXPECT_NE(message({.decay = INFINITY}).find(".decay"), std::string::npos);
  EXPECT_NE(message({.max_norm = -1}).find(".max_norm"), std::string::npos);
}

}  // namespace
}  // namespace troupe::train::store_test
