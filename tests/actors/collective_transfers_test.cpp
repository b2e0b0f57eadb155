// Tests sends, receives, groups of transfers, and splits: right data in the right order, and an
// error in place of an endless wait.
#include "tests/actors/contract.hpp"

#include "troupe/runtime/base/clock.hpp"

#include <atomic>

namespace troupe::collective {
namespace {

using std::chrono::milliseconds;

class Transfer : public OnEveryBackEnd {};

std::vector<float> message(int number, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(100000 * number) + static_cast<float>(i % 9973);
  return x;
}

// The messages are longer than a pair's ring, and go both ways at once.
TEST_P(Transfer, NeighboursExchangeLongMessages) {
  for (const int size : {1, 2, 3, 5}) {
    Group group = make(size);
    expect_none(on_all(group, [&](Communicator& c) {
      const int right = (c.rank() + 1) % size, left = (c.rank() + size - 1) % size;
      for (const std::size_t n : {0u, 1u, 16384u, 100001u}) {
        const std::vector<float> out = message(c.rank(), n);
        std::vector<float> in(n);
        c.exchange(out, right, in, left).wait();
        EXPECT_EQ(in, message(left, n));
      }
    }));
  }
}

TEST_P(Transfer, MessagesOfAPairKeepTheirOrder) {
  Group group = make(2);
  expect_none(on_all(group, [](Communicator& c) {
    for (int i = 0; i < 300; ++i) {
      const auto n = static_cast<std::size_t>(i * 37 % 5000);
      if (c.rank() == 0) {
        c.send(message(i, n), 1).wait();
        continue;
      }
      std::vector<float> in(n);
      c.receive(in, 0).wait();
      ASSERT_EQ(in, message(i, n)) << i;
    }
  }));
}

// As in a 1F1B pipeline, activations go up while gradients come down, several of each in one
// group.
TEST_P(Transfer, AGroupMovesAllItsMessagesSideBySide) {
  constexpr std::size_t n = 50000;
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    for (int round = 0; round < 5; ++round) {
      std::vector<std::vector<float>> out, in;
      for (int i = 0; i < 4; ++i) out.push_back(message(10 * c.rank() + i, n));
      in.assign(4, std::vector<float>(n));
      c.group([&](Transfers& t) {
         // All sends come before all receives, and the transfers of a pair are in order.
         for (std::size_t i = 0; i < 2; ++i) t.send(out[i], (c.rank() + 1) % 3);
         for (std::size_t i = 2; i < 4; ++i) t.send(out[i], (c.rank() + 2) % 3);
         for (std::size_t i = 0; i < 2; ++i) t.receive(in[i], (c.rank() + 2) % 3);
         for (std::size_t i = 2; i < 4; ++i) t.receive(in[i], (c.rank() + 1) % 3);
       }).wait();
      for (int i = 0; i < 4; ++i) {
        const int from = (c.rank() + (i < 2 ? 2 : 1)) % 3;
        ASSERT_EQ(in[static_cast<std::size_t>(i)], message(10 * from + i, n)) << i;
      }
    }
    c.group([](Transfers&) {}).wait();
  }));
}

TEST_P(Transfer, ShortMessagesAndCollectivesAlternate) {
  Group group = make(3);
  expect_none(on_all(group, [](Communicator& c) {
    for (int i = 0; i < 200; ++i) {
      std::vector<std::int64_t> x = {c.rank() + i}, y(1);
      c.exchange(x, (c.rank() + 1) % 3, y, (c.rank() + 2) % 3).wait();
      ASSERT_EQ(y[0], (c.rank() + 2) % 3 + i);
      c.all_reduce(x).wait();
      ASSERT_EQ(x[0], 3 + 3 * i);
    }
  }));
}

