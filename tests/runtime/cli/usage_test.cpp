// Tests the command without a running cluster: help, wrong usage, and what it says where there is
// none.
#include "tests/runtime/cli/command.hpp"

#include "troupe/runtime/os/cluster_file.hpp"
#include "troupe/runtime/version.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Uses a folder of its own for cluster files, so that it meets no other cluster of this user.
class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-cli-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
    setenv("XDG_RUNTIME_DIR", text.c_str(), 1);
    setenv("XDG_STATE_HOME", (folder / "state").c_str(), 1);
    unsetenv("TROUPE_ADDRESS");
  }
  void TearDown() override {
    for (const char* name : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) unsetenv(name);
    fs::remove_all(folder);
  }
  /// Writes the file of a cluster whose launcher is this process and whose socket nobody serves.
  std::string silent_cluster() {
    os::ClusterFile file;
    file.cluster = ClusterId::random();
    file.version = TROUPE_VERSION_TEXT;
    file.protocol = kProtocolVersion;
    file.node = NodeId::random();
    file.node_name = "node-0";
    file.socket_name = "troupe-nobody-" + file.node.str();
    file.nodes = 1;
    file.launcher = getpid();
    file.launched = os::start_of(getpid());
    const std::string path = (folder / "silent.json").string();
    EXPECT_TRUE(os::write_cluster_file(path, file));
    return path;
  }
  fs::path folder;
};

TEST_F(Cli, EveryVerbHelpsWithAnExampleAndItsExitCodes) {
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{},
                                             {"up"},
                                             {"start"},
                                             {"stop"},
                                             {"status"},
                                             {"run"},
                                             {"list"},
                                             {"list", "nodes"},
                                             {"list", "actors"},
                                             {"list", "jobs"},
                                             {"list", "objects"},
                                             {"list", "events"},
                                             {"memory"},
                                             {"top"},
                                             {"job", "stop"},
                                             {"logs"},
                                             {"events"},
                                             {"stack"},
                                             {"doctor"}}) {
    auto arguments = verb;
    arguments.emplace_back("--help");
    const Outcome help = troupe_command(arguments);
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_TRUE(says(help.out, "Example:\n  troupe ")) << help.out;
    EXPECT_TRUE(says(help.out, "Exit codes: 0 done")) << help.out;
    EXPECT_EQ(help.err, "");
    for (const auto& word : verb) EXPECT_TRUE(says(help.out, word));
    EXPECT_FALSE(says(help.out, "--tell")) << "what is between our own processes is not shown";
  }
  EXPECT_EQ(troupe_command({"--version"}).out, std::string("troupe ") + TROUPE_VERSION_TEXT + "\n");
}

TEST_F(Cli, BadUsageEndsWithTwoAndNamesWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{}, "a word is missing"},
      {{"dance"}, "dance"},
      {{"statsu"}, "was 'status' meant?"},
      {{"up", "--nodes", "0"}, "--nodes"},
      {{"up", "--nodes", "201"}, "--nodes"},
      {{"up", "--nodes", "three"}, "--nodes"},
      {{"up", "--cpus", "-1"}, "--cpus"},
      {{"up", "--memory", "much"}, "--memory"},
      {{"up", "--label", "zone"}, "--label"},
      {{"up", "--resource", "license=many"}, "--resource"},
      {{"up", "--listen", "::1"}, "IPv6"},
      {{"up", "--listen", "[::1]:6500"}, "IPv6"},
      {{"up", "--listen", "a..b"}, "'a..b' has no IPv4 address"},
      {{"up", "--colour", "red"}, "--colour"},
      {{"start"}, "--head"},
      {{"status", "--address"}, "--address"},
      {{"list"},
       "known are tasks, functions, processes, nodes, actors, jobs, names, objects, events"},
      {{"list", "event"}, "was 'events' meant?"},
      {{"list", "cats"}, "cats"},
      {{"run"}, "PROGRAM"},
      {{"doctor"}, "--salvage"},
      {{"memory", "--sort", "size"}, "troupe memory: '--sort' is not known here"},
      {{"memory", "--leak-after", "-1"}, "--leak-after"},
      {{"logs", "--tail", "0"}, "--tail"},
      {{"stack"}, "PROCESS"},
      {{"job"}, "known are stop"},
      {{"job", "stop"}, "JOB"},
      {{"list", "objects", "--limit", "0"}, "see 'troupe list objects --help'"},
      {{"list", "object"}, "was 'objects' meant?"},
      {{"run", "--fast", "true"}, "--fast"},
  };
  for (const auto& [arguments, named] : mistakes) {
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 2) << named << ": " << outcome.err;
    EXPECT_TRUE(says(outcome.err, named)) << named << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(Cli, NoVerbThatEndsSomethingIsSuggested) {
  for (const char* word :
       {"tsop", "stp", "stopp", "step", "sto", "Stop", "stops", "forge", "forgets"}) {
    const Outcome outcome = troupe_command({word});
    EXPECT_EQ(outcome.code, 2) << word;
    EXPECT_FALSE(says(outcome.err, "'stop'")) << word << ": " << outcome.err;
    EXPECT_FALSE(says(outcome.err, "'forget'")) << word << ": " << outcome.err;
  }
  EXPECT_TRUE(says(troupe_command({"stat"}).err, "known are")) << "start or status?";
  EXPECT_TRUE(says(troupe_command({"lst"}).err, "was 'list' meant?"));
}

