// Tests `troupe events`, the failures of `status` and the dead nodes of `list nodes` on clusters of
// three nodes, with deaths that the test plants.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <algorithm>
#include <csignal>
#include <set>

namespace troupe::cli {
namespace {

class Events : public Clusters {
 protected:
  static json rows(const std::string& where) { return ask({"events", "--where", where})["rows"]; }
  static std::string printed(std::vector<std::string> arguments) {
    const Outcome outcome = troupe_command(std::move(arguments));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  /// Expects that the text has no control character but the newline.
  static void expect_visible(const std::string& text) {
    for (const char c : text)
      EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
    EXPECT_FALSE(says(text, "\xe2\x80\xae"));
  }
  static json dead_rows() { return ask({"list", "nodes", "--where", "state = dead"})["rows"]; }
};

TEST_F(Events, ACrashThatARetryMendsLeavesAnEventAndAFailure) {
  start({"--nodes", "3", "--cpus", "1"});
  EXPECT_TRUE(eventually([] { return rows("kind = node_joined").size() == 3; }));
  const std::string file = state.string() + "-dies";
  Child program({paths::command(), "run", paths::cli_program(), "plant_death", file});
  ASSERT_TRUE(eventually([&] { return fs::exists(file); }));
  pid_t pid = 0;
  ASSERT_TRUE(std::ifstream(file) >> pid);
  ASSERT_EQ(::kill(pid, SIGSEGV), 0);
  EXPECT_EQ(program.finish(0), 0) << "the job ends well";
  fs::remove(file);

  const json deaths = rows("kind = worker_died and pid = " + std::to_string(pid));
  ASSERT_EQ(deaths.size(), 1U) << ask({"events"});
  EXPECT_EQ(deaths[0]["severity"], "error");
  EXPECT_TRUE(says(deaths[0]["text"], "dies_once")) << deaths;
  EXPECT_TRUE(says(deaths[0]["text"], "signal 11")) << deaths;
  EXPECT_TRUE(says(deaths[0]["last_lines"], "its last line")) << deaths;
  EXPECT_TRUE(says(deaths[0]["node"], "node-")) << deaths;
  EXPECT_EQ(rows("kind = worker_died").size(), 1U) << "no other worker has died by itself";
  EXPECT_TRUE(eventually([] { return rows("kind = job_ended").size() == 1; }));
  const json started = rows("kind = job_started");
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(started[0]["job"], deaths[0]["job"]);
  EXPECT_EQ(ask({"status"})["failures"], 1);
  EXPECT_TRUE(says(printed({"status"}), "1 failure in the last 10 minutes"));
  const std::string screen = printed({"top"});
  EXPECT_TRUE(says(screen, "1 failure in the last 10 minutes\n  1 of dies_once")) << screen;

  const std::string text = printed({"events", "--since", "10m", "--verbose"});
  expect_visible(text);
  EXPECT_TRUE(says(text, "worker_died")) << text;
  EXPECT_TRUE(says(text, "its last line")) << text;
  EXPECT_LT(text.find("job_started"), text.find("worker_died")) << "in the order of time";
  EXPECT_LT(text.find("worker_died"), text.find("job_ended")) << text;
  expect_visible(printed({"get", "event", deaths[0]["id"].get<std::string>()}));

  // Pages together are the whole list.
  const json all = ask({"events"});
  std::set<std::string> ids;
  for (const json& row : all["rows"]) ids.insert(row["id"].get<std::string>());
  EXPECT_EQ(ids.size(), all["total"].get<std::size_t>());
  EXPECT_EQ(ask({"events", "--limit", "2"})["rows"].size(), 2U);
  EXPECT_EQ(ask({"list", "events", "--limit", "2"})["rows"].size(), 2U) << "the same verb";
}

TEST_F(Events, ADeadNodeIsListedWithItsReasonAlsoAfterARestartOfControl) {
  const std::string data = (folder / "data").string();
  const json cluster = start({"--nodes", "3", "--cpus", "1", "--data-folder", data});
  EXPECT_TRUE(dead_rows().empty());
  const auto node = std::find_if(cluster["nodes"].begin(), cluster["nodes"].end(),
                                 [](const json& one) { return one["name"] == "node-2"; });
  ASSERT_NE(node, cluster["nodes"].end()) << cluster;
  ASSERT_EQ(::kill((*node)["pid"].get<pid_t>(), SIGKILL), 0);
  ASSERT_TRUE(eventually([] { return !dead_rows().empty(); }));
  const json before = dead_rows();
  ASSERT_EQ(before.size(), 1U) << before;
  EXPECT_EQ(before[0]["name"], "node-2");
  EXPECT_EQ(before[0]["cpus"], 1);
  EXPECT_FALSE(before[0]["why"].get<std::string>().empty());
  EXPECT_TRUE(before[0]["since_ns"].is_number());
  EXPECT_EQ(ask({"list", "nodes", "--where", "state != dead"})["rows"].size(), 2U);
  const std::string table = printed({"list", "nodes", "--where", "state = dead"});
  EXPECT_TRUE(says(table, "node-2") && says(table, "dead")) << table;
  EXPECT_EQ(ask({"status"})["dead_nodes"][0]["name"], "node-2");
  EXPECT_TRUE(eventually([] { return rows("kind = node_dead").size() == 1; })) << ask({"events"});
  EXPECT_TRUE(says(rows("kind = node_dead")[0]["text"], "node-2 is dead")) << rows("");
  const json unanswered = ask({"events"})["unanswered"];
  ASSERT_EQ(unanswered.size(), 1U) << unanswered;
  EXPECT_EQ(unanswered[0]["node"], "node-2");
  EXPECT_TRUE(says(unanswered[0]["why"], "it is dead, and its events are in the state folder"));
  EXPECT_TRUE(says(printed({"top"}), "nodes that died\n  node-2 died "));

  ASSERT_EQ(::kill(cluster["control"]["pid"].get<pid_t>(), SIGKILL), 0);
  EXPECT_TRUE(eventually([] { return rows("kind = control_started").size() == 1; }))
      << ask({"events"});
  const json after = dead_rows();
  ASSERT_EQ(after.size(), 1U) << after;
  EXPECT_EQ(after[0]["id"], before[0]["id"]);
  EXPECT_EQ(after[0]["why"], before[0]["why"]);
  EXPECT_TRUE(rows("kind = node_silent and node = node-0 and text ~ node-1").empty());
  EXPECT_EQ(troupe_command({"stop"}).code, 0);
  fs::remove_all(data);
}

TEST_F(Events, ADrainedNodeHasLeftAndIsNoFailure) {
  start({"--nodes", "2", "--cpus", "1"});
  const std::string file = state.string() + "-let-go";
  Child program({paths::command(), "run", paths::cli_program(), "hold_node", "node-1", file});
  ASSERT_TRUE(eventually([&] { return fs::exists(file + ".runs"); }));
  Child drain({paths::command(), "drain", "node-1", "--within", "60s"});
  EXPECT_TRUE(eventually([] { return rows("kind = node_draining").size() == 1; }))
      << ask({"events"});
  std::ofstream(file) << "go";
  EXPECT_EQ(program.finish(0), 0);
  EXPECT_EQ(drain.finish(0), 0);
  fs::remove(file);
  fs::remove(file + ".runs");
  EXPECT_TRUE(eventually([] { return rows("kind = node_left").size() == 1; })) << ask({"events"});
  EXPECT_TRUE(dead_rows().empty());
  EXPECT_EQ(ask({"list", "nodes", "--where", "state = left"})["rows"].size(), 1U);
  EXPECT_EQ(ask({"status"})["failures"], 0);
}

TEST_F(Events, FollowPrintsWhatComes) {
  start({"--nodes", "2", "--cpus", "1"});
  Child follow({paths::command(), "events", "--follow", "--where", "kind = job_started"});
  EXPECT_EQ(troupe_command({"run", paths::cli_program(), "sum", "5"}).code, 0);
  EXPECT_TRUE(says(follow.read_until("job_started"), "job_started"));
  follow.finish(SIGTERM);
}

TEST_F(Events, AClosedPipeEndsTheVerbWithoutAWord) {
  start({"--nodes", "2", "--cpus", "1"});
  EXPECT_TRUE(eventually([] { return rows("kind = node_joined").size() == 2; }));
  for (const char* verb : {"events", "events --follow", "events --json", "status", "top",
                           "list nodes", "list processes --json"}) {
    // 124: the verb did not end. A verb may end with 0, or by SIGPIPE.
    const std::string code = folder / "code";
    const Outcome outcome = command({"/bin/sh", "-c",
                                     std::string("{ timeout -k 1 30 ") + paths::command() + " " +
                                         verb + "; echo $? >" + code + "; } | head -n 1"});
    int ended = -1;
    std::ifstream(code) >> ended;
    fs::remove(code);
    EXPECT_TRUE(ended == 0 || ended == 128 + SIGPIPE) << verb << " ended with " << ended;
    EXPECT_EQ(outcome.err, "") << verb;
    EXPECT_FALSE(outcome.out.empty()) << verb;
  }
}

TEST_F(Events, BadQuestionsGetASentence) {
  start({"--nodes", "1", "--cpus", "1"});
  for (const auto& [arguments, words] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"events", "--since", "soon"}, "is no time: give one like 14:00"},
           {{"events", "--where", "colour = red"}, "severity"},
           {{"events", "--where", "kind ="}, "column"},
           {{"events", "--limit", "0"}, "see 'troupe events --help'"}}) {
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_TRUE(says(outcome.err, words)) << outcome.err;
  }
}

}  // namespace
}  // namespace troupe::cli