TEST_P(Transfer, MessagesThatDifferEndTheGroup) {
  Group group = make(3);
  const auto errors = on_all(group, [](Communicator& c) {
    std::vector<float> x(c.rank() == 0 ? 10 : 11);
    if (c.rank() == 0) c.send(x, 1).wait();
    if (c.rank() == 1) c.receive(x, 0).wait();
    c.barrier();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 0 sends 10 x f32 where it should send 11 x f32 to rank 1"),
              std::string::npos)
        << error;
  Group other = make(2);
  const auto types = on_all(other, [](Communicator& c) {
    std::vector<float> x(4);
    std::vector<std::int32_t> y(4);
    if (c.rank() == 0) c.send(x, 1).wait();
    if (c.rank() == 1) c.receive(y, 0).wait();
    c.barrier();
  });
  for (const std::string& error : types) EXPECT_EQ(error.find("invalid_argument: "), 0u) << error;
}

TEST_P(Transfer, AMissingPeerIsNamedInTime) {
  for (const bool sends : {true, false}) {
    Group group = make(3, milliseconds(100));
    const Time start = steady_now();
    const auto errors = on_all(group, [&](Communicator& c) {
      std::vector<float> x(100000);
      if (c.rank() != 0) return;
      if (sends)
        c.send(x, 2).wait();
      else
        c.receive(x, 2).wait();
    });
    EXPECT_LT(steady_now() - start, std::chrono::seconds(10));
    EXPECT_EQ(errors[0].find("timed_out: "), 0u) << errors[0];
    EXPECT_NE(errors[0].find("rank 2 did not arrive within 100 ms"), std::string::npos)
        << errors[0];
  }
}

TEST_P(Transfer, WhatWasSentBeforeTheSenderLeftArrives) {
  for (int round = 0; round < 20; ++round) {
    Group group = make(2);
    const auto errors = on_all(group, [&](Communicator& c) {
      std::vector<float> x = message(c.rank(), 1000);
      if (c.rank() == 0) {
        c.send(x, 1).wait();
        group[0].reset();
        return;
      }
      c.receive(x, 0).wait();
      EXPECT_EQ(x, message(0, 1000));
      c.receive(x, 0).wait();
    });
    EXPECT_NE(errors[1].find("rank 0 left the group"), std::string::npos) << errors[1];
  }
}

TEST_P(Transfer, AbortEndsTheWaitForAMessage) {
  Group group = make(2);
  const auto errors = on_all(group, [](Communicator& c) {
    std::vector<float> x(10);
    if (c.rank() == 1) return c.abort("enough");
    c.receive(x, 1).wait();
  });
  EXPECT_NE(errors[0].find("rank 1 ended the group: enough"), std::string::npos) << errors[0];
}

class Splits : public OnEveryBackEnd {};

TEST_P(Splits, RowsAndColumnsOfAMesh) {
  Group group = make(6);
  expect_none(on_all(group, [](Communicator& c) {
    const int row = c.rank() / 3, column = c.rank() % 3;
    const auto rows = c.split(row, column), columns = c.split(column, row);
    ASSERT_EQ(rows->size(), 3);
    ASSERT_EQ(rows->rank(), column);
    ASSERT_EQ(columns->size(), 2);
    ASSERT_EQ(columns->rank(), row);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x(2000, static_cast<float>(c.rank())), y = x, in(10);
      rows->all_reduce(x).wait();
      columns->all_reduce(y).wait();
      EXPECT_EQ(x[1999], static_cast<float>(9 * row + 3));
      EXPECT_EQ(y[1999], static_cast<float>(2 * column + 3));
      const std::vector<float> out(10, static_cast<float>(c.rank()));
      rows->exchange(out, (column + 1) % 3, in, (column + 2) % 3).wait();
      EXPECT_EQ(in[9], static_cast<float>(3 * row + (column + 2) % 3));
      std::vector<float> all = {1};
      c.all_reduce(all).wait();
      EXPECT_EQ(all[0], 6);
    }
  }));
}

TEST_P(Splits, KeysOrderAndNegativeColorsStayOut) {
  Group group = make(5);
  expect_none(on_all(group, [](Communicator& c) {
    const auto part = c.split(c.rank() == 2 ? -1 : 7, -c.rank());
    if (c.rank() == 2) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    ASSERT_EQ(part->size(), 4);
    std::vector<std::int32_t> mine = {c.rank()}, all(4);
    part->all_gather(mine, all).wait();
    EXPECT_EQ(all, (std::vector<std::int32_t>{4, 3, 1, 0}));
    EXPECT_EQ(all[static_cast<std::size_t>(part->rank())], c.rank());
  }));
}

