// Tests groups over nodes beyond the contracts: the bits of random groups, small buffers, the rules
// of splits, and who is named when a rank is stuck, leaves or aborts.
#include "troupe/actors/collective/nodes/nodes.hpp"

#include "tests/actors/contract.hpp"
#include "tests/leeway.hpp"
#include "troupe/actors/collective/shm/rendezvous.hpp"

#include <atomic>
#include <random>

namespace troupe::collective {
namespace {

using namespace std::chrono_literals;

void expect_all(const std::vector<std::string>& errors, const std::vector<std::size_t>& ranks,
                const std::string& begin, const std::string& part) {
  for (const std::size_t r : ranks) {
    EXPECT_EQ(errors[r].find(begin), 0u) << r << ": " << errors[r];
    EXPECT_NE(errors[r].find(part), std::string::npos) << r << ": " << errors[r];
  }
}

struct Case {
  std::vector<int> ranks_on;
  DType type;
  Reduce reduce;
  std::int64_t count;
  std::uint32_t seed;
  bool scatters;
};

/// Random bytes of a type without NaNs, whose sums would depend on the compiler.
std::vector<std::byte> numbers(DType type, std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto size = static_cast<std::size_t>(kernels::size_of(type));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  // The last byte of a number has its sign and most of its exponent.
  if (type == DType::f32 || type == DType::f64 || type == DType::bf16 || type == DType::f16)
    for (std::size_t i = size - 1; i < bytes.size(); i += size)
      bytes[i] = (bytes[i] & std::byte{0x83}) | std::byte{0x3c};
  return bytes;
}

/// Returns what a rank gets.
std::vector<std::byte> result(Communicator& c, const Case& with) {
  const auto rank = static_cast<std::uint32_t>(c.rank());
  const std::int64_t count = with.scatters ? with.count * c.size() : with.count;
  std::vector<std::byte> in = numbers(with.type, count, with.seed * 31 + rank);
  if (!with.scatters) {
    c.all_reduce(Buffer{in.data(), with.type, count}, with.reduce).wait();
    return in;
  }
  std::vector<std::byte> part(in.size() / static_cast<std::size_t>(c.size()));
  c.reduce_scatter(ConstBuffer{in.data(), with.type, count},
                   Buffer{part.data(), with.type, with.count}, with.reduce)
      .wait();
  return part;
}

TEST(Nodes, TheSumsOfTwoThousandRandomGroupsHaveTheBitsOfLocal) {
  std::mt19937 random(20);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16,
                             DType::i32, DType::i64, DType::u8};
  constexpr int rounds = kLeeway > 2 ? 200 : 2000;  // sanitized programs are slow
  for (int round = 0; round < rounds; ++round) {
    Case with{{},
              types[below(7)],
              static_cast<Reduce>(below(4)),
              0,
              static_cast<std::uint32_t>(random()),
              below(2) == 0};
    if (with.type >= DType::i32 && with.reduce == Reduce::mean) with.reduce = Reduce::sum;
    int size = 0;
    for (int nodes = 1 + below(3); nodes > 0; --nodes) {
      with.ranks_on.push_back(1 + below(2));
      size += with.ranks_on.back();
    }
    with.count = below(8) == 0 ? below(3000) : below(60);
    Group nodes = nodes_group(with.ranks_on, {.slot = {4096}});
    Group local = local_group(size, {.slot = {4096}});
    std::atomic<int> equal = 0;
    expect_none(on_all(nodes, [&](Communicator& c) {
      Communicator& same = *local[static_cast<std::size_t>(c.rank())];
      if (result(c, with) == result(same, with)) ++equal;
    }));
    ASSERT_EQ(equal, size) << "round " << round << ": " << with.ranks_on.size() << " nodes, "
                           << with.count << " x " << kernels::name_of(with.type);
  }
}

// A group of one shape makes many operations one after the other, of all kinds, with messages
// longer than a frame and than a slot.
TEST(Nodes, FourHeadsWithBuffersOf4KiBEndEveryOperation) {
  for (const std::vector<int>& ranks_on : {std::vector<int>{1, 1, 1, 1}, {2, 1, 2, 1}}) {
    Group group = nodes_group(ranks_on, {.slot = {1 << 18}, .buffer = 4096});
    expect_none(on_all(group, [](Communicator& c) {
      const auto size = static_cast<std::size_t>(c.size());
      const auto rank = static_cast<std::size_t>(c.rank());
      for (const std::size_t n : {std::size_t{100}, std::size_t{150'000}}) {
        std::vector<float> x(n, 1), all(n * size), part(n, static_cast<float>(rank));
        c.all_reduce(x).wait();
        EXPECT_EQ(x.back(), static_cast<float>(size));
        c.all_gather(part, all).wait();
        for (std::size_t r = 0; r < size; ++r) EXPECT_EQ(all[r * n + n / 2], static_cast<float>(r));
        c.reduce_scatter(all, part).wait();
        EXPECT_EQ(part.back(), static_cast<float>(rank * size));
        for (int root = 0; root < c.size(); ++root) {
          std::vector<float> y(n, static_cast<float>(rank));
          c.broadcast(std::span<float>(y), root).wait();
          EXPECT_EQ(y.back(), static_cast<float>(root));
        }
        std::vector<float> in(n);
        const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
        c.exchange(part, right, in, left).wait();
        EXPECT_EQ(in.front(), static_cast<float>(static_cast<std::size_t>(left) * size));
        c.barrier();
      }
    }));
  }
}

TEST(Nodes, JoinsByARendezvousOfItsOwnNode) {
  const std::string rendezvous = new_rendezvous_name();
  const auto links = std::make_shared<PlainLinks>();
  std::vector<std::thread> threads;
  std::vector<std::string> errors(4);
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      try {
        NodesOptions options;
        options.nodes = {"a", "a", "b", "c"};
        options.rank = rank;
        options.rendezvous = rendezvous;
        options.timeout = 20s;
        const auto c = join_nodes_group(options, links->source(rank));
        std::vector<std::int32_t> x = {rank};
        c->all_reduce(x).wait();
        EXPECT_EQ(x[0], 6);
      } catch (const Error& e) {
        errors[static_cast<std::size_t>(rank)] = e.message();
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect_none(errors);
}

TEST(Nodes, RefuseWrongOptions) {
  const auto links = std::make_shared<PlainLinks>();
  NodesOptions options;
  EXPECT_THROW(join_nodes_group(options, links->source(0)), InvalidArgument);
  options.nodes = {"a", "b"};
  options.rank = 2;
  EXPECT_THROW(join_nodes_group(options, links->source(0)), InvalidArgument);
  options.rank = 0;
  options.timeout = Duration::zero();
  EXPECT_THROW(join_nodes_group(options, links->source(0)), InvalidArgument);
  options.timeout = 50ms;
  options.nodes = {"a", "b", "a"};
  EXPECT_THROW(join_nodes_group(options, links->source(0)), InvalidArgument);
  options.nodes = {"a", "a"};
  options.rendezvous = new_rendezvous_name();
  EXPECT_THROW(join_nodes_group(options, links->source(0)), TimedOut);
}

TEST(Nodes, SplitsFollowTheRulesOfNodes) {
  Group group = nodes_group({2, 2, 1});
  expect_none(on_all(group, [](Communicator& c) {
    const auto sum = [](Communicator& of, int mine) {
      std::vector<std::int32_t> x = {mine};
      of.all_reduce(x).wait();
      return x[0];
    };
    // Colors inside of a node, and one over two nodes in the opposite order.
    const auto node = c.split(c.rank() / 2, 0);
    EXPECT_EQ(sum(*node, c.rank()), c.rank() == 4 ? 4 : (c.rank() < 2 ? 1 : 5));
    const auto mixed = c.split(c.rank() < 4 ? 0 : 1, -c.rank());
    EXPECT_EQ(mixed->rank(), c.rank() < 4 ? 3 - c.rank() : 0);
    EXPECT_EQ(sum(*mixed, c.rank()), c.rank() < 4 ? 6 : 4);
    // 0, 2 | 1, 3: over nodes each, and a split of a split over nodes.
    const auto column = c.split(c.rank() % 2, c.rank());
    EXPECT_EQ(sum(*column, c.rank()), c.rank() % 2 == 0 ? 6 : 4);
    const auto again = column->split(0, column->rank());
    EXPECT_EQ(sum(*again, 1), column->size());
    // Keys that leave a node and come back to it are refused on all ranks, and the group goes on.
    EXPECT_THROW(static_cast<void>(c.split(0, c.rank() % 2)), InvalidArgument);
    EXPECT_EQ(sum(c, 1), 5);
  }));
}

// Ranks make different numbers of operations when only some of them send.
TEST(Nodes, SendsOfSomeRanksDoNotCountForTheOthers) {
  Group group = nodes_group({1, 1, 2});
  expect_none(on_all(group, [](Communicator& c) {
    std::vector<float> x(10, static_cast<float>(c.rank()));
    for (int round = 0; round < 3; ++round) {
      if (c.rank() == 0) c.send(x, 3).wait();
      if (c.rank() == 3) c.receive(x, 0).wait();
      c.barrier();
      std::vector<float> y = {1};
      c.all_reduce(y).wait();
      EXPECT_EQ(y[0], 4);
    }
  }));
}

struct Stuck {
  std::vector<int> ranks_on;
  std::size_t rank;
};

// The stuck rank makes no call; all others are in one, also those that are no neighbours of it.
TEST(Nodes, AStuckRankIsNamedNearAndFarByAllOthers) {
  for (const Stuck& stuck :
       {Stuck{{1, 1, 1, 1}, 0}, Stuck{{1, 1, 1, 1}, 3}, Stuck{{1, 1, 1, 1}, 2}, Stuck{{2, 2, 2}, 1},
        Stuck{{2, 2, 2}, 5}, Stuck{{2, 2, 2}, 2}, Stuck{{2, 2, 2}, 3}}) {
    Group group = nodes_group(stuck.ranks_on, {.timeout = 400ms});
    const Time begun = steady_now();
    const auto errors = on_all(group, [&](Communicator& c) {
      std::vector<float> x(1000);
      c.all_reduce(x).wait();
      if (static_cast<std::size_t>(c.rank()) != stuck.rank) c.all_reduce(x).wait();
    });
    EXPECT_LT(steady_now() - begun, kLeeway * 3400ms);
    for (std::size_t r = 0; r < errors.size(); ++r)
      if (r != stuck.rank)
        expect_all(errors, {r},
                   "timed_out: all_reduce #2 on rank " + std::to_string(r) + " of " +
                       std::to_string(errors.size()),
                   ": rank " + std::to_string(stuck.rank) + " did not arrive within 400 ms; ");
  }
}

TEST(Nodes, ARankThatAbortsOrLeavesIsNamedNearAndFar) {
  for (const bool aborts : {true, false})
    for (const std::size_t who : {0u, 1u, 4u, 2u}) {
      Group group = nodes_group({2, 2, 1}, {.timeout = 10s});
      const Time begun = steady_now();
      const auto errors = on_all(group, [&](Communicator& c) {
        c.barrier();
        if (static_cast<std::size_t>(c.rank()) != who) return c.barrier();
        if (aborts)
          c.abort("enough");
        else
          group[who].reset();
      });
      EXPECT_LT(steady_now() - begun, kLeeway * 2s);
      for (std::size_t r = 0; r < 5; ++r)
        if (r != who)
          expect_all(errors, {r}, "cancelled: barrier #2",
                     ": rank " + std::to_string(who) +
                         (aborts ? " ended the group: enough" : " left the group"));
    }
}

TEST(Nodes, CallsThatDifferAreNamedOnAllRanks) {
  Group group = nodes_group({1, 2, 1}, {.timeout = 10s});
  const auto errors = on_all(group, [](Communicator& c) {
    std::vector<float> x(c.rank() == 3 ? 11 : 10);
    c.all_reduce(x, Reduce::max).wait();
  });
  expect_all(errors, {0, 1, 2, 3}, "invalid_argument: all_reduce #1",
             "rank 3 made another call or gave another size than rank 1: all_reduce #1 of 11 x f32 "
             "(max) in place of all_reduce #1 of 10 x f32 (max)");
}

// Every rank waits in another group than the one that fails.
TEST(Nodes, AnErrorInASplitEndsTheRanksOfOtherGroups) {
  Group group = nodes_group({1, 1, 2}, {.timeout = 10s});
  const auto errors = on_all(group, [](Communicator& c) {
    const auto half = c.split(c.rank() / 2, 0);
    std::vector<float> x(1);
    if (c.rank() == 0) {
      half->set_timeout(100ms);
      half->barrier();
    }
    if (c.rank() == 3) half->receive(x, 0).wait();
    c.barrier();
  });
  expect_all(errors, {0, 1, 2, 3}, "timed_out: ", "rank 1 of a split (1 of the whole) did not");
}

TEST(Nodes, ProgressTellsOfOtherNodes) {
  Group group = nodes_group({1, 1});
  EXPECT_EQ(group[0]->progress()[1].state, RankProgress::State::absent);
  expect_none(on_all(group, [](Communicator& c) { c.barrier(); }));
  const RankProgress other = group[0]->progress()[1];
  EXPECT_EQ(other.state, RankProgress::State::joined);
  EXPECT_EQ(other.sequence, 1u);
  EXPECT_FALSE(other.inside);
  group[1].reset();
  EXPECT_THROW(group[0]->barrier(), Cancelled);
  EXPECT_EQ(group[0]->progress()[1].state, RankProgress::State::left);
}

}  // namespace
}  // namespace troupe::collective
