// Spill folders whose disk fails, under real processes: who asked hears of it by type, a copy that
// cannot be read is computed again or is lost, and nobody gets a wrong byte.
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace spill_faults_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Ref;

constexpr auto kBound = 20s;  // of every wait; a test that needs it has failed

/// Agents that start meanwhile have a disk that fails so.
class Disk {
 public:
  explicit Disk(const char* how) {
    ::setenv("LD_PRELOAD", CHAOS_SHIM, 1);
    ::setenv("CHAOS_DISK", how, 1);
    ::setenv("TROUPE_SPILL_PATIENCE_MS", "300", 1);
  }
  Disk(const Disk&) = delete;
  ~Disk() {
    for (const char* name : {"LD_PRELOAD", "CHAOS_DISK", "TROUPE_SPILL_PATIENCE_MS"})
      ::unsetenv(name);
  }
};

struct SpillFaults : ::testing::Test {
  void SetUp() override {
    if (std::string(CHAOS_SHIM).empty()) GTEST_SKIP() << "a sanitizer has to be loaded first";
  }
  static std::unique_ptr<troupe::Session> session() {
    return std::make_unique<troupe::Session>(
        troupe::SessionOptions{.cpus = 1, .memory = troupe::Bytes{16 * kMiB}});
  }
};

TEST_F(SpillFaults, AFolderThatCannotBeWrittenIsToldToWhoAsked) {
  const Disk disk("write=1");
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
  const Disk disk("last=3");
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
    } catch (const troupe::Error& error) {  // what is in memory cannot make room for it
      ++no_room;
      EXPECT_EQ(error.code(), troupe::Code::out_of_disk) << error.what();
    }
  }
  EXPECT_GE(right, 3u);
  EXPECT_GE(lost, 1u);
  std::printf("of 48: %zu right, %zu lost, %zu without room\n", right, lost, no_room);
}

TEST_F(SpillFaults, AResultThatCannotBeReadIsComputedAgain) {
  const Disk disk("read=3");
  const auto node = session();
  Context ctx = node->context();
  std::vector<Ref<Numbers>> refs;
  for (std::uint64_t i = 0; i < 48; ++i) refs.push_back(ctx.submit<numbers>(i, kMiB));
  for (std::uint64_t i = 0; i < refs.size(); ++i)
    EXPECT_TRUE(ctx.get(refs[i], kBound) == numbers(i, kMiB)) << i;
}

}  // namespace
}  // namespace spill_faults_test
