// Tests groups over nodes on sealed links: every operation with small buffers, splits, and what
// ranks learn of one that leaves, aborts, or cannot be reached.
#include "tests/actors/nodes_group.hpp"
#include "tests/actors/on_all.hpp"
#include "tests/actors/tcp/links.hpp"
#include "tests/leeway.hpp"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace troupe::collective {
namespace {

using Group = std::vector<std::unique_ptr<Communicator>>;

/// A group whose ranks have doors. `instead`: see Gang::meet().
Group sealed_group(const std::vector<int>& ranks_on, const NodesGroupOptions& with = {},
                   const std::string& instead = "") {
  const auto doors = std::make_shared<Gang>(
      std::accumulate(ranks_on.begin(), ranks_on.end(), 0),
      DoorOptions{.timeout = with.timeout, .buffer = {static_cast<std::uint64_t>(with.buffer)}});
  doors->meet(instead);
  return nodes_group_over(
      [&](int rank) { return std::shared_ptr<LinkSource>(doors, &(*doors)[rank]); }, ranks_on,
      with);
}

TEST(SealedGroups, EndEveryOperationWithBuffersOf4KiB) {
  for (const std::vector<int>& ranks_on : {std::vector<int>{1, 1, 1, 1}, {2, 1, 2}}) {
    Group group = sealed_group(ranks_on, {.slot = {1 << 18}, .buffer = 4096});
    const auto errors = on_all(group, [](Communicator& c) {
      const auto size = static_cast<std::size_t>(c.size());
      const auto rank = static_cast<std::size_t>(c.rank());
      const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
      for (const std::size_t n : {std::size_t{10}, std::size_t{100'000}}) {
        std::vector<float> x(n, 1), all(n * size), part(n, static_cast<float>(rank)), in(n);
        c.all_reduce(x).wait();
        EXPECT_EQ(x.back(), static_cast<float>(size));
        c.all_gather(part, all).wait();
        for (std::size_t r = 0; r < size; ++r) EXPECT_EQ(all[r * n], static_cast<float>(r));
        c.reduce_scatter(all, part).wait();
        EXPECT_EQ(part.back(), static_cast<float>(rank * size));
        c.exchange(part, right, in, left).wait();
        EXPECT_EQ(in.back(), static_cast<float>(static_cast<std::size_t>(left) * size));
        c.broadcast(std::span<float>(in), c.size() - 1).wait();
        c.barrier();
      }
      const auto part = c.split(c.rank() % 2, 0);
      std::vector<std::int32_t> one = {1};
      part->all_reduce(one).wait();
      EXPECT_EQ(one[0], part->size());
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(SealedGroups, TellOfARankThatLeavesOrAborts) {
  for (const bool aborts : {true, false})
    for (const std::size_t who : {0u, 1u, 3u}) {
      Group group = sealed_group({1, 2, 1});
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
      for (std::size_t r = 0; r < errors.size(); ++r) {
        if (r == who) continue;
        const std::string name = ": rank " + std::to_string(who);
        EXPECT_EQ(errors[r].find("cancelled: barrier #2"), 0u) << errors[r];
        EXPECT_NE(errors[r].find(name + (aborts ? " ended the group: enough" : " left the group")),
                  std::string::npos)
            << errors[r];
      }
    }
}

// The last rank's door is an address where nobody listens.
TEST(SealedGroups, NameBothRanksAndTheAddressThatCannotBeReachedWithinTheTimeout) {
  Group group = sealed_group({1, 1, 1}, {.timeout = 1s}, "127.0.0.1:1");
  const Time begun = steady_now();
  const auto errors = on_all(group, [](Communicator& c) {
    if (c.rank() != 2) c.barrier();
  });
  EXPECT_LT(steady_now() - begun, kLeeway * 1s);
  for (const std::size_t r : {0u, 1u}) {
    EXPECT_EQ(errors[r].find("unavailable: barrier #1"), 0u) << errors[r];
    EXPECT_NE(errors[r].find("rank 1 has no link to rank 2 at 127.0.0.1:1"), std::string::npos)
        << errors[r];
  }
}

}  // namespace
}  // namespace troupe::collective
