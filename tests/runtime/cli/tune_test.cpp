// Tests trials on a cluster whose nodes go and come.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

namespace troupe::cli {
namespace {

/// One node of three is killed, and one joins. No trial may fail, and the new node runs some.
TEST_F(Clusters, TrialsOutliveAKilledNodeAndUseANewOne) {
  const json head = start({"--nodes", "3", "--cpus", "1", "--join-tokens", "1"});
  ASSERT_EQ(head["nodes"].size(), 3U);
  Child study({paths::command(), "run", paths::cli_program(), "tune"});
  EXPECT_EQ(study.line(), "runs");
  ::kill(head["nodes"][2]["pid"], SIGKILL);
  Child node({paths::command(), "up", "--join", head["join_tokens"][0].get<std::string>(), "--cpus",
              "1", "--memory", "64MiB", "--json"});
  ASSERT_TRUE(says(node.read_until("\n}\n"), "nodes"));
  EXPECT_EQ(study.line(), "16 0 yes 1");
  EXPECT_EQ(study.finish(0), 0);
  EXPECT_EQ(troupe_command({"stop"}).code, 0);
  EXPECT_EQ(node.finish(0), 0);
}

}  // namespace
}  // namespace troupe::cli