TEST_P(Splits, SplitsOfSplitsAndTheirNumber) {
  Group group = make(4);
  expect_none(on_all(group, [spread = GetParam().spread](Communicator& c) {
    const auto half = c.split(c.rank() / 2, 0, Progress::thread);
    const auto one = half->split(half->rank(), 0);
    EXPECT_EQ(one->size(), 1);
    one->barrier();
    std::vector<float> x = {static_cast<float>(c.rank())};
    half->all_reduce(x).wait();
    EXPECT_EQ(x[0], c.rank() < 2 ? 1 : 5);
    // Eight groups in all: one for the halves, and one for each half's own split.
    c.barrier();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(c.split(0, 0)->size(), 4);
    // Each node counts by itself; a node that has only one of the halves has one split left.
    try {
      if (spread) static_cast<void>(c.split(0, 0));
    } catch (const NoSpace&) {
    }
    EXPECT_THROW(static_cast<void>(c.split(0, 0)), NoSpace);
    c.barrier();
  }));
}

// Ranks 0 and 1 are in a split that fails. Ranks 2 and 3 are in another split or in the whole
// group.
TEST_P(Splits, AnErrorInOneEndsTheWholeGroupAndAllOthers) {
  Group group = make(4);
  const auto errors = on_all(group, [](Communicator& c) {
    const auto half = c.split(c.rank() / 2, 0);
    if (c.rank() == 0) half->set_timeout(milliseconds(100));
    std::vector<float> x(1);
    if (c.rank() == 0) half->barrier();
    if (c.rank() == 2) half->receive(x, 1).wait();
    c.barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.find("timed_out: "), 0u) << error;
    EXPECT_NE(error.find("rank 1 of a split (1 of the whole) did not arrive within 100 ms"),
              std::string::npos)
        << error;
  }
}

TEST_P(Splits, AbortOfTheWholeGroupEndsItsSplits) {
  Group group = make(4);
  const auto errors = on_all(group, [](Communicator& c) {
    const auto half = c.split(c.rank() / 2, 0);
    if (c.rank() == 3) return c.abort("enough");
    half->barrier();
    half->barrier();
    c.barrier();
  });
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_NE(errors[r].find("rank 3 ended the group: enough"), std::string::npos) << errors[r];
}

INSTANTIATE_TEST_SUITE_P(Collective, Transfer, kBackEnds, name_of_back_end);
INSTANTIATE_TEST_SUITE_P(Collective, Splits, kBackEnds, name_of_back_end);

/// Tests operations that run on a thread of the communicator.
class Asynchronous : public OnEveryBackEnd {};

TEST_P(Asynchronous, ACallReturnsBeforeTheOthersCome) {
  Group group = make(2);
  std::vector<float> x = {1, 2}, y = {3, 4};
  Work first = group[0]->all_reduce(x), second = group[0]->all_reduce(x, Reduce::mean);
  EXPECT_FALSE(first.is_done());
  EXPECT_FALSE(second.done().has_happened());
  Work other = group[1]->all_reduce(y);
  first.wait();
  other.wait();
  EXPECT_EQ(y, (std::vector<float>{4, 6}));
  EXPECT_FALSE(second.is_done());
  group[1]->all_reduce(y, Reduce::mean).wait();
  second.wait();
  second.wait();  // a second wait gives the same
  EXPECT_TRUE(second.done().has_happened());
  EXPECT_EQ(x, (std::vector<float>{4, 6}));
}

TEST_P(Asynchronous, AnEventHoldsAnOperationBack) {
  Group group = make(2), gate = make(2);
  std::vector<float> x = {1}, y = {1};
  gate[0]->set_timeout(std::chrono::seconds(60));
  const Work opened = gate[0]->receive(x, 1);
  const Work mine = group[0]->all_reduce(x, Reduce::sum, {.after = opened.done()});
  const Work other = group[1]->all_reduce(y);
  EXPECT_FALSE(mine.done().wait(steady_now() + milliseconds(20)));
  std::vector<float> five = {5};
  gate[1]->send(five, 0).wait();
  EXPECT_TRUE(other.done().wait(steady_now() + std::chrono::seconds(20)));
  EXPECT_EQ(y[0], 6);
}

