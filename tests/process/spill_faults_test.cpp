// Tests spill folders whose disk fails, under real processes. The process that needs the disk
// gets a typed error. A copy that cannot be read is computed again or ends in ObjectLost. No
// process reads a wrong byte.
#include "tests/eventually.hpp"
#include "tests/process/failing_disk.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace spill_faults_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::NodeId;
using troupe::Ref;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

struct SpillFaults : ::testing::Test {
  void SetUp() override {
    if (!FailingDisk::can_be()) GTEST_SKIP() << "a sanitizer has to be loaded first";
  }
  static std::unique_ptr<troupe::Session> session() {
    return std::make_unique<troupe::Session>(
        troupe::SessionOptions{.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  }
};

TEST_F(SpillFaults, AFolderThatCannotBeWrittenIsToldToWhoAsked) {
  const FailingDisk disk("write=1");
  const auto node = session();
  Context ctx = node->context();
  std::vector<Ref<Numbers>> refs;
  troupe::Code code = troupe::Code::internal;
  std::string why = "nobody was refused";
  try {
    for (std::uint64_t i = 0; i < 64; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
  } catch (const troupe::Error& error) {
    code = error.code();
    why = error.message();
  }
  EXPECT_EQ(code, troupe::Code::out_of_disk) << why;
  EXPECT_NE(why.find("Input/output error"), std::string::npos) << why;
  EXPECT_GE(refs.size(), 8u);
  for (std::uint64_t i = 0; i < refs.size(); ++i)
    EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
}

TEST_F(SpillFaults, WhatCannotBeReadIsLostAndNothingIsWrong) {
  const FailingDisk disk("last=3");
  const auto node = session();
  Context ctx = node->context();
  std::vector<Ref<Numbers>> refs;
  for (std::uint64_t i = 0; i < 48; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
  std::size_t right = 0, lost = 0, no_room = 0;
  for (std::uint64_t i = 0; i < refs.size(); ++i) {
    try {
      EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
      ++right;
    } catch (const troupe::ObjectLost& error) {
      ++lost;
      const std::string why = troupe::explain(error);
      EXPECT_NE(why.find("Input/output error"), std::string::npos) << why;
    } catch (const troupe::Error& error) {  // no object in memory could make room for it
      ++no_room;
      EXPECT_EQ(error.code(), troupe::Code::out_of_disk) << error.what();
    }
  }
  EXPECT_GE(right, 3u);
  EXPECT_GE(lost, 1u);
  std::printf("of 48: %zu right, %zu lost, %zu without room\n", right, lost, no_room);
}

TEST_F(SpillFaults, AResultThatCannotBeReadIsComputedAgain) {
  const FailingDisk disk("read=3");
  const auto node = session();
  Context ctx = node->context();
  std::vector<Ref<Numbers>> refs;
  for (std::uint64_t i = 0; i < 48; ++i) refs.push_back(ctx.submit<numbers>(i, kMiB));
  for (std::uint64_t i = 0; i < refs.size(); ++i)
    EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
}

using Several = std::vector<Ref<Numbers>>;

Several put_some(Context& ctx, std::uint64_t count) {
  Several refs;
  for (std::uint64_t i = 0; i < count; ++i) refs.push_back(ctx.put(numbers(i, kMiB)));
  return refs;
}
Several compute_some(Context& ctx, std::uint64_t count) {
  Several refs;
  for (std::uint64_t i = 0; i < count; ++i) refs.push_back(ctx.submit<numbers>(i, kMiB));
  return refs;
}

struct SpillFaultsOfTwo : SpillFaults {
  void start(const char* how) {
    const FailingDisk disk(how, 10);
    cluster = std::make_unique<troupe::Session>(
        troupe::SessionOptions{.cpus = 1, .memory = troupe::Bytes{16 * kMiB}, .nodes = 2});
    const Context ctx = cluster->context();
    const auto others = other_nodes(ctx, 2);
    ASSERT_EQ(others.size(), 1u);
    other = others[0];
  }
  auto there() const {
    return cluster->context().with({.placement = troupe::Placement::on(other)});
  }
  std::unique_ptr<troupe::Session> cluster;
  NodeId other;
};

TEST_F(SpillFaultsOfTwo, ACopyOfAnotherNodesObjectMayGoBadAgainAndAgain) {
  start("last=1");
  Context ctx = cluster->context();
  const Several refs = ctx.get(there().submit<put_some>(4u), kBound);
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t i = 0; i < refs.size(); ++i)
      EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << "round " << round << ": " << i;
    (void)put_some(ctx, 20);  // these objects push the copies out of memory
  }
}

TEST_F(SpillFaultsOfTwo, WhatItsOwnerCannotReadIsComputedAgainForAnotherNode) {
  start("last=1");
  Context ctx = cluster->context();
  const Several refs = ctx.get(there().submit<compute_some>(20u), kBound);
  for (std::uint64_t i = 0; i < refs.size(); ++i)
    EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
}

}  // namespace
}  // namespace spill_faults_test
