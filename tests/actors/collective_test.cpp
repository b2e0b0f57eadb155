// Runs one suite of contracts on every back end of the collectives: right sums, equal bits, and
// an error in place of an endless wait.
#include "tests/actors/contract.hpp"

#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>

namespace troupe::collective {
namespace {

using std::chrono::milliseconds;

class Contract : public OnEveryBackEnd {};

// Integers up to 2^24 add exactly in any order, so every wrong, lost or doubled element shows.
float element(int rank, std::size_t i) {
  return static_cast<float>(1000 * rank + static_cast<int>(i % 997));
}
std::vector<float> elements(int rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = element(rank, i);
  return x;
}
float total(int size, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += element(r, i);
  return sum;
}

TEST_P(Contract, AllreduceAddsExactly) {
  for (const int size : {1, 2, 3, 4, 5}) {
    Group group = make(size);
    expect_none(on_all(group, [&](Communicator& c) {
      for (const std::size_t n : {0u, 1u, 31u, 1024u, 1025u, 5000u}) {
        std::vector<float> x = elements(c.rank(), n);
        c.all_reduce(x).wait();
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], total(size, i)) << i;
      }
    }));
  }
}

TEST_P(Contract, MeanDivides) {
  Group group = make(4);
  expect_none(on_all(group, [](Communicator& c) {
    std::vector<double> x = {static_cast<double>(c.rank()), 8};
    c.all_reduce(x, Reduce::mean).wait();
    EXPECT_EQ(x, (std::vector<double>{1.5, 8}));
  }));
}

TEST_P(Contract, SumsAreAscendingAndEqualOnAllRanks) {
  if (!GetParam().ordered) GTEST_SKIP() << "its sums have an order of their own";
  for (const int size : {3, 5}) {
    Group group = make(size);
    auto value = [](int rank, std::size_t i) {
      return (rank % 2 ? 1e8f : 1e-3f) * static_cast<float>(rank + 1) + static_cast<float>(i);
    };
    expect_none(on_all(group, [&](Communicator& c) {
      std::vector<float> x(3000);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(c.rank(), i);
      c.all_reduce(x).wait();
      for (std::size_t i = 0; i < x.size(); ++i) {
        float expected = value(0, i);
        for (int r = 1; r < size; ++r) expected += value(r, i);
        ASSERT_EQ(x[i], expected) << i;
      }
    }));
  }
}

TEST_P(Contract, ReduceScatterThenAllGatherIsAllreduce) {
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    const std::vector<float> in = elements(c.rank(), 3 * 1111);
    std::vector<float> part(1111), gathered(3 * 1111), reduced = in;
    c.reduce_scatter(in, part).wait();
    c.all_gather(std::span<const float>(part), std::span<float>(gathered)).wait();
    c.all_reduce(reduced).wait();
    EXPECT_EQ(gathered, reduced);
  }));
}

TEST_P(Contract, BroadcastCopiesFromTheRoot) {
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    for (int root = 0; root < 3; ++root) {
      std::vector<float> x = elements(c.rank(), 2500);
      c.broadcast(std::span<float>(x), root).wait();
      EXPECT_EQ(x, elements(root, 2500));
    }
  }));
}

TEST_P(Contract, BarrierHoldsEveryoneBack) {
  constexpr int size = 4;
  Group group = make(size);
  std::atomic<int> before{0};
  expect_none(on_all(group, [&](Communicator& c) {
    for (int round = 1; round <= 50; ++round) {
      before.fetch_add(1);
      c.barrier();
      EXPECT_GE(before.load(), round * size);
      c.barrier();
    }
  }));
}

TEST_P(Contract, ManySmallOperationsInARow) {
  Group group = make(2);
  expect_none(on_all(group, [](Communicator& c) {
    for (int i = 0; i < 500; ++i) {
      float x = static_cast<float>(c.rank() + i);
      c.all_reduce(std::span<float>(&x, 1)).wait();
      ASSERT_EQ(x, static_cast<float>(2 * i + 1));
    }
  }));
}

TEST_P(Contract, AMissingRankIsNamedInTime) {
  Group group = make(3, milliseconds(100));
  const Time start = steady_now();
  const auto errors = on_all(group, [](Communicator& c) {
    if (c.rank() != 1) c.barrier();
  });
  EXPECT_LT(steady_now() - start, std::chrono::seconds(10));
  for (const int r : {0, 2})
    EXPECT_NE(errors[static_cast<std::size_t>(r)].find("rank 1 did not arrive"), std::string::npos)
        << errors[static_cast<std::size_t>(r)];
}