TEST_F(Cli, WithoutAClusterVerbsSayHowToGetOne) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"status"}, {"events"}, {"list", "nodes"}, {"stop"}, {"run", "true"}}) {
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_TRUE(says(outcome.err, "troupe up")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(troupe_command({"stop", "--all"}).code, 0) << "nothing to end is no error";
}

TEST_F(Cli, TheDoctorNamesAFolderInWhichNothingIsToBeSaved) {
  const std::string here = folder.string();
  const Outcome outcome = troupe_command({"doctor", "--salvage", here, "--json"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_TRUE(says(outcome.err, here + " holds no store of control")) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["error"]["code"], "invalid_argument");
}

TEST_F(Cli, WithJsonAFailureIsOneDocumentToo) {
  const Outcome outcome = troupe_command({"status", "--json"});
  EXPECT_EQ(outcome.code, 3);
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["error"]["code"], "unavailable");
  EXPECT_TRUE(says(document["error"]["message"], "troupe up"));
}

TEST_F(Cli, WithJsonBadUsageIsOneDocumentToo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"list", "cats", "--json"},
                                             {"list", "tasks", "--limit", "0", "--json"},
                                             {"list", "tasks", "--json", "--watch"}}) {
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 2);
    const auto document = nlohmann::json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(document["error"]["code"], "invalid_argument") << outcome.out;
    EXPECT_TRUE(says(document["error"]["message"], "--help")) << outcome.out;
  }
}

TEST_F(Cli, AFileThatIsNotOursAloneIsRefused) {
  const std::string path = silent_cluster();
  chmod(path.c_str(), 0644);
  const Outcome outcome = troupe_command({"status", "--address", path});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_TRUE(says(outcome.err, "chmod 600 " + path)) << outcome.err;
  std::ofstream(path) << "{}";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(troupe_command({"list", "jobs", "--address", path}).code, 4);
}

TEST_F(Cli, AClusterThatDoesNotAnswerIsNamedByItsFile) {
  const std::string path = silent_cluster();
  const std::vector<std::pair<std::string, std::string>> variables{{"TROUPE_ADDRESS", path}};
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"status"}, {"list", "nodes"}, {"run", "true"}}) {
    const Outcome outcome = troupe_command(arguments, variables);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_TRUE(says(outcome.err, path)) << outcome.err;
  }
}

TEST_F(Cli, AFolderThatOthersMayEnterIsRefused) {
  fs::create_directory(folder / "troupe");
  chmod((folder / "troupe").c_str(), 0755);
  for (const char* verb : {"up", "start"}) {
    std::vector<std::string> arguments{verb};
    if (arguments[0] == "start") arguments.emplace_back("--head");
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_TRUE(says(outcome.err, "not yours alone")) << outcome.err;
  }
}

}  // namespace
}  // namespace troupe::cli
