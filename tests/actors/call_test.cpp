// Tests that an error of ranks which make different calls of a program names these calls, wherever
// the ranks wait.
#include "troupe/actors/collective/call.hpp"

#include "tests/actors/contract.hpp"
#include "tests/leeway.hpp"

#include <future>

namespace troupe::collective {
namespace {

using namespace std::chrono_literals;
using Made = Call::Made;

class Calls : public OnEveryBackEnd {
 protected:
  /// Runs f on all ranks. Expects that each ends within a second with this sentence.
  void expect_difference(int ranks, const std::string& difference,
                         const std::function<void(Communicator&)>& f) {
    Group group = make(ranks);
    const Time begun = steady_now();
    for (const std::string& error : on_all(group, f))
      EXPECT_EQ(error, "invalid_argument: " + difference +
                           ": every rank must make the same calls in the same order");
    EXPECT_LT(steady_now() - begun, kLeeway * 1s);
  }
};
INSTANTIATE_TEST_SUITE_P(Collective, Calls, kBackEnds, name_of_back_end);

void add(Communicator& c, int count = 3) {
  std::vector<float> x(static_cast<std::size_t>(count));
  c.all_reduce(x).wait();
}

TEST_P(Calls, ThatDifferAreNamedEvenIfTheirOperationsAreAlike) {
  expect_difference(2, "rank 0 called step() while rank 1 called evaluate()", [](Communicator& c) {
    const Call call(&c, c.rank() == 1 ? "evaluate()" : "step()");
    add(c);
  });
}

TEST_P(Calls, OfOneRankThatDiffersFromManyAreNamed) {
  Group group = make(4);
  for (const std::string& error : on_all(group, [](Communicator& c) {
         const Call call(&c, c.rank() == 2 ? "evaluate()" : "step()");
         add(c);
       }))
    EXPECT_NE(error.find("rank 2 called evaluate()"), std::string::npos) << error;
}

TEST_P(Calls, ThatWaitInDifferentGroupsAreNamed) {
  if (GetParam().spread) GTEST_SKIP() << "nodes compare calls where their operations meet";
  expect_difference(2, "rank 0 called checkpoint() while rank 1 called step()",
                    [](Communicator& c) {
                      const auto split = c.split(0, c.rank());
                      const Call call(&c, c.rank() == 0 ? "checkpoint()" : "step()");
                      add(c.rank() == 0 ? *split : c);
                    });
}

TEST_P(Calls, ThatDifferAreNamedAlsoWhereTheFinderThenEndsTheWholeGroup) {
  if (GetParam().spread) GTEST_SKIP() << "nodes compare calls where their operations meet";
  std::promise<void> ended;
  const std::future<void> has_ended = ended.get_future();
  expect_difference(2, "rank 0 called step() while rank 1 called snapshot()", [&](Communicator& c) {
    const auto split = c.split(0, c.rank());
    const Call call(&c, c.rank() == 0 ? "step()" : "snapshot()");
    if (c.rank() == 0) {
      EXPECT_EQ(has_ended.wait_for(10s), std::future_status::ready);
      return add(c);
    }
    try {
      add(*split);
    } catch (...) {
      c.abort("rank 1 stopped");
      ended.set_value();
      throw;
    }
  });
}

TEST_P(Calls, ThatWaitForAMessageAreNamed) {
  if (GetParam().spread) GTEST_SKIP() << "nodes compare calls where their operations meet";
  expect_difference(2, "rank 0 called predict() while rank 1 called step()", [](Communicator& c) {
    const auto split = c.split(0, c.rank());
    const Call call(&c, c.rank() == 0 ? "predict()" : "step()");
    float x = 0;
    if (c.rank() == 0)
      split->receive(std::span(&x, 1), 1).wait();
    else
      c.barrier();
  });
}

TEST_P(Calls, ThatNeedNoOtherRankAreFoundByTheNextOnes) {
  expect_difference(2, "rank 0 called initialize() while rank 1 called step()",
                    [](Communicator& c) {
                      if (c.rank() == 0) {
                        const Call first(&c, "initialize()");
                      }
                      for (int i = 0; i < 3; ++i) {
                        const Call call(&c, "step()");
                        add(c);
                      }
                    });
}

TEST_P(Calls, InsideOfOthersBelongToTheOuterOne) {
  expect_difference(
      2, "rank 0 called checkpoint() while rank 1 called step()", [](Communicator& c) {
        for (int i = 0; i < 20; ++i) {
          const Call call(&c, "step()");
          const Call inner(&c, c.rank() == 0 ? "left out" : "and this");
          add(c);
        }
        const Call call(&c, c.rank() == 0 ? "checkpoint()" : "step()", Made::by_some_rank);
        const Call inner(&c, "snapshot()");
        add(c);
      });
}

TEST_P(Calls, OfSomeRankAloneAndOfPartsOfTheGroupDoNotCount) {
  Group group = make(4);
  expect_none(on_all(group, [](Communicator& c) {
    const auto half = c.split(c.rank() / 2, c.rank());
    if (c.rank() == 1) {
      const Call alone(&c, "hash()", Made::by_some_rank);
    }
    const Call none(nullptr, "none");
    for (int i = 0; i < 20; ++i) {
      {
        const Call call(half.get(), c.rank() < 2 ? "left" : "right");
        for (int n = c.rank() / 2; n < 2; ++n) add(*half);
      }
      const Call call(&c, "step()");
      add(c);
      add(*half);
    }
  }));
}

TEST_P(Calls, OfOneNameWithDifferentSizesAreAFaultOfTheOperation) {
  Group group = make(2);
  for (const std::string& error : on_all(group, [](Communicator& c) {
         const Call call(&c, "step()");
         add(c, 3 + c.rank());
       }))
    EXPECT_NE(error.find("rank 1 made another call or gave another size"), std::string::npos)
        << error;
}

TEST_P(Calls, WithLongNamesAreCut) {
  expect_difference(2,
                    "rank 0 called a_name_of_24_bytes_or_so while rank 1 called "
                    "another_name_that_is_lon",
                    [](Communicator& c) {
                      const Call call(&c, c.rank() == 0 ? "a_name_of_24_bytes_or_so"
                                                        : "another_name_that_is_longer()");
                      add(c);
                    });
}

}  // namespace
}  // namespace troupe::collective