TEST_P(Contract, TimeoutsAtTheirEnds) {
  for (const Duration endless : {Duration::max(), Duration::max() - Duration(1)}) {
    Group group = make(2, endless);
    expect_none(on_all(group, [](Communicator& c) { c.barrier(); }));
    group[0]->set_timeout(Duration(1));
    group[0]->set_timeout(endless);
    const auto errors = on_all(group, [](Communicator& c) {
      if (c.rank() == 1) return c.abort("enough");
      c.barrier();
    });
    EXPECT_NE(errors[0].find("enough"), std::string::npos) << errors[0];
  }
  for (const Duration none : {Duration::zero(), Duration(-1), Duration::min()}) {
    EXPECT_THROW(make(2, none), InvalidArgument);
    Group group = make(1);
    EXPECT_THROW(group[0]->set_timeout(none), InvalidArgument);
  }
}

/// Waits until these ranks are inside operation `n`.
void await_inside(const Communicator& c, const std::vector<std::size_t>& ranks, std::uint64_t n) {
  const Time limit = steady_now() + std::chrono::seconds(20);
  const auto there = [&] {
    const auto all = c.progress();
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](std::size_t r) { return all[r].inside && all[r].sequence == n; });
  };
  while (!there() && steady_now() < limit) std::this_thread::yield();
}

TEST_P(Contract, AllRanksEndWithTheSameErrorThatSaysHowFarEachIs) {
  if (GetParam().spread) GTEST_SKIP() << "a head sees the progress of its neighbours";
  Group group = make(4, std::chrono::seconds(60));
  const Time start = steady_now();
  std::atomic<bool> over{false};
  const auto errors = on_all(group, [&](Communicator& c) {
    std::vector<float> x(3000);
    for (int i = 0; i < 3; ++i) c.all_reduce(x).wait();
    if (c.rank() == 0) {
      await_inside(c, {1, 3}, 4);
      const auto is_after_three = [&] {
        const RankProgress two = c.progress()[2];
        return !two.inside && two.sequence == 3;
      };
      while (!is_after_three() && steady_now() - start < std::chrono::seconds(20))
        std::this_thread::yield();
      c.set_timeout(milliseconds(500));  // the others may not know yet which ranks are inside
    }
    if (c.rank() == 2) {
      while (!over && steady_now() - start < std::chrono::seconds(20)) std::this_thread::yield();
    }
    const struct Over {
      std::atomic<bool>& over;
      ~Over() { over = true; }
    } at_end{over};
    c.barrier();
  });
  EXPECT_LT(steady_now() - start, std::chrono::seconds(20));
  const std::string verdict =
      " of 4: rank 2 did not arrive within 500 ms; ranks 0, 1, 3 in barrier #4; rank 2 after "
      "all_reduce #3";
  for (std::size_t r = 0; r < 4; ++r)
    EXPECT_EQ(errors[r], "timed_out: barrier #4 on rank " + std::to_string(r) + verdict);
}

// The skipped call has another size than the call that the rank makes in its place.
TEST_P(Contract, TheRankThatSkipsACallIsNamedFiftyTimesOutOfFifty) {
  if (!GetParam().meets) GTEST_SKIP() << "devices of other nodes are compared later";
  for (int round = 0; round < 50; ++round) {
    const int size = 3 + round % 3, culprit = round % size, skipped = 1 + round % 4;
    Group group = make(size);
    const auto errors = on_all(group, [&](Communicator& c) {
      for (int i = 1; i <= 6; ++i) {
        std::vector<float> x(static_cast<std::size_t>(i));
        if (c.rank() != culprit || i != skipped) c.all_reduce(x).wait();
      }
    });
    // Two heads cannot tell which of them is right, so the error then names both.
    const std::string name = "rank " + std::to_string(culprit);
    const std::string expected = (GetParam().spread ? "" : ": " + name) +
                                 " made another call or gave another size than " +
                                 (GetParam().spread ? "" : "the others; ");
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(name), std::string::npos) << error;
      EXPECT_EQ(error.find("invalid_argument: all_reduce #" + std::to_string(skipped)), 0) << error;
      EXPECT_NE(error.find(expected), std::string::npos) << error;
    }
  }
}

// The last rank arrives just as the first one times out. Both must report the same of the
// operation.
TEST_P(Contract, ARankThatComesAtTheLastMomentCountsForAllOrForNone) {
  if (GetParam().spread) GTEST_SKIP() << "messages cannot decide that for both of their ends";
  int met = 0, missed = 0;
  const bool makes_threads = GetParam().progress == Progress::thread || !GetParam().ordered;
  const int rounds = makes_threads ? 300 : 1500;
  for (int round = 0; round < rounds; ++round) {
    Group group = make(2, std::chrono::microseconds(200));
    const Time start = steady_now();
    const Duration delay = std::chrono::microseconds(round % 300);
    const std::vector<std::string> errors = on_all(group, [&](Communicator& me) {
      while (me.rank() == 1 && steady_now() < start + delay) {
      }
      me.barrier();
    });
    ASSERT_EQ(errors[0].empty(), errors[1].empty())
        << "round " << round << ": '" << errors[0] << "' and '" << errors[1] << "'";
    ++(errors[0].empty() ? met : missed);
  }
  RecordProperty("met", met);
  RecordProperty("missed", missed);
  EXPECT_GT(met, 0);
}

