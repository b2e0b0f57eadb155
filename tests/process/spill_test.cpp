// Tests more objects than fit in memory. Objects that no process has open go to disk, and are
// read back unchanged: by their maker, by others, on other nodes and after their maker's end. A
// process that finds no room gets an error that says so.
#include "tests/eventually.hpp"
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spill_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::NodeId;
using troupe::Placement;
using troupe::Ref;

constexpr auto kBound = 60s;  // the limit of each wait; a test that reaches it fails

Numbers made_by(Context& ctx, std::uint64_t seed, std::uint64_t bytes) {
  Numbers v = numbers(seed, bytes);
  v.push_back(static_cast<std::uint64_t>(::getpid()));
  (void)ctx;
  return v;
}

/// Sets a variable of the environment for the agents of the next session.
class Set {
 public:
  Set(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  Set(const Set&) = delete;
  ~Set() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ClusterSpill, ASettingThatIsOfNoUseEndsTheStartAndIsNamed) {
  const std::pair<const char*, const char*> settings[] = {{"TROUPE_SPILL", "/proc/nowhere"},
                                                          {"TROUPE_SPILL_BYTES", "lots"},
                                                          {"TROUPE_SPILL_PATIENCE_MS", "soon"},
                                                          {"TROUPE_NODE_MEMORY", "-1"}};
  for (const auto& [name, value] : settings) {
    const Set set(name, value);
    for (const unsigned nodes : {1u, 2u}) try {
        troupe::Session session({.nodes = nodes});
        ADD_FAILURE() << name << "=" << value << " was taken";
      } catch (const troupe::Error& error) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
  }
}

TEST(Spill, TenTimesTheArenaOfTheDriversOwn) {
  troupe::Session session({.cpus = 2, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> refs;
  for (std::uint64_t i = 0; i < 160; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
  for (std::uint64_t i = 0; i < 160; ++i)
    EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
  for (std::uint64_t i = 160; i-- > 0;)
    EXPECT_EQ(ctx.get(ctx.submit<sum>(refs[i]), kBound), sum_of_numbers(i, kMiB)) << i;
}

TEST(Spill, ResultsAndArgumentsOfTasks) {
  troupe::Session session({.cpus = 2, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> made;
  std::vector<Ref<std::uint64_t>> sums;
  for (std::uint64_t i = 0; i < 160; ++i) made.push_back(ctx.submit<numbers>(i, kMiB));
  for (std::uint64_t i = 0; i < 160; ++i) sums.push_back(ctx.submit<sum>(made[i]));
  for (std::uint64_t i = 0; i < 160; ++i)
    EXPECT_EQ(ctx.get(sums[i], kBound), sum_of_numbers(i, kMiB)) << i;
}

/// Memory is granted by the extent: extents that were full of small objects must become one large
/// object.
TEST(Spill, ALargeObjectAfterManySmallOnes) {
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> small;
  for (std::uint64_t i = 0; i < 1000; ++i) small.push_back(ctx.put(numbers(i, 40'000)));
  const auto large = ctx.put(numbers(1, 12 * kMiB));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(large), kBound), sum_of_numbers(1, 12 * kMiB));
  for (std::uint64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(sum(ctx.get(small[i], kBound)), sum_of_numbers(i, 40'000)) << i;
  EXPECT_EQ(ctx.get(ctx.submit<sum>(large), kBound), sum_of_numbers(1, 12 * kMiB));
}

/// The tables of a process end with it. Its objects, which are all on disk, do not.
TEST(Spill, OutlivesItsMaker) {
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> made;
  for (std::uint64_t i = 0; i < 8; ++i) made.push_back(ctx.submit<made_by>(i, kMiB));
  const auto pid = static_cast<pid_t>(ctx.get(made.front(), kBound).back());
  (void)ctx.wait(made, {.count = made.size(), .timeout = kBound});
  std::vector<Ref<Numbers>> others;
  for (std::uint64_t i = 0; i < 32; ++i) others.push_back(ctx.put(numbers(i, kMiB)));
  ::kill(pid, SIGKILL);
  for (std::uint64_t i = 0; i < made.size(); ++i) {
    Numbers v = ctx.get(made[i], kBound);
    v.pop_back();
    EXPECT_TRUE(v == numbers(i, kMiB)) << i;
  }
}

std::string refused(const std::function<void()>& put, troupe::Code& code) {
  try {
    put();
  } catch (const troupe::Error& error) {
    code = error.code();
    return error.message();
  }
  code = troupe::Code::internal;
  return "it was not refused";
}

/// Puts objects of a mebibyte until one is refused, and returns the reason.
std::string fill(Context& ctx, std::vector<Ref<Numbers>>& refs, troupe::Code& code) {
  return refused(
      [&] {
        for (std::uint64_t i = 0; i < 100; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
      },
      code);
}

/// The process that puts one object too many gets the error after its waiting time. All others go
/// on.
TEST(Spill, AFullDiskIsToldToWhoAsked) {
  const Set limit("TROUPE_SPILL_BYTES", std::to_string(8 * kMiB));
  const Set patience("TROUPE_SPILL_PATIENCE_MS", "300");
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> refs;
  troupe::Code code{};
  const std::string why = fill(ctx, refs, code);
  EXPECT_EQ(code, troupe::Code::out_of_disk) << why;
  EXPECT_NE(why.find("on disk"), std::string::npos) << why;
  EXPECT_GE(refs.size(), 16u);
  EXPECT_LT(refs.size(), 32u);
  for (std::uint64_t i = 0; i < refs.size(); ++i)
    EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
  refs.erase(refs.begin(), refs.begin() + 12);
  for (std::uint64_t i = 0; i < 8; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
}

TEST(Spill, FiftyTimesFullAndFreedNothingIsWrongAndAllComesBack) {
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr) GTEST_SKIP() << "set TROUPE_LONG_TESTS=1";
  const Set limit("TROUPE_SPILL_BYTES", std::to_string(8 * kMiB));
  const Set patience("TROUPE_SPILL_PATIENCE_MS", "100");
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  for (int cycle = 0; cycle < 50 && !testing::Test::HasFailure(); ++cycle) {
    std::vector<Ref<Numbers>> refs;
    troupe::Code code{};
    const std::string why = fill(ctx, refs, code);
    EXPECT_EQ(code, troupe::Code::out_of_disk) << why;
    for (std::uint64_t i = 0; i < refs.size(); ++i)
      EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << cycle << ": " << i;
    refs.clear();
    for (std::uint64_t i = 0; i < 12; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
    EXPECT_TRUE(ctx.get(refs[0], kBound) == numbers(0, kMiB)) << "service is back";
  }
}

TEST(Spill, WhatIsLookedAtCannotGo) {
  const Set patience("TROUPE_SPILL_PATIENCE_MS", "300");
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<troupe::View<troupe::Array<std::uint64_t>>> views;
  const auto put = [&] {
    auto builder = ctx.create<std::uint64_t>(kMiB / 8);
    std::iota(builder.begin(), builder.end(), views.size());
    return std::move(builder).seal();
  };
  troupe::Code code{};
  const std::string why = refused(
      [&] {
        for (int i = 0; i < 100; ++i) views.push_back(ctx.view(put(), kBound));
      },
      code);
  EXPECT_EQ(code, troupe::Code::out_of_memory) << why;
  EXPECT_NE(why.find("shown by views"), std::string::npos) << why;
  EXPECT_NE(why.find("drop references"), std::string::npos) << why;
  ASSERT_GE(views.size(), 8u);
  for (std::uint64_t i = 0; i < views.size(); ++i) EXPECT_EQ((*views[i])[1], i + 1);
  views.clear();
  (void)ctx.get(put(), kBound);
}

/// The only CPU is held by a task that waits for memory, and the task that would free some needs
/// a CPU.
TEST(Spill, WhoWaitsForMemoryLetsOthersRunWhoFreeSome) {
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  const auto full = ctx.create<std::uint64_t>(12 * kMiB / 8).seal();
  auto view = std::make_unique<troupe::View<troupe::Array<std::uint64_t>>>(ctx.view(full, kBound));
  const auto waits = ctx.submit<numbers>(1, 12 * kMiB);
  const auto other = ctx.submit<sum>(ctx.put(numbers(2, 64)));
  EXPECT_EQ(ctx.get(other, 6s), sum_of_numbers(2, 64));  // the first task's wait ends at 8 s
  view.reset();
  EXPECT_EQ(sum(ctx.get(waits, kBound)), sum_of_numbers(1, 12 * kMiB));
}

/// Without a spill folder there is nothing to wait for.
TEST(Spill, TurnedOffAFullStoreRefusesAtOnce) {
  const Set none("TROUPE_SPILL", "");
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> refs;
  troupe::Code code{};
  const std::string why = fill(ctx, refs, code);
  EXPECT_EQ(code, troupe::Code::out_of_memory) << why;
  EXPECT_GE(refs.size(), 8u);
}

/// The bytes that one process of a job uses count for all its processes. Freed bytes can be used
/// again.
TEST(Spill, AJobAtItsQuotaIsToldSo) {
  const Set quota("TROUPE_JOB_BYTES", std::to_string(24 * kMiB));
  const Set patience("TROUPE_SPILL_PATIENCE_MS", "300");
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{64 * kMiB}});
  Context ctx = session.context();
  std::vector<Ref<Numbers>> refs;
  troupe::Code code{};
  const std::string why = fill(ctx, refs, code);
  EXPECT_EQ(code, troupe::Code::out_of_memory) << why;
  for (const char* part : {"job ", "TROUPE_JOB_BYTES", "25165824"})
    EXPECT_NE(why.find(part), std::string::npos) << why;
  EXPECT_GE(refs.size(), 16u);
  EXPECT_LE(refs.size(), 26u);
  const std::string of_worker =
      refused([&] { (void)ctx.get(ctx.submit<numbers>(1, 30 * kMiB), kBound); }, code);
  EXPECT_EQ(code, troupe::Code::out_of_memory) << of_worker;
  EXPECT_NE(of_worker.find("TROUPE_JOB_BYTES"), std::string::npos) << of_worker;
  for (std::uint64_t i = 0; i < refs.size(); ++i) EXPECT_TRUE(ctx.get(refs[i]) == numbers(i, kMiB));
  refs.clear();
  EXPECT_TRUE(ctx.get(ctx.put(numbers(7, kMiB)), kBound) == numbers(7, kMiB));
  EXPECT_TRUE(ctx.get(ctx.submit<numbers>(8, 8 * kMiB), kBound) == numbers(8, 8 * kMiB));
}

/// Each node's arena is filled ten times over with objects made there, and as often with fetched
/// ones.
TEST(ClusterSpill, TenTimesTheArenas) {
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{8 * kMiB}, .nodes = 3});
  Context ctx = session.context();
  ASSERT_TRUE(eventually([&] { return ctx.cluster().nodes.size() == 3; }));
  std::vector<NodeId> nodes;
  for (const auto& node : ctx.cluster().nodes) nodes.push_back(node.id);
  const auto on = [&](std::uint64_t i) {
    return ctx.with({.placement = Placement::on(nodes[i % 3])});
  };
  constexpr std::uint64_t kObjects = 3 * 80;
  std::vector<Ref<Numbers>> made;
  std::vector<Ref<std::uint64_t>> sums;
  for (std::uint64_t i = 0; i < kObjects; ++i) made.push_back(on(i).submit<numbers>(i, kMiB));
  for (std::uint64_t i = 0; i < kObjects; ++i) sums.push_back(on(i + 1).submit<sum>(made[i]));
  for (std::uint64_t i = 0; i < kObjects; ++i)
    EXPECT_EQ(ctx.get(sums[i], kBound), sum_of_numbers(i, kMiB)) << i;
}

}  // namespace
}  // namespace spill_test
