// One contract suite for every back end: right sums, equal bits, and an error instead of a wait for
// ever.
#include "troupe/actors/collective/local.hpp"
#include "troupe/actors/collective/shm.hpp"

#include "troupe/runtime/base/clock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

namespace troupe::collective {
namespace {

using std::chrono::milliseconds;
using Group = std::vector<std::unique_ptr<Communicator>>;

struct BackEnd {
  const char* name;
  Group (*make)(int size, Bytes slot, Duration timeout);
};

Group make_local(int size, Bytes slot, Duration timeout) {
  return local_group(size, {.timeout = timeout, .slot = slot});
}
Group make_shm(int size, Bytes slot, Duration timeout) {
  const Fd memory = create_shm_group({.size = size, .generation = 3, .slot = slot});
  Group group;
  for (int rank = 0; rank < size; ++rank) group.push_back(join_shm_group(memory, rank, 3, timeout));
  return group;
}

class Contract : public testing::TestWithParam<BackEnd> {
 protected:
  static constexpr Bytes kSlot{4096};  // small, so that messages go in pieces
  Group make(int size, Duration timeout = std::chrono::seconds(20)) {
    return GetParam().make(size, kSlot, timeout);
  }
  /// Runs f(rank's communicator) on a thread per rank; the first exception text per rank.
  static std::vector<std::string> on_all(Group& group,
                                         const std::function<void(Communicator&)>& f) {
    std::vector<std::string> errors(group.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < group.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          f(*group[r]);
        } catch (const Error& e) {
          errors[r] = std::string(name_of(e.code())) + ": " + e.message();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  static void expect_none(const std::vector<std::string>& errors) {
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
};

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
        c.allreduce(std::span<float>(x));
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], total(size, i)) << i;
      }
    }));
  }
}

TEST_P(Contract, MeanDivides) {
  Group group = make(4);
  expect_none(on_all(group, [](Communicator& c) {
    std::vector<double> x = {static_cast<double>(c.rank()), 8};
    c.allreduce(std::span<double>(x), Reduce::mean);
    EXPECT_EQ(x, (std::vector<double>{1.5, 8}));
  }));
}

TEST_P(Contract, SumsAreAscendingAndEqualOnAllRanks) {
  for (const int size : {3, 5}) {
    Group group = make(size);
    auto value = [](int rank, std::size_t i) {
      return (rank % 2 ? 1e8f : 1e-3f) * static_cast<float>(rank + 1) + static_cast<float>(i);
    };
    expect_none(on_all(group, [&](Communicator& c) {
      std::vector<float> x(3000);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(c.rank(), i);
      c.allreduce(std::span<float>(x));
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
    c.reduce_scatter(in, part);
    c.all_gather(std::span<const float>(part), std::span<float>(gathered));
    c.allreduce(std::span<float>(reduced));
    EXPECT_EQ(gathered, reduced);
  }));
}

TEST_P(Contract, BroadcastCopiesFromTheRoot) {
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    for (int root = 0; root < 3; ++root) {
      std::vector<float> x = elements(c.rank(), 2500);
      c.broadcast(std::span<float>(x), root);
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
      c.allreduce(std::span<float>(&x, 1));
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
  // one of the two ends the group, the other hears of it or times out itself
  for (const int r : {0, 2})
    EXPECT_NE(errors[static_cast<std::size_t>(r)].find("rank 1 did not arrive within 100 ms"),
              std::string::npos)
        << errors[static_cast<std::size_t>(r)];
}

TEST_P(Contract, AbortEndsAWaitAndAllThatFollows) {
  Group group = make(2);
  const auto errors = on_all(group, [](Communicator& c) {
    if (c.rank() == 1) return c.abort("the pilot is tired");
    try {
      c.barrier();
    } catch (const Cancelled&) {
      c.barrier();  // the group stays over
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
      c.allreduce(std::span<float>(&x, 1));
      EXPECT_EQ(x, 2);
      group[static_cast<std::size_t>(c.rank())].reset();
    }));
  }
}

TEST_P(Contract, DifferentCallsAreAnErrorNotAResult) {
  Group group = make(2);
  const auto errors = on_all(group, [](Communicator& c) {
    std::vector<float> x(c.rank() == 0 ? 10 : 11);
    c.allreduce(std::span<float>(x));
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("made another call"), std::string::npos) << error;
}

TEST_P(Contract, WrongArgumentsAreRefusedBeforeAnythingHappens) {
  Group group = make(2);
  std::vector<float> x(3), y(2);
  EXPECT_THROW(group[0]->reduce_scatter(x, y), InvalidArgument);
  EXPECT_THROW(group[0]->all_gather(std::span<const float>(y), std::span<float>(x)),
               InvalidArgument);
  EXPECT_THROW(group[0]->broadcast(std::span<float>(x), 2), InvalidArgument);
  expect_none(on_all(group, [](Communicator& c) { c.barrier(); }));
}

INSTANTIATE_TEST_SUITE_P(Collective, Contract,
                         testing::Values(BackEnd{"local", make_local}, BackEnd{"shm", make_shm}),
                         [](const auto& info) { return info.param.name; });

TEST(Collective, BackEndsAgreeBitwise) {
  std::vector<std::vector<float>> results;
  for (const auto make : {make_local, make_shm}) {
    Group group = make(4, Bytes{make == make_shm ? 4096u : 1u << 20}, std::chrono::seconds(20));
    std::vector<std::thread> threads;
    results.emplace_back();
    for (auto& c : group)
      threads.emplace_back([&] {
        std::vector<float> x(4321);
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = 1.0f / static_cast<float>(i + 1 + 17 * static_cast<std::size_t>(c->rank()));
        c->allreduce(std::span<float>(x), Reduce::mean);
        if (c->rank() == 0) results.back() = x;
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace troupe::collective
