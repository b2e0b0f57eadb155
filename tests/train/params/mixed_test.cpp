// Tests stores with 16-bit weights. The master equals the weights of an f32 store, and the
// weights are the rounded master. Bytes and traffic follow the formulas.
#include "tests/train/params/ranks.hpp"
#include "troupe/kernels/half/half.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/params/plan.hpp"

#include <gtest/gtest.h>

namespace troupe::train::mixed_test {
namespace {

using testing::kParameters;
using testing::kTied;
using testing::Learner;
using testing::odd_model;
using testing::on_ranks;

constexpr DType kNarrow[] = {DType::bf16, DType::f16};

std::uint16_t rounded(DType type, float value) {
  return type == DType::bf16 ? kernels::to_bf16(value) : kernels::to_f16(value);
}

/// Returns master, moments and norms of every rank after four steps.
std::vector<std::pair<std::vector<float>, std::vector<double>>> train(
    const Learner::Options& options) {
  std::vector<std::pair<std::vector<float>, std::vector<double>>> ends(
      static_cast<std::size_t>(options.ranks));
  on_ranks(options.ranks, [&](int rank, collective::Communicator* dp) {
    Learner learner(options, rank, dp);
    for (int i = 0; i < 4; ++i) learner.step();
    ends[static_cast<std::size_t>(rank)] = {learner.values(), learner.norms};
  });
  return ends;
}

// The gradients of this test do not depend on weights.
TEST(MixedStoreBits, MasterAndMomentsAreThoseOfAnF32StoreInEveryZero) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int zero = 0; zero <= 3; ++zero)
      for (const bool offload : {false, true}) {
        const Learner::Options wide{.zero = zero, .ranks = ranks, .micro = 2, .offload = offload};
        Learner::Options narrow = wide;
        narrow.weights = ranks % 2 == 0 ? DType::bf16 : DType::f16;
        EXPECT_TRUE(train(narrow) == train(wide)) << "zero " << zero << ", " << ranks << " ranks";
      }
}

TEST(MixedStoreBits, WeightsAreTheMasterRoundedOnEveryRankAfterStartAndSteps) {
  for (const DType type : kNarrow)
    for (int zero = 0; zero <= 3; ++zero)
      on_ranks(3, [&](int rank, collective::Communicator* dp) {
        Learner learner({.zero = zero, .ranks = 3, .weights = type}, rank, dp);
        Store& store = learner.store();
        for (int steps = 0; steps < 3; ++steps) {
          for (int unit = 0; unit < learner.units(); ++unit) {
            store.gather(unit);
            const kernels::Buffer weights = store.weights(unit);
            ASSERT_EQ(weights.type, type);
            std::vector<float> master(static_cast<std::size_t>(weights.count));
            store.read_whole(unit, Part::weights, master);
            const auto* bits = static_cast<const std::uint16_t*>(weights.data);
            for (std::size_t i = 0; i < master.size(); ++i)
              ASSERT_EQ(bits[i], rounded(type, master[i])) << "zero " << zero << ", element " << i;
            store.release(unit);
          }
          learner.step();
        }
      });
}

TEST(MixedStoreBits, WholeWeightsGoOutAndComeBackInF32) {
  for (int zero = 0; zero <= 3; ++zero)
    on_ranks(2, [&](int rank, collective::Communicator* dp) {
      Learner learner({.zero = zero, .ranks = 2, .weights = DType::bf16}, rank, dp);
      Store& store = learner.store();
      const auto size = static_cast<std::size_t>(learner.index().units()[1].size);
      std::vector<float> in(size), out(size);
      for (std::size_t i = 0; i < size; ++i) in[i] = testing::noise(7, i, 0, 0);
      store.write_whole(1, Part::weights, in);
      store.read_whole(1, Part::weights, out);
      EXPECT_EQ(in, out) << "zero " << zero;
      store.gather(1);
      const auto* bits = static_cast<const std::uint16_t*>(store.weights(1).data);
      for (std::size_t i = 0; i < size; ++i)
        ASSERT_EQ(bits[i], kernels::to_bf16(in[i])) << "zero " << zero << ", element " << i;
      store.release(1);
    });
}

