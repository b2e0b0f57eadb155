/// Tests a spill folder that all nodes see. An object that was put on a node survives a kill -9
/// of that node and reads right, or ends in ObjectLost. Copies of freed objects vanish, and a
/// cluster leaves nothing behind.
#include "examples/support/processes.hpp"
#include "tests/eventually.hpp"
#include "tests/process/failing_disk.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shared_spill_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using troupe::Context;
using troupe::NodeId;
using troupe::Placement;
using troupe::Ref;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

struct Basket {
  std::vector<Ref<Numbers>> large;
  Ref<int> small;
};

Basket fill(Context& ctx, std::uint64_t count, std::uint64_t bytes) {
  Basket basket{{}, ctx.put(42)};
  for (std::uint64_t i = 0; i < count; ++i) basket.large.push_back(ctx.put(numbers(i, bytes)));
  return basket;
}

testing::AssertionResult holds(const Context& ctx, const Ref<Numbers>& ref, std::uint64_t seed) {
  try {
    if (ctx.get(ref, kBound) == numbers(seed, kMiB)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "wrong bytes";
  } catch (const troupe::Error& error) {
    return testing::AssertionFailure() << troupe::explain(error);
  }
}

struct Nested {
  Ref<Basket> inner;
};
Nested fill_inside(Context& ctx) {
  return {ctx.put(fill(ctx, 2, kMiB))};
}

struct Keeper {
  Basket kept;
  void keep(Basket basket) { kept = std::move(basket); }
};

struct SharedSpill : testing::Test {
  SharedSpill() {
    std::string name = (fs::temp_directory_path() / "troupe-shared-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path = fs::canonical(name);
    ::setenv("TROUPE_SPILL_SHARED", path.c_str(), 1);
  }
  ~SharedSpill() override {
    cluster.reset();
    for (const char* name : {"TROUPE_SPILL_SHARED", "TROUPE_SPILL_BYTES"}) ::unsetenv(name);
    fs::remove_all(path);
  }
  void start(std::uint64_t memory = 0) {
    cluster = std::make_unique<troupe::Session>(
        troupe::SessionOptions{.cpus = 1, .memory = troupe::Bytes{memory}, .nodes = 3});
    const Context ctx = cluster->context();
    others = other_nodes(ctx, 3);
    ASSERT_EQ(others.size(), 2u);
  }
  auto on(std::size_t node) const {
    return cluster->context().with({.placement = Placement::on(others.at(node))});
  }
  /// Returns the paths of all copies: FOLDER/troupe-CLUSTER/NODE/OBJECT.
  std::vector<fs::path> copies() const {
    std::vector<fs::path> found;
    std::error_code gone;
    for (fs::recursive_directory_iterator at(path, gone), end; !gone && at != end;
         at.increment(gone))
      if (at.depth() == 2 && at->path().filename().string().size() == 32)
        found.push_back(at->path());
    return found;
  }
  bool has_copies(std::size_t count) const {
    return eventually([&] { return copies().size() == count; });
  }
  fs::path path;
  std::unique_ptr<troupe::Session> cluster;
  std::vector<NodeId> others;
};

TEST_F(SharedSpill, APutSurvivesTheKillOfItsNode) {
  start();
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  const Ref<Basket> made = on(0).submit<fill>(2u, kMiB);
  {
    const Basket basket = ctx.get(made, kBound);
    ASSERT_TRUE(has_copies(3)) << "two large ones and a small one";
    ASSERT_EQ(::kill(agent, SIGKILL), 0);
    EXPECT_TRUE(ctx.get(basket.large[0], kBound) == numbers(0, kMiB));
    EXPECT_EQ(ctx.get(on(1).submit<sum>(basket.large[1]), kBound), sum(numbers(1, kMiB)))
        << "a ref that was passed on after its owner's death";
    EXPECT_EQ(ctx.get(basket.small, kBound), 42);
  }
  cluster.reset();
  EXPECT_TRUE(fs::is_empty(path)) << "the last one takes everything along";
}

TEST_F(SharedSpill, WhatIsInsideAValueThatNobodyHadOpenedSurvivesToo) {
  start();
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  const Nested made = ctx.get(on(0).submit<fill_inside>(), kBound);
  ASSERT_TRUE(has_copies(4)) << copies().size();
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const Basket basket = ctx.get(made.inner, kBound);
  for (std::uint64_t i = 0; i < basket.large.size(); ++i)
    EXPECT_TRUE(holds(ctx, basket.large[i], i)) << i;
  EXPECT_EQ(ctx.get(basket.small, kBound), 42);
}

int name_inside(Context& ctx, const std::string& name) {
  ctx.detach(ctx.put(fill_inside(ctx)), name);
  return 1;
}

TEST_F(SharedSpill, WhatHasANameSurvivesThoughNoOtherNodeHeldIt) {
  start();
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  EXPECT_EQ(ctx.get(on(0).submit<name_inside>(std::string("nested")), kBound), 1);
  ASSERT_TRUE(has_copies(5)) << copies().size();
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const Nested found = ctx.get(ctx.find_object<Nested>("nested").value(), kBound);
  const Basket basket = ctx.get(found.inner, kBound);
  for (std::uint64_t i = 0; i < basket.large.size(); ++i)
    EXPECT_TRUE(holds(ctx, basket.large[i], i)) << i;
}

TEST_F(SharedSpill, ADamagedCopyIsLostByType) {
  start();
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  const Basket basket = ctx.get(on(0).submit<fill>(2u, kMiB), kBound);
  ASSERT_TRUE(has_copies(3));
  std::size_t damaged = 0;
  for (const fs::path& copy : copies())
    if (fs::file_size(copy) > kMiB && damaged++ == 0)
      std::fstream(copy).seekp(static_cast<std::streamoff>(kMiB / 2)).put('#');
  ASSERT_EQ(damaged, 2u);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  int right = 0, lost = 0;
  for (std::uint64_t i = 0; i < 2; ++i) {
    try {
      EXPECT_TRUE(ctx.get(basket.large[i], kBound) == numbers(i, kMiB));
      ++right;
    } catch (const troupe::ObjectLost& error) {
      ++lost;
      EXPECT_NE(troupe::explain(error).find("is bad"), std::string::npos) << troupe::explain(error);
    }
  }
  EXPECT_EQ(right, 1);
  EXPECT_EQ(lost, 1);
}

TEST_F(SharedSpill, FreedCopiesVanish) {
  start();
  Context ctx = cluster->context();
  {
    const Basket basket = ctx.get(on(0).submit<fill>(3u, 64u << 10), kBound);
    ASSERT_TRUE(has_copies(4));
  }
  EXPECT_TRUE(has_copies(0));
  EXPECT_FALSE(fs::is_empty(path)) << "the cluster lives";
}

TEST_F(SharedSpill, MoreThanTheArenasSurvives) {
  constexpr std::uint64_t kCount = 40;
  start(16 * kMiB);
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  const Basket basket = ctx.get(on(0).submit<fill>(kCount, kMiB), kBound);
  ASSERT_TRUE(has_copies(kCount + 1)) << copies().size();
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  for (std::uint64_t i = 0; i < kCount; ++i)
    EXPECT_TRUE(ctx.get(basket.large[i], kBound) == numbers(i, kMiB)) << i;
}

TEST_F(SharedSpill, AnOwnerWhoseDiskFailsReadsItsCopies) {
  if (!FailingDisk::can_be()) GTEST_SKIP() << "a sanitizer has to be loaded first";
  {
    const FailingDisk disk("last=1", 10);
    start(16 * kMiB);
  }
  Context ctx = cluster->context();
  const Basket basket = ctx.get(on(0).submit<fill>(6u, kMiB), kBound);
  ASSERT_TRUE(has_copies(7)) << copies().size();
  const Basket mine = fill(ctx, 4u, kMiB);
  const auto keeper = on(1).spawn<Keeper>();
  ctx.get(keeper.call<&Keeper::keep>(mine), kBound);
  ASSERT_TRUE(has_copies(12)) << copies().size();
  // These objects have no other holder; they push the first ones out of memory.
  (void)fill(ctx, 20u, kMiB);
  const Ref<Basket> others_there = on(0).submit<fill>(20u, kMiB);
  ASSERT_EQ(ctx.wait({others_there}, {.count = 1, .timeout = kBound}).ready.size(), 1u);
  for (std::uint64_t i = 0; i < basket.large.size(); ++i)
    EXPECT_TRUE(holds(ctx, basket.large[i], i)) << i;
  EXPECT_EQ(ctx.get(on(0).submit<sum>(basket.large[2]), kBound), sum(numbers(2, kMiB)))
      << "a process of the owner's node";
  for (std::uint64_t i = 0; i < mine.large.size(); ++i)
    EXPECT_TRUE(holds(ctx, mine.large[i], i)) << "who put it: " << i;
}

TEST_F(SharedSpill, WhatHasNoRoomThereIsLostByType) {
  ::setenv("TROUPE_SPILL_BYTES", "65536", 1);
  start();
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  const Basket basket = ctx.get(on(0).submit<fill>(1u, kMiB), kBound);
  ASSERT_TRUE(has_copies(1)) << "the small one";
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  EXPECT_EQ(ctx.get(basket.small, kBound), 42);
  try {
    (void)ctx.get(basket.large[0], kBound);
    FAIL() << "there was no copy";
  } catch (const troupe::ObjectLost& error) {
    EXPECT_NE(troupe::explain(error).find("no copy"), std::string::npos) << troupe::explain(error);
  }
}

TEST_F(SharedSpill, AFolderOfNoUseEndsTheStart) {
  ::setenv("TROUPE_SPILL_SHARED", (path / "none").c_str(), 1);
  try {
    start();
    FAIL() << "it started";
  } catch (const troupe::Error& error) {
    EXPECT_NE(troupe::explain(error).find((path / "none").string()), std::string::npos)
        << troupe::explain(error);
  }
}

}  // namespace
}  // namespace shared_spill_test
