// Tests `troupe list`, `get`, `explain` and the waiting tasks of `status` on a cluster of three nodes,
// against a program that knows what it has planted.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <algorithm>
#include <csignal>
#include <future>
#include <set>

namespace troupe::cli {
namespace {

constexpr int kNodes = 3, kQueued = 20, kLinks = 12;

class Lists : public Clusters {
 protected:
  void begin() {
    cluster = start({"--nodes", std::to_string(kNodes), "--cpus", "1"});
    go_on = state.string() + "-go-on";
  }
  void TearDown() override {
    std::ofstream(go_on) << "go on";
    if (program) {
      EXPECT_EQ(program->finish(0), 0);
    }
    program.reset();
    fs::remove(go_on);
    fs::remove(go_on + "-gate");
    Clusters::TearDown();
  }
  void plant(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {paths::command(), "run", paths::cli_program()});
    arguments.push_back(go_on);
    program = std::make_unique<Child>(std::move(arguments));
    ASSERT_TRUE(says(program->read_until("planted\n"), "planted\n"));
  }
  /// Fills the cluster, and waits until each node runs a task.
  void plant_tasks() {
    plant({"plant_tasks", std::to_string(kNodes), std::to_string(kQueued), std::to_string(kLinks)});
    ASSERT_TRUE(eventually([&] { return matched("tasks", "state = running") == kNodes; }));
  }
  static json page(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "list");
    return ask(std::move(arguments));
  }
  static int matched(const std::string& kind, const std::string& where) {
    return page({kind, "--where", where})["matched"].get<int>();
  }
  static std::string text(const std::vector<std::string>& arguments) {
    const Outcome outcome = troupe_command(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  static void refuses(const std::vector<std::string>& arguments, const std::string& words) {
    const Outcome outcome = troupe_command(arguments);
    EXPECT_NE(outcome.code, 0) << outcome.out;
    EXPECT_TRUE(says(outcome.err, words)) << outcome.err;
  }
  json cluster;
  std::string go_on;  ///< a file that ends the program's tasks
  std::unique_ptr<Child> program;
};

TEST_F(Lists, TasksAreTheTruthOfTheProgramThatMadeThem) {
  begin();
  plant_tasks();
  const json all = page({"tasks"});
  EXPECT_EQ(all["kind"], "tasks");
  EXPECT_EQ(all["total"], kNodes + kQueued + kLinks + 1) << all;
  EXPECT_EQ(all["rows"].size(), static_cast<std::size_t>(kNodes + kQueued + kLinks + 1));
  EXPECT_TRUE(all["unanswered"].empty()) << all["unanswered"];
  EXPECT_EQ(matched("tasks", "state = waits_for_arguments"), kLinks);
  EXPECT_EQ(matched("tasks", "state = waits_for_resources and not needs ~ GPU"), kQueued);
  EXPECT_EQ(matched("tasks", "needs ~ GPU"), 1);
  std::set<std::string> workers;
  const json running = page({"tasks", "--where", "state = running"});
  for (const json& row : running["rows"]) {
    EXPECT_TRUE(says(row["function"], "until_file")) << row;
    EXPECT_TRUE(says(row["worker"], "node-")) << row;
    workers.insert(row["worker"].get<std::string>().substr(0, 6));
  }
  EXPECT_EQ(workers.size(), static_cast<std::size_t>(kNodes));
  // Pages together are the whole list, each row once.
  std::set<std::string> ids;
  std::string after;
  std::size_t shown = 0;
  for (;;) {
    std::vector<std::string> arguments{"tasks", "--limit", "7", "--sort", "since"};
    if (!after.empty()) arguments.insert(arguments.end(), {"--after", after});
    const json part = page(arguments);
    for (const json& row : part["rows"]) ids.insert(row["id"].get<std::string>());
    shown += part["rows"].size();
    if (!part.contains("next")) break;
    after = part["next"].get<std::string>();
  }
  EXPECT_EQ(ids.size(), all["rows"].size());
  EXPECT_EQ(shown, ids.size());

  const json functions = page({"functions", "--where", "function ~ until_file"});
  ASSERT_EQ(functions["rows"].size(), 1u) << functions;
  EXPECT_EQ(functions["rows"][0]["running"], kNodes);
  EXPECT_EQ(functions["rows"][0]["waiting"], kQueued);
  EXPECT_TRUE(says(text({"status"}), std::to_string(kQueued + kLinks + 1) + " tasks wait"));

  const std::string id = *ids.begin();
  const json got = ask({"get", "task", id});
  ASSERT_EQ(got["rows"].size(), 1u);
  EXPECT_EQ(got["rows"][0]["id"], id);
  refuses({"get", "task", "nothing-has-this-id"}, "nothing-has-this-id");
}

TEST_F(Lists, ExplainFollowsAChainToWhatRunsAndFindsWhatNobodyHas) {
  begin();
  plant_tasks();
  const json links = page({"tasks", "--where", "state = waits_for_arguments", "--sort", "id:desc"});
  const std::string last = links["rows"][0]["id"];
  const json chain = ask({"explain", last});
  EXPECT_EQ(chain["cause"], "runs") << chain;
  EXPECT_EQ(chain["lines"].size(), static_cast<std::size_t>(kLinks) + 2) << chain;
  EXPECT_TRUE(says(chain.dump(), "until_file")) << chain;

  const json lacking = page({"tasks", "--where", "needs ~ GPU"});
  const json gpu = ask({"explain", lacking["rows"][0]["id"].get<std::string>()});
  EXPECT_EQ(gpu["cause"], "impossible") << gpu;
  EXPECT_TRUE(says(gpu.dump(), "GPU")) << gpu;
  EXPECT_TRUE(says(text({"explain"}), "GPU"));
}

TEST_F(Lists, ExplainNamesActorsThatWaitForEachOther) {
  begin();
  plant({"plant_friends"});
  ASSERT_TRUE(eventually([&] { return says(text({"explain"}), "cycle"); })) << text({"explain"});
  const std::string found = text({"explain"});
  EXPECT_TRUE(says(found, "Friend")) << found;
}

TEST_F(Lists, ASilentProcessOrNodeIsARowAndNoListWaitsForIt) {
  begin();
  plant_tasks();
  const json worker = page({"processes", "--where", "kind = worker and function ~ until_file"});
  ASSERT_FALSE(worker["rows"].empty()) << worker;
  const pid_t stopped = worker["rows"][0]["pid"].get<pid_t>();
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  const auto begun = std::chrono::steady_clock::now();
  const json tasks = page({"tasks"});
  const auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_EQ(::kill(stopped, SIGCONT), 0);
  ASSERT_EQ(tasks["unanswered"].size(), 1u) << tasks["unanswered"];
  EXPECT_EQ(tasks["unanswered"][0]["pid"], stopped);
  EXPECT_EQ(tasks["total"], kNodes + kQueued + kLinks + 1);
  EXPECT_LT(took, 10s) << "one second for the process, and what this machine takes";
}

TEST_F(Lists, AnActorShowsHowManyCallsWaitForIt) {
  begin();
  plant({"plant_queue", "7"});
  EXPECT_TRUE(eventually([&] { return matched("actors", "queue = 7 and state = alive") == 1; }))
      << page({"actors"});
  const json actors = page({"actors"});
  EXPECT_EQ(actors["kind"], "actors");
  EXPECT_EQ(actors["total"], 1) << actors;
}

TEST_F(Lists, AReasonThatAProgramGivesSteersNoTerminal) {
  begin();
  plant({"plant_broken"});
  std::string shown;
  ASSERT_TRUE(eventually([&] {
    shown = text({"status"});
    return says(shown, "its reason");
  })) << shown;
  EXPECT_TRUE(says(shown, "?[2J its reason")) << shown;
  EXPECT_FALSE(says(shown, "\x1b"));
}

TEST_F(Lists, AnObjectThatADriverAloneHoldsHasTheLineThatMadeIt) {
  begin();
  plant({"plant_objects", "6"});
  const json objects = page({"objects", "--where", "state = private and site ~ plants.cpp"});
  EXPECT_EQ(objects["matched"], 6) << objects;
  for (const json& row : objects["rows"]) {
    EXPECT_GE(row["bytes"].get<int>(), 1 << 16) << row;
    EXPECT_TRUE(says(row["maker"], "node-0/")) << row;
  }
}

TEST_F(Lists, WithoutControlAListSaysSoAndEnds) {
  begin();
  const pid_t control = cluster["control"]["pid"].get<pid_t>();
  for (const char* kind : {"nodes", "actors", "jobs", "objects", "names"}) {
    ASSERT_EQ(::kill(control, SIGSTOP), 0);
    const auto begun = std::chrono::steady_clock::now();
    const json list = page({kind});
    const auto took = std::chrono::steady_clock::now() - begun;
    EXPECT_EQ(::kill(control, SIGCONT), 0);
    ASSERT_FALSE(list["unanswered"].empty()) << list;
    EXPECT_EQ(list["unanswered"][0]["node"], "control") << list;
    EXPECT_TRUE(list["rows"].is_array()) << list;
    if (kind == std::string("objects")) {
      const std::string silent = list["unanswered"].dump();
      EXPECT_TRUE((says(silent, "node-1") && says(silent, "node-2")) ||
                  says(silent, "the other nodes"))
          << list;
    }
    EXPECT_LT(took, 10s) << "two seconds, and what this machine takes";
    EXPECT_TRUE(eventually([&] { return page({"nodes"})["matched"] == kNodes; }));
  }
  ASSERT_EQ(::kill(control, SIGSTOP), 0);
  const Outcome names = troupe_command({"list", "names"});
  const Outcome status = troupe_command({"status", "--json"});
  const Outcome shown = troupe_command({"status"});
  EXPECT_EQ(::kill(control, SIGCONT), 0);
  EXPECT_TRUE(says(shown.out, "\nactors and jobs: not known\n")) << shown.out;
  EXPECT_FALSE(says(shown.out, "0 actors")) << shown.out;
  EXPECT_EQ(names.code, 0);
  EXPECT_TRUE(says(names.err, "troupe: rows of control are missing: ")) << names.err;
  EXPECT_EQ(status.code, 3) << "nodes and jobs are not known";
  EXPECT_EQ(json::parse(status.out, nullptr, false)["unanswered"][0]["node"], "control")
      << status.out;
}

TEST_F(Lists, AStoppedAgentIsToldByEveryVerb) {
  begin();
  plant_tasks();
  const std::string task = page({"tasks"})["rows"][0]["id"];
  std::vector<std::vector<std::string>> questions{
      {"status"}, {"top"}, {"explain"}, {"explain", task}, {"get", "task", task}};
  for (const char* kind :
       {"tasks", "functions", "processes", "nodes", "actors", "jobs", "names", "objects", "events"})
    questions.push_back({"list", kind});
  const pid_t agent = cluster["nodes"][1]["pid"].get<pid_t>();
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  EXPECT_TRUE(eventually([] { return !page({"nodes"})["unanswered"].empty(); }, 8s));
  // At once, since control declares the node dead after 10 s.
  std::vector<std::future<Outcome>> asked;
  for (auto question : questions) {
    if (question[0] != "top") question.emplace_back("--json");
    asked.push_back(
        std::async(std::launch::async, [question] { return troupe_command(question); }));
  }
  std::vector<Outcome> answers;
  for (auto& one : asked) answers.push_back(one.get());
  EXPECT_EQ(::kill(agent, SIGCONT), 0);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::string name = questions[i].front() + " " + questions[i].back();
    EXPECT_EQ(answers[i].code, 0) << name << answers[i].err;
    EXPECT_TRUE(says(answers[i].err, "s of node-1 are missing: "))  // rows or events
        << name << answers[i].err;
    if (questions[i][0] == "top") continue;
    const json document = json::parse(answers[i].out, nullptr, false);
    EXPECT_EQ(document["unanswered"][0]["node"], "node-1") << name << document;
  }
}

TEST_F(Lists, WhenTheFirstNodeIsSilentAnotherOneIsAsked) {
  begin();
  const pid_t agent = cluster["nodes"][0]["pid"].get<pid_t>();
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  const Outcome nodes = troupe_command({"list", "nodes", "--json"});
  EXPECT_EQ(::kill(agent, SIGCONT), 0);
  EXPECT_EQ(nodes.code, 0) << nodes.err;
  EXPECT_EQ(json::parse(nodes.out, nullptr, false)["matched"], kNodes) << nodes.out;
}

TEST_F(Lists, AStoppedAgentIsARowOfTheListOfObjects) {
  begin();
  plant_tasks();
  const pid_t agent = cluster["nodes"][1]["pid"].get<pid_t>();
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  const json objects = page({"objects"});
  EXPECT_EQ(::kill(agent, SIGCONT), 0);
  ASSERT_EQ(objects["unanswered"].size(), 1u) << objects;
  EXPECT_EQ(objects["unanswered"][0]["node"], "node-1") << objects;
  EXPECT_EQ(objects["kind"], "objects");
}

TEST_F(Lists, ProcessesNodesActorsAndJobsAreRowsOfOneForm) {
  begin();
  plant_tasks();
  EXPECT_EQ(matched("processes", "kind = agent"), kNodes);
  EXPECT_EQ(matched("processes", "kind = driver"), 1);
  const json workers = page({"processes", "--where", "kind = worker"});
  EXPECT_GE(workers["matched"].get<int>(), kNodes);
  for (const json& row : workers["rows"]) {
    EXPECT_GT(row["anonymous_bytes"].get<long>(), 0) << row;
    EXPECT_TRUE(row["cpu_seconds"].is_number()) << row;
  }
  EXPECT_TRUE(eventually([&] { return matched("nodes", "name = node-2 and cpus_used = 1") == 1; }))
      << page({"nodes"});
  EXPECT_EQ(matched("jobs", "state = running"), 1);
  EXPECT_EQ(matched("actors", "state = alive"), 0);
  EXPECT_TRUE(page({"objects", "--sort", "bytes", "--limit", "3"}).contains("rows"));
}

TEST_F(Lists, BadQuestionsGetASentenceThatSaysWhatIsWrong) {
  begin();
  refuses({"list", "things"}, "known are");
  refuses({"list", "tasks", "--where", "colour = red"}, "function");
  refuses({"list", "tasks", "--where", "state ="}, "column");
  refuses({"list", "tasks", "--sort", "colour"}, "function");
  refuses({"list", "tasks", "--limit", "0"}, "see 'troupe list tasks --help'");
  refuses({"list", "tasks", "--after", "nonsense"}, "ask without it");
  refuses({"get", "thing", "1"}, "the kinds are");
  refuses({"explain", "nothing-has-this-id"}, "nothing-has-this-id");
}

}  // namespace
}  // namespace troupe::cli
