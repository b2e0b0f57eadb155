// Plants the situations of runtime/docs/operate.md on three nodes, and asks each question as a person
// does. One cluster and one program serve many questions, so that the test is short.
#include "tests/leeway.hpp"
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <csignal>
#include <memory>
#include <utility>

namespace troupe::cli {
namespace {

class Questions : public Clusters {
 protected:
  void begin() {
    cluster = start({"--nodes", "3", "--cpus", "2"});
    go_on = state.string() + "-go-on";
  }
  void TearDown() override {
    std::ofstream(go_on) << "go on";
    if (program) {
      EXPECT_EQ(program->finish(0), 0);
    }
    program.reset();
    fs::remove(go_on);
    fs::remove(go_on + "-left");
    Clusters::TearDown();
  }
  void plant() {
    program = std::make_unique<Child>(std::vector<std::string>{
        paths::command(), "run", paths::cli_program(), "plant_all", go_on});
    ASSERT_TRUE(says(program->read_until("planted\n"), "planted\n"));
    ASSERT_TRUE(eventually([&] { return rows("tasks", "state = running").size() == 6; }, 20s))
        << text({"list", "tasks"});
  }
  static json rows(const std::string& kind, const std::string& where,
                   const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"list", kind, "--where", where};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ask(std::move(arguments))["rows"];
  }
  /// Returns the only row that the filter finds.
  static json row(const std::string& kind, const std::string& where) {
    json found = rows(kind, where);
    EXPECT_EQ(found.size(), 1u) << where << ": " << found << text({"list", kind});
    return found.empty() ? json::object() : found[0];
  }
  static std::string text(std::vector<std::string> arguments) {
    const Outcome outcome = troupe_command(std::move(arguments));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  static std::string id_of_task(const std::string& function) {
    return row("tasks", "function ~ " + function)["id"].get<std::string>();
  }
  /// Expects that the answer has this cause and all of these words.
  static void explains(const std::string& id, const std::string& cause,
                       const std::vector<std::string>& words) {
    const json answer = ask({"explain", id});
    EXPECT_EQ(answer["cause"], cause) << answer;
    for (const std::string& word : words) EXPECT_TRUE(says(answer.dump(), word)) << word << answer;
  }
  static std::string process_of(const json& process) {
    return process["node"].get<std::string>() + "/" + std::to_string(process["pid"].get<int>());
  }
  json cluster;
  std::string go_on;  ///< a file that ends the program's tasks
  std::unique_ptr<Child> program;
};

TEST_F(Questions, OfWaitsAreAnsweredWithTheirCause) {
  begin();
  plant();
  // A full cluster: it names who holds it.
  const std::string full = id_of_task("waits_for_room");
  EXPECT_TRUE(eventually([&] {
    return says(ask({"explain", full}).dump(), "They are held by process node-");
  })) << ask({"explain", full});
  explains(full, "lacks", {"CPU"});
  // What nobody has.
  explains(id_of_task("needs_a_licence"), "impossible", {"licence", "start a node that has it"});
  EXPECT_TRUE(says(text({"explain"}), "licence"));
  // A constructor that takes long, and an actor without a place.
  explains(row("actors", "class ~ Slow")["id"], "runs", {"Slow", "runs its constructor"});
  explains(row("actors", "name = homeless")["id"], "lacks", {"has no place yet", "seat"});
  // An argument that a process of another node makes.
  const std::string behind = id_of_task("goes_on_behind");
  explains(behind, "runs", {"waits", "its argument", "works_for_another"});
  // All six run, and since when; the others wait, and why.
  EXPECT_EQ(rows("tasks", "state = running and since > 1ms", {"--sort", "since"}).size(), 6u);
  EXPECT_EQ(rows("tasks", "state = running and since > 10h").size(), 0u);
  const json status = ask({"status"});
  EXPECT_TRUE(says(text({"status"}), "licence")) << status;

  // A process that is stopped keeps its lease, and is named.
  const json held = row("tasks", "state = running and function ~ holds_memory");
  const std::string holder = held["worker"];
  const json worker = row("processes", "kind = worker and function ~ holds_memory");
  EXPECT_EQ(process_of(worker), holder);
  ASSERT_EQ(::kill(worker["pid"].get<pid_t>(), SIGSTOP), 0);
  EXPECT_TRUE(eventually(
      [&] { return row("processes", "function ~ holds_memory")["state"] == "stopped"; }));
  const json of_holder = ask({"explain", held["id"].get<std::string>()});
  EXPECT_EQ(::kill(worker["pid"].get<pid_t>(), SIGCONT), 0);
  EXPECT_TRUE(says(of_holder.dump(), holder)) << of_holder;

  // The owner of an argument does not answer, then its node is dead: the task ends with that news.
  for (const json& process : rows("processes", "node = node-2 and kind = worker"))
    ASSERT_EQ(::kill(process["pid"].get<pid_t>(), SIGSTOP), 0);
  const json silent = ask({"explain", behind});
  EXPECT_TRUE(says(silent.dump(), "node-2/")) << silent;
  for (const json& process : rows("processes", "node = node-2 and kind = worker"))
    ::kill(process["pid"].get<pid_t>(), SIGKILL);
  for (const json& node : cluster["nodes"])
    if (node["name"] == "node-2") {
      ASSERT_EQ(::kill(node["pid"].get<pid_t>(), SIGKILL), 0);
    }
  std::ofstream(go_on) << "go on";
  EXPECT_TRUE(says(program->read_until("behind: ", 30s), "behind: "));
  const std::string news = program->read_until("\n", 1s);
  EXPECT_TRUE(says(news, "the node that owned the object is gone") || says(news, "node-2")) << news;
}

TEST_F(Questions, OfProcessesAreAnsweredWithWhatTheyDo) {
  begin();
  plant();
  // Who has the memory, who burns CPU time, and where each is.
  const std::string workers = "kind = worker or kind = actor";
  EXPECT_TRUE(eventually([&] {  // the task fills its memory after it has begun
    const json largest = rows("processes", workers, {"--sort", "anonymous", "--limit", "1"});
    return largest.size() == 1 && says(largest[0]["function"], "holds_memory") &&
           largest[0]["anonymous_bytes"].get<std::int64_t>() >= std::int64_t{96} << 20;
  })) << text({"list", "processes"});
  EXPECT_TRUE(eventually([&] {
    const json busiest = rows("processes", workers, {"--sort", "cpu_seconds", "--limit", "1"});
    return busiest.size() == 1 && says(busiest[0]["function"], "burns_time");
  })) << text({"list", "processes"});
  // What is known of one thing, by an id and by the beginning of one.
  const json burner = row("processes", "function ~ burns_time");
  EXPECT_EQ(ask({"get", "process", process_of(burner)})["rows"][0]["pid"], burner["pid"]);
  const json patient = row("actors", "name = patient");
  EXPECT_EQ(patient["state"], "alive");
  EXPECT_EQ(ask({"get", "actor", patient["id"].get<std::string>()})["rows"][0]["name"], "patient");
  // Which function has the most tasks.
  const json functions = rows("functions", "waiting > 0", {"--sort", "waiting", "--limit", "1"});
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_TRUE(says(functions[0]["function"], "fills_a_cpu")) << functions;
  // Which nodes are there and what is free; who else uses the cluster.
  EXPECT_TRUE(eventually([&] { return rows("nodes", "cpus = 2 and cpus_used = 2").size() == 3; }))
      << text({"list", "nodes"});
  EXPECT_TRUE(says(row("jobs", "state = running")["name"], "cli_program"));
  // Where a process, an actor and a job are now.
  if (kLeeway > 2) return;  // a sanitizer's process has another stack
  const std::string of_process = text({"stack", process_of(burner)});
  if (says(of_process, "stacks are missing")) GTEST_SKIP() << of_process;
  EXPECT_TRUE(says(of_process, "spins_here")) << of_process;
  const std::string of_actor = text({"stack", patient["id"].get<std::string>()});
  EXPECT_TRUE(says(of_actor, "waits_in_a_method")) << of_actor;
  EXPECT_TRUE(says(text({"stack", "patient"}), "waits_in_a_method"));
  const std::string job = row("jobs", "state = running")["id"];
  const std::string of_job = text({"stack", job});
  EXPECT_TRUE(says(of_job, "spins_here") && says(of_job, "waits_in_a_method")) << of_job;
}

TEST_F(Questions, OfACrashAreAnsweredByItsError) {
  begin();
  if (kLeeway > 2) GTEST_SKIP() << "a sanitizer handles the signals";
  const Outcome outcome = troupe_command({"run", paths::cli_program(), "fall"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(says(outcome.out, "lines: about to fall with 7\n")) << outcome.out;
  EXPECT_TRUE(says(outcome.out, "killed by SIGSEGV")) << outcome.out;
  EXPECT_TRUE(says(outcome.out, "cli_program+0x") || says(outcome.out, "falls_here"))
      << outcome.out;
  // What it printed stays, with the node and the process.
  const std::string printed = text({"logs", "--node", "node-1", "--time"});
  EXPECT_TRUE(says(printed, "node=node-1) about to fall with 7")) << printed;
  EXPECT_EQ(troupe_command({"logs", "--node", "node-2"}).code, 1) << "it printed nothing";
}

}  // namespace
}  // namespace troupe::cli
