// Tests trials on joined clusters: their output, and nodes that go and come.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

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

class TrialOutput : public Clusters {
 protected:
  /// Runs the program that prints, on two nodes, and returns its lines.
  std::vector<std::string> run(const std::string& folder, std::string* errors = nullptr) {
    const json head = start({"--nodes", "2", "--cpus", "2"});
    EXPECT_EQ(head["nodes"].size(), 2U);
    const Outcome outcome = troupe_command({"run", paths::cli_program(), "tune_prints", folder});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(troupe_command({"stop"}).code, 0);
    if (errors != nullptr) *errors = outcome.err;
    return lines_in(outcome.out);
  }
  static std::vector<std::string> lines_in(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  static std::vector<std::string> file(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return lines_in(text.str());
  }
  /// Returns the lines that have the text, in their order.
  static std::vector<std::string> with(const std::vector<std::string>& lines,
                                       const std::string& text) {
    std::vector<std::string> found;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
                 [&text](const std::string& line) { return says(line, text); });
    return found;
  }
};

/// What trials and their ranks print comes whole and in order, also what a process printed before
/// it was killed. Lines of other tasks stay as they are.
TEST_F(TrialOutput, OnNodesOfAClusterIsShownAndKeptByTrial) {
  const std::string folder = state.string() + "-study";
  std::vector<std::string> all;  // that the driver is to show
  const std::vector<std::string> shown = run(folder);
  for (int trial = 0; trial < 4; ++trial) {
    const std::string number = std::to_string(trial);
    const std::vector<std::string> kept =
        file(std::string(folder).append("/logs/trial-").append(number).append(".txt"));
    std::vector<std::string> lines;
    if (trial == 1)
      for (int i = 0; i < 1000; ++i) lines.push_back("attempt 1 line " + std::to_string(i));
    const std::string attempt = trial == 1 ? "2" : "1";
    for (const char* line : {"0", "1"}) lines.push_back("attempt " + attempt + " line " + line);
    EXPECT_EQ(with(kept, "attempt "), lines) << trial;
    EXPECT_EQ(with(kept, "a warning").size(), trial == 1 ? 2U : 1U) << trial;
    EXPECT_EQ(with(kept, "without an end").size(), 1U) << trial;
    for (const std::string rank : {"0", "1"})
      EXPECT_EQ(with(kept, "rank " + rank + " "),
                (std::vector<std::string>{"rank " + rank + " step 1", "rank " + rank + " step 2",
                                          "rank " + rank + " step 3", "rank " + rank + " ends"}))
          << trial;
    EXPECT_EQ(kept.size(), lines.size() + (trial == 1 ? 11U : 10U)) << trial;
    const std::string before = "t" + number + ": ";
    for (const std::string& line : kept) all.push_back(before + line);
  }
  std::vector<std::string> of_trials;
  std::copy_if(shown.begin(), shown.end(), std::back_inserter(of_trials),
               [](const std::string& line) { return line[0] == 't' && line[2] == ':'; });
  std::sort(of_trials.begin(), of_trials.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(of_trials, all);
  const std::vector<std::string> tasks = with(shown, " node=node-");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_TRUE(tasks[0].starts_with("(says pid=") && tasks[0].ends_with(") task 1")) << tasks[0];
  EXPECT_TRUE(tasks[1].ends_with(") task 2")) << tasks[1];
  EXPECT_EQ(shown.size(), of_trials.size() + tasks.size());
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

/// Without a folder and a view, the lines are those of any actor of the job.
TEST_F(TrialOutput, WithoutAStudyAndAViewGoesWhereThatOfActorsGoes) {
  std::string errors;
  const std::vector<std::string> shown = run("", &errors);
  EXPECT_EQ(with(shown, " node=node-").size(), shown.size());
  EXPECT_EQ(with(shown, "attempt 1 line ").size(), 1006U);
  EXPECT_EQ(with(shown, "attempt 2 line ").size(), 2U);
  EXPECT_EQ(with(shown, ") rank 1 step 3").size(), 4U);
  EXPECT_EQ(with(shown, "tune: ").size(), 0U) << "no mark";
  EXPECT_EQ(with(lines_in(errors), ") a warning").size(), 5U) << errors;
}

}  // namespace
}  // namespace troupe::cli
