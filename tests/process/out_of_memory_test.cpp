// Tests a node that runs out of memory. It ends the worker that takes more than it asked for. The
// callers that wait for that worker get an error, and no one else does.
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace out_of_memory_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Ref;

constexpr auto kBound = 30s;  // the limit of each wait; a test that reaches it fails
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Takes 3 GB of memory and keeps them for `kBound`, unless the agent ends the process.
std::size_t hog(const std::string& attempts) {
  std::ofstream(attempts, std::ios::app) << ::getpid() << '\n';
  std::vector<std::vector<char>> taken;
  while (taken.size() < 96) {
    taken.emplace_back(32 * kMiB, static_cast<char>(taken.size()));
    std::this_thread::sleep_for(15ms);
  }
  std::this_thread::sleep_for(kBound);
  return taken.size();
}
std::size_t lines(const std::string& path) {
  std::ifstream in(path);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);) ++count;
  return count;
}
int slowly(int x) {
  std::this_thread::sleep_for(20ms);
  return 2 * x;
}

TEST(OutOfMemory, WhoTakesMoreThanItAskedForEndsAndTheOthersAreRight) {
  ::setenv("TROUPE_NODE_MEMORY", std::to_string(768 * kMiB).c_str(), 1);
  const std::string attempts = testing::TempDir() + "troupe_attempts_" + std::to_string(::getpid());
  ::unlink(attempts.c_str());
  {
    troupe::Session session({.cpus = 2, .memory = troupe::Bytes{64 * kMiB}});
    Context ctx = session.context();
    std::vector<Ref<int>> others;
    for (int i = 0; i < 60; ++i) others.push_back(ctx.submit<slowly>(i));
    const auto big =
        ctx.with({.memory = troupe::Bytes{128 * kMiB}, .max_retries = 1}).submit<hog>(attempts);
    for (int i = 0; i < 60; ++i) EXPECT_EQ(ctx.get(others[i], kBound), 2 * i);
    try {
      (void)ctx.get(big, kBound);
      ADD_FAILURE() << "it was not ended";
    } catch (const troupe::OutOfMemory& error) {
      const std::string& why = error.message();
      EXPECT_NE(why.find("of the node's limit"), std::string::npos) << why;
      EXPECT_NE(why.find("more than the 128 MiB that it had asked for"), std::string::npos) << why;
    }
    EXPECT_EQ(ctx.get(ctx.submit<slowly>(4), kBound), 8) << "the node serves on";
  }
  EXPECT_EQ(lines(attempts), 2u) << "it is tried again as often as it may be";
  ::unlink(attempts.c_str());
  ::unsetenv("TROUPE_NODE_MEMORY");
}

/// The neighbours of the hogs give right results, and their agent lives. The test has 200 hogs
/// with TROUPE_LONG_TESTS, else three.
TEST(OutOfMemory, ManyHogsInARowCostTheNodeNothing) {
  ::setenv("TROUPE_NODE_MEMORY", std::to_string(512 * kMiB).c_str(), 1);
  const int hogs = std::getenv("TROUPE_LONG_TESTS") != nullptr ? 200 : 3;
  const std::string attempts = testing::TempDir() + "troupe_hogs_" + std::to_string(::getpid());
  {
    troupe::Session session({.cpus = 2, .memory = troupe::Bytes{64 * kMiB}});
    Context ctx = session.context();
    for (int i = 0; i < hogs; ++i) {
      const auto big =
          ctx.with({.memory = troupe::Bytes{64 * kMiB}, .max_retries = 0}).submit<hog>(attempts);
      const auto neighbour = ctx.submit<slowly>(i);
      EXPECT_EQ(ctx.get(neighbour, kBound), 2 * i);
      EXPECT_THROW((void)ctx.get(big, kBound), troupe::OutOfMemory) << "hog " << i;
    }
  }
  EXPECT_EQ(lines(attempts), static_cast<std::size_t>(hogs));
  ::unlink(attempts.c_str());
  ::unsetenv("TROUPE_NODE_MEMORY");
}

}  // namespace
}  // namespace out_of_memory_test