TEST_P(Asynchronous, AnInputThatDoesNotComeEndsTheGroupInTime) {
  Group group = make(2, milliseconds(100)), gate = make(2);
  std::vector<float> x = {1};
  const Work never = gate[0]->receive(x, 1);
  const auto errors = on_all(group, [&](Communicator& c) {
    std::vector<float> y = {1};
    if (c.rank() == 1) c.set_timeout(std::chrono::seconds(20));
    c.all_reduce(y, Reduce::sum, {.after = c.rank() == 0 ? never.done() : Event()}).wait();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("the input of rank 0 was not ready within 100 ms"), std::string::npos)
        << error;
  gate[0]->abort("over");
}

TEST_P(Asynchronous, ADeadlineEndsTheWaitAndNamesTheMissing) {
  if (GetParam().spread) GTEST_SKIP() << "a rank behind the missing one has only its own deadline";
  Group group = make(3, std::chrono::seconds(60));
  const Time start = steady_now();
  const auto errors = on_all(group, [&](Communicator& c) {
    std::vector<float> x(10);
    if (c.rank() == 1) return;
    Work first = c.all_reduce(x), second = c.all_reduce(x);
    if (c.rank() == 0)
      second.wait(steady_now() + milliseconds(100));  // the second operation waits for the first
    else
      second.wait();
  });
  EXPECT_LT(steady_now() - start, std::chrono::seconds(10));
  for (const std::size_t r : {0u, 2u})
    EXPECT_NE(errors[r].find("timed_out: all_reduce #2 on rank " + std::to_string(r) +
                             " of 3: rank 1 did not arrive by the deadline; "),
              std::string::npos)
        << errors[r];
}

TEST_P(Asynchronous, ADeadlineThatIsMetChangesNothing) {
  Group group = make(2);
  expect_none(on_all(group, [](Communicator& c) {
    for (int i = 0; i < 100; ++i) {
      std::vector<float> x = {1};
      Work work = c.all_reduce(x);
      work.wait(steady_now() + std::chrono::seconds(20));
      EXPECT_EQ(x[0], 2);
    }
  }));
}

TEST_P(Asynchronous, LeavingAWorkBehindWaitsForIt) {
  Group group = make(2);
  expect_none(on_all(group, [](Communicator& c) {
    std::vector<float> x(1000, 1);
    {
      const Work work = c.all_reduce(x);
    }
    EXPECT_EQ(x[999], 2);
    Work work = c.all_reduce(x);
    work = c.all_reduce(x);
    work = Work();
    EXPECT_EQ(x[999], 8);
  }));
}

TEST_P(Asynchronous, AnExceptionThatPassesAWorkEndsTheGroup) {
  Group group = make(2, std::chrono::seconds(60));
  const Time start = steady_now();
  std::atomic<bool> passed{false};
  const auto errors = on_all(group, [&](Communicator& c) {
    if (c.rank() == 1) {
      while (!passed && steady_now() - start < std::chrono::seconds(20)) std::this_thread::yield();
      std::vector<float> x(1000);
      c.all_reduce(x).wait();  // over nodes it may still be met
      return c.barrier();
    }
    try {
      std::vector<float> x(1000);
      const Work work = c.all_reduce(x);
      throw InvalidArgument(Code::invalid_argument, "my own");
    } catch (const Error&) {
      passed = true;
      throw;
    }
  });
  EXPECT_LT(steady_now() - start, std::chrono::seconds(20));
  EXPECT_EQ(errors[0], "invalid_argument: my own");
  EXPECT_NE(errors[1].find("rank 0 ended the group: an exception passed"), std::string::npos)
      << errors[1];
}

TEST_P(Asynchronous, ACommunicatorThatGoesEndsItsOperations) {
  Group group = make(2, std::chrono::seconds(60));
  std::vector<float> x(10);
  Work work = group[0]->all_reduce(x);
  group[0].reset();
  EXPECT_TRUE(work.is_done());
  EXPECT_THROW(work.wait(), Cancelled);
  EXPECT_THROW(group[1]->barrier(), Cancelled);
}

INSTANTIATE_TEST_SUITE_P(Collective, Asynchronous, kThreadedBackEnds, name_of_back_end);

}  // namespace
}  // namespace troupe::collective
