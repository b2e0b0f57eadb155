// Tests what a program can say about the nodes of its own cluster, and what it may then request
// of them.
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

namespace own_nodes_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::InvalidArgument;

constexpr troupe::Duration kBound = 30s;

int twice(int x) {
  return 2 * x;
}

/// Returns the devices of the task, from `gpu_ids` and from the variable that libraries read.
std::pair<std::vector<int>, std::string> devices(Context& ctx) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return {ctx.gpu_ids(), visible != nullptr ? visible : "not set"};
}

/// Requests all that a node of `session` was said to have, and then a little more.
void asks_for_everything(troupe::Session& session, std::size_t nodes) {
  Context ctx = session.context();
  const auto cluster = ctx.cluster();
  ASSERT_EQ(cluster.nodes.size(), nodes);
  for (const auto& node : cluster.nodes) {
    EXPECT_EQ(node.gpus, 2);
    ASSERT_EQ(node.resources.size(), 2u);
    EXPECT_EQ(node.resources[0], (std::pair<std::string, double>("licence", 2)));
    EXPECT_EQ(node.resources[1], (std::pair<std::string, double>("tape", 0.5)));
  }
  const troupe::TaskOptions all{
      .gpus = 2, .resources = {{"licence", 2}, {"tape", 0.5}}, .labels = {{"disk", "fast"}}};
  EXPECT_EQ(ctx.get(ctx.with(all).submit<devices>(), kBound),
            std::make_pair(std::vector<int>{0, 1}, std::string("0,1")));
  // A worker that had devices before now has none, or one.
  EXPECT_EQ(ctx.get(ctx.submit<devices>(), kBound),
            std::make_pair(std::vector<int>{}, std::string()));
  EXPECT_EQ(ctx.get(ctx.with(troupe::TaskOptions{.gpus = 0.5}).submit<devices>(), kBound),
            std::make_pair(std::vector<int>{0}, std::string("0")));
  std::vector<troupe::Ref<int>> too_much;  // submitted together: each refusal takes a while
  for (const troupe::TaskOptions& more :
       {troupe::TaskOptions{.gpus = 3}, troupe::TaskOptions{.resources = {{"licence", 3}}},
        troupe::TaskOptions{.labels = {{"disk", "slow"}}}})
    too_much.push_back(ctx.with(more).submit<twice>(1));
  for (const auto& ref : too_much) EXPECT_THROW(ctx.get(ref, kBound), troupe::Infeasible);
}

const troupe::SessionOptions kRich{.cpus = 1,
                                   .gpus = 2,
                                   .resources = {{"tape", 0.5}, {"licence", 2}},
                                   .labels = {{"disk", "fast"}}};

TEST(OwnNodes, AProgramSaysWhatItsNodeHas) {
  troupe::Session session(kRich);
  asks_for_everything(session, 1);
}

TEST(ClusterOwnNodes, AProgramSaysWhatItsNodesHave) {
  troupe::SessionOptions options = kRich;
  options.nodes = 2;
  troupe::Session session(options);
  asks_for_everything(session, 2);
}

/// Returns the exit code of this program, run with these flags and one of its tests.
int with_flags(std::vector<std::string> flags, const char* test) {
  flags.insert(flags.begin(),
               {"process_test", std::string("--gtest_filter=OwnNodes.DISABLED_") + test,
                "--gtest_also_run_disabled_tests"});
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  ::setenv("TROUPE_TEST_CHILD", "1", 1);
  if (::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0) return -1;
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OwnNodes, DISABLED_FromFlags) {
  troupe::Session session;
  asks_for_everything(session, 1);
}

TEST(OwnNodes, FlagsSayTheSame) {
  EXPECT_EQ(with_flags({"--troupe-cpus=1", "--troupe-gpus", "2", "--troupe-resource", "licence=2",
                        "--troupe-resource=tape=0.5", "--troupe-label=disk=fast"},
                       "FromFlags"),
            0);
}

TEST(OwnNodes, AFlagThatCannotBeUsedEndsTheProgramWithTwo) {
  for (const char* flag :
       {"--troupe-gpus=-1", "--troupe-gpus=two", "--troupe-resource=licence",
        "--troupe-resource=licence=", "--troupe-resource==2", "--troupe-resource=licence=many",
        "--troupe-label=disk", "--troupe-labels=disk=fast", "--troupe-cpus=0"})
    EXPECT_EQ(with_flags({flag}, "FromFlags"), 2) << flag;
}

TEST(OwnNodes, WhatCannotBeDeclaredIsNamed) {
  const std::pair<troupe::SessionOptions, const char*> wrong[] = {
      {{.gpus = -1}, "gpus"},
      {{.resources = {{"licence", -2}}}, "resources"},
      {{.resources = {{"licence", 1}, {"licence", 2}}}, "licence"},
      {{.resources = {{"", 1}}}, "name"},
      {{.labels = {{"disk", "fast"}, {"disk", "slow"}}}, "disk"}};
  for (auto [options, name] : wrong)
    for (const unsigned nodes : {1u, 2u}) {
      options.nodes = nodes;
      try {
        troupe::Session session(options);
        ADD_FAILURE() << name << " was taken";
      } catch (const InvalidArgument& error) {
        EXPECT_NE(error.message().find(name), std::string::npos) << error.what();
      }
    }
}

}  // namespace
}  // namespace own_nodes_test
