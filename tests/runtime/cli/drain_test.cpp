// Tests that a drained node gets nothing new, finishes what it has, and leaves in its time.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

namespace troupe::cli {
namespace {

std::string name_of_state(const json& nodes, const std::string& name) {
  for (const json& node : nodes)
    if (node["name"] == name) return node["state"];
  return "gone";
}

/// A program whose task holds a node until the test lets it go.
class Holder {
 public:
  Holder(const fs::path& folder, const std::string& node)
      : file_(folder / "let-go"),
        program_({paths::command(), "run", paths::cli_program(), "hold_node", node, file_}) {
    EXPECT_TRUE(eventually([&] { return fs::exists(file_.string() + ".runs"); }));
  }
  ~Holder() {
    let_go();
    fs::remove(file_);
    fs::remove(file_.string() + ".runs");
  }
  void let_go() const { std::ofstream(file_) << "go"; }
  Child& program() { return program_; }

 private:
  fs::path file_;
  Child program_;
};

TEST_F(Clusters, AnIdleNodeThatIsDrainedLeavesAtOnce) {
  start({"--nodes", "3", "--cpus", "1"});
  const json drained = ask({"drain", "node-2", "--within", "20s"});
  EXPECT_EQ(drained["node"], "node-2");
  EXPECT_LT(drained["seconds"], 5.0);
  EXPECT_EQ(living_nodes().size(), 2u);
  EXPECT_EQ(name_of_state(rows("nodes"), "node-2"), "left");
  EXPECT_EQ(troupe_command({"run", paths::cli_program(), "sum", "20"}).code, 0);
}

TEST_F(Clusters, ADrainedNodeFinishesItsTask) {
  start({"--nodes", "2", "--cpus", "1"});
  Holder holder(folder, "node-1");
  Child drain({paths::command(), "drain", "node-1", "--within", "60s"});
  EXPECT_TRUE(says(drain.read_until("takes nothing new"), "takes nothing new"));
  EXPECT_EQ(name_of_state(rows("nodes"), "node-1"), "draining");
  holder.let_go();
  EXPECT_EQ(holder.program().line(), "7");
  EXPECT_EQ(holder.program().finish(0), 0);
  EXPECT_EQ(drain.finish(0), 0);
  EXPECT_EQ(name_of_state(rows("nodes"), "node-1"), "left");
}

TEST_F(Clusters, ADrainedNodeLeavesAtItsDeadline) {
  start({"--nodes", "2", "--cpus", "1"});
  Holder holder(folder, "node-1");
  const Outcome drain = troupe_command({"drain", "node-1", "--within", "300ms"});
  EXPECT_EQ(drain.code, 0) << drain.err;
  EXPECT_TRUE(says(drain.out, "node-1 has left")) << drain.out;
  EXPECT_NE(holder.program().finish(0), 0) << "its task is lost with the node";
}

TEST_F(Clusters, ANodeThatDiesWhileItDrainsHasNotLeft) {
  const json head = start({"--nodes", "3", "--cpus", "1"});
  Holder holder(folder, "node-1");
  Child drain({paths::command(), "drain", "node-1", "--within", "60s"});
  EXPECT_TRUE(says(drain.read_until("takes nothing new"), "takes nothing new"));
  ::kill(head["nodes"][1]["pid"].get<int>(), SIGKILL);
  EXPECT_EQ(drain.finish(0), 1);
  EXPECT_EQ(name_of_state(rows("nodes"), "node-1"), "dead");
}

TEST_F(Clusters, SigtermDrainsANodeWithGrace) {
  const json head = start({"--nodes", "1", "--cpus", "1", "--join-tokens", "1"});
  Child node({paths::command(), "up", "--join", head["join_tokens"][0].get<std::string>(), "--cpus",
              "1", "--memory", "64MiB", "--grace", "60s", "--json"});
  const json joined = json::parse(node.read_until("\n}\n"), nullptr, false);
  const std::string name = joined["nodes"][0]["name"];
  {
    Holder holder(folder, name);
    ::kill(node.pid(), SIGTERM);
    EXPECT_TRUE(eventually([&] { return name_of_state(rows("nodes"), name) == "draining"; }));
    holder.let_go();
    EXPECT_EQ(holder.program().line(), "7");
    EXPECT_EQ(holder.program().finish(0), 0);
  }
  EXPECT_EQ(node.finish(0), 0);
  EXPECT_EQ(name_of_state(rows("nodes"), name), "left");
}

TEST_F(Clusters, ADrainNamesWhatIsWrong) {
  start({"--nodes", "1", "--cpus", "1"});
  const Outcome stranger = troupe_command({"drain", "node-7"});
  EXPECT_EQ(stranger.code, 2);
  EXPECT_TRUE(says(stranger.err, "'node-7'") && says(stranger.err, "node-0 (")) << stranger.err;
  const Outcome unit = troupe_command({"drain", "node-0", "--within", "60"});
  EXPECT_EQ(unit.code, 2);
  EXPECT_TRUE(says(unit.err, "--within: '60' is no time") && says(unit.err, "60s")) << unit.err;
  const Outcome head = troupe_command({"start", "--head", "--grace", "5s"});
  EXPECT_EQ(head.code, 2);
  EXPECT_TRUE(says(head.err, "--address TOKEN")) << head.err;
}

}  // namespace
}  // namespace troupe::cli