TEST(MixedStoreBytes, AreTheFormulasToTheBytePlusStatedPadding) {
  const std::int64_t p = kParameters;
  for (const DType type : kNarrow)
    for (int ranks = 1; ranks <= 4; ++ranks)
      for (int zero = 0; zero <= 3; ++zero)
        on_ranks(ranks, [&](int rank, collective::Communicator* dp) {
          const Index index = odd_model(ranks);
          kernels::Device device = kernels::cpu_device();
          const Store store(index, device, {.zero = zero, .dp_rank = rank, .weights = type}, dp);
          const Store::Bytes bytes = store.bytes();
          const std::int64_t formula = zero == 0   ? 18 * p
                                       : zero == 1 ? 6 * p + 12 * p / ranks
                                       : zero == 2 ? 2 * p + 16 * p / ranks
                                                   : 18 * p / ranks;
          EXPECT_EQ(bytes.total() - bytes.padding, formula + 4 * kTied)
              << "zero " << zero << ", rank " << rank << " of " << ranks;
          const std::int64_t slab = index.slab_size(), share = slab / ranks;
          EXPECT_EQ(bytes.weights, 2 * (zero == 3 ? share : slab));
          EXPECT_EQ(bytes.master, 4 * (zero >= 1 ? share : slab));
          EXPECT_EQ(bytes.gradients, 4 * (zero >= 2 ? share : slab));
          EXPECT_EQ(bytes.moments, 8 * (zero >= 1 ? share : slab));
          EXPECT_EQ(device.allocated().device, bytes.total()) << "the device is the second witness";
        });
}

TEST(MixedStoreBytes, AreThoseOfThePlan) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int zero = 0; zero <= 3; ++zero)
      on_ranks(ranks, [&](int rank, collective::Communicator* dp) {
        const Index index = odd_model(ranks);
        kernels::Device device = kernels::cpu_device();
        const Store store(index, device, {.zero = zero, .dp_rank = rank, .weights = DType::bf16},
                          dp);
        const Store::Bytes have = store.bytes();
        const Store::Bytes want =
            plan(index, {.dp = ranks, .zero = zero, .compute = DType::bf16}, [](const Layout&) {
              return std::int64_t{0};
            }).store;
        EXPECT_EQ(have.weights, want.weights);
        EXPECT_EQ(have.master, want.master);
        EXPECT_EQ(have.gradients, want.gradients);
        EXPECT_EQ(have.moments, want.moments);
        EXPECT_EQ(have.tied, want.tied);
        EXPECT_EQ(have.padding, want.padding);
      });
}

TEST(MixedStoreBytes, OfInitialValuesAreThereWhileTheyAreWritten) {
  on_ranks(2, [&](int rank, collective::Communicator* dp) {
    const Index index = odd_model(2);
    kernels::Device device = kernels::cpu_device();
    Store store(index, device, {.zero = 1, .dp_rank = rank, .weights = DType::f16}, dp);
    const std::int64_t before = store.bytes().total();
    EXPECT_THROW(store.initial_of(*index.find("h.0.weight")), InvalidArgument);
    EXPECT_THROW(store.keep_weights(1), InvalidArgument);
    store.begin_initial(1);
    EXPECT_EQ(store.bytes().total(), before + 4 * index.units()[1].size);
    EXPECT_EQ(device.allocated().device, store.bytes().total());
    EXPECT_THROW(store.initial_of(*index.find("wte")), InvalidArgument) << "another unit's";
    store.keep_weights(1);
    EXPECT_EQ(device.allocated().device, before);
  });
}

TEST(MixedStoreTraffic, GathersHalfOfWhatF32Gathers) {
  for (const int zero : {0, 1, 2, 3})
    on_ranks(2, [&](int rank, collective::Communicator* dp) {
      Learner learner({.zero = zero, .ranks = 2, .micro = 2, .weights = DType::bf16}, rank, dp);
      learner.values();  // waits for the operations under way
      const auto payload = [&] {
        dp->barrier();
        return dp->traffic();
      };
      const collective::Traffic before = payload();
      learner.step();
      for (int unit = 0; unit < learner.units(); ++unit) {
        learner.store().gather(unit);
        if (zero < 3) learner.store().weights(unit);
        learner.store().release(unit);
      }
      const collective::Traffic after = payload();
      const auto half = [](std::int64_t bytes) { return static_cast<std::uint64_t>(bytes / 2); };
      const std::uint64_t gathered = after.all_gather - before.all_gather;
      const std::uint64_t scattered = after.reduce_scatter - before.reduce_scatter;
      EXPECT_EQ(after.all_reduce - before.all_reduce, zero == 0 ? 2 * half(4 * kParameters) : 0);
      EXPECT_EQ(scattered, zero == 0   ? 0
                           : zero == 1 ? half(4 * kParameters)
                                       : 2 * half(4 * kParameters));
      if (zero < 3) {
        EXPECT_EQ(gathered, zero == 0 ? 0 : half(2 * kParameters));
      } else {  // forward, backward and the loop above, without units that stay between passes
        EXPECT_LE(gathered, 5 * half(2 * kParameters));
        EXPECT_GE(gathered, 3 * half(2 * kParameters));
      }
    });
}

TEST(MixedStore, RefusesTypesThatNoWeightsHave) {
  kernels::Device device = kernels::cpu_device();
  const Index index = odd_model(1);
  for (const DType type : {DType::f64, DType::i32, DType::u8})
    EXPECT_THROW(Store(index, device, {.weights = type}, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace troupe::train::mixed_test