TEST_P(Contract, AbortEndsAWaitAndAllThatFollows) {
  Group group = make(2);
  const auto errors = on_all(group, [](Communicator& c) {
    if (c.rank() == 1) return c.abort("the pilot is tired");
    try {
      c.barrier();
    } catch (const Cancelled&) {
      c.barrier();  // the group stays ended
    }
  });
  EXPECT_EQ(errors[0],
            "cancelled: barrier #2 on rank 0 of 2: rank 1 ended the group: the pilot is tired");
}

TEST_P(Contract, ARankThatLeavesIsNoticed) {
  Group group = make(2);
  const auto errors = on_all(group, [&](Communicator& c) {
    if (c.rank() == 0) return c.barrier();
    group[1].reset();
  });
  EXPECT_NE(errors[0].find("rank 1 left the group"), std::string::npos) << errors[0];
}

TEST_P(Contract, LeavingAfterTheLastOperationIsFine) {
  for (int round = 0; round < 50; ++round) {
    Group group = make(2);
    expect_none(on_all(group, [&](Communicator& c) {
      float x = 1;
      c.all_reduce(std::span<float>(&x, 1)).wait();
      EXPECT_EQ(x, 2);
      group[static_cast<std::size_t>(c.rank())].reset();
    }));
  }
}

TEST_P(Contract, DifferentCallsAreAnErrorNotAResult) {
  Group group = make(2);
  const auto errors = on_all(group, [](Communicator& c) {
    std::vector<float> x(c.rank() == 0 ? 10 : 11);
    c.all_reduce(x).wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("made another call"), std::string::npos) << error;
}

TEST_P(Contract, WrongArgumentsAreRefusedBeforeAnythingHappens) {
  Group group = make(2);
  std::vector<float> x(3), y(2);
  std::vector<double> wide(1);
  std::vector<std::int64_t> counts(1);
  Communicator& c = *group[0];
  EXPECT_THROW(c.reduce_scatter(x, y).wait(), InvalidArgument);
  EXPECT_THROW(c.all_gather(y, x).wait(), InvalidArgument);
  EXPECT_THROW(c.reduce_scatter(y, wide).wait(), InvalidArgument);
  EXPECT_THROW(c.broadcast(x, 2).wait(), InvalidArgument);
  EXPECT_THROW(c.send(x, 2).wait(), InvalidArgument);
  EXPECT_THROW(c.receive(x, -1).wait(), InvalidArgument);
  EXPECT_THROW(c.all_reduce(counts, Reduce::mean).wait(), InvalidArgument);
  EXPECT_THROW(c.all_reduce(Buffer{x.data(), DType::f32, -1}).wait(), InvalidArgument);
  expect_none(on_all(group, [](Communicator& c) { c.barrier(); }));
}

// One rank's thread flushes subnormal numbers, and the other's does not.
TEST_P(Contract, TheThreadsModesChangeNoBit) {
  Group group = make(2);
  std::vector<float> sums(2);
  expect_none(on_all(group, [&](Communicator& c) {
    std::optional<kernels::FlushDenormals> flush;
    if (c.rank() == 0) flush.emplace();
    std::vector<float> x = {1e-39f};
    c.all_reduce(x).wait();
    sums[static_cast<std::size_t>(c.rank())] = x[0];
  }));
  EXPECT_EQ(sums[0], sums[1]);
}

INSTANTIATE_TEST_SUITE_P(Collective, Contract, kBackEnds, name_of_back_end);

TEST(Collective, ProgressReadsAsASentence) {
  using State = RankProgress::State;
  const auto kind = OperationKind::all_reduce;
  std::vector<RankProgress> ranks(9, {State::joined, 0, false, true, kind, 13});
  ranks[1] = {State::joined, 71, true, false, kind, 12};
  ranks[3] = {State::left, 0, false, false, kind, 12};
  ranks[4] = {};
  ranks[5] = {State::joined, 0, false, false, kind, 0};
  EXPECT_EQ(
      text_of(ranks),
      "ranks 0, 2, 6-8 in all_reduce #13; rank 1 (process 71, stopped) after all_reduce #12; "
      "rank 3 left after all_reduce #12; rank 4 not joined; rank 5 before its first operation");
  EXPECT_EQ(text_of({}), "");
}

TEST(Collective, BackEndsAgreeBitwise) {
  std::vector<std::vector<float>> results;
  for (const auto make : {make_local, make_shm}) {
    Group group = make(4, Bytes{make == make_shm ? 4096u : 1u << 20}, std::chrono::seconds(20),
                       Progress::caller);
    std::vector<std::thread> threads;
    results.emplace_back();
    for (auto& c : group)
      threads.emplace_back([&] {
        std::vector<float> x(4321);
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = 1.0f / static_cast<float>(i + 1 + 17 * static_cast<std::size_t>(c->rank()));
        c->all_reduce(x, Reduce::mean).wait();
        if (c->rank() == 0) results.back() = x;
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace troupe::collective
