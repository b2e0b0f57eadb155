// Tests `troupe job stop` on a cluster of two nodes: a driver that waits, and one that does not.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include "troupe/runtime/os/user_name.hpp"

namespace troupe::cli {
namespace {

class JobStop : public Clusters {
 protected:
  /// Starts a program that has planted what its arguments say, and returns it.
  std::unique_ptr<Child> plant(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {paths::command(), "run", paths::cli_program()});
    auto program = std::make_unique<Child>(std::move(arguments));
    EXPECT_TRUE(says(program->read_until("planted\n"), "planted\n"));
    return program;
  }
  /// Returns the row of the job in the state; null: there is none.
  static json job_in(const std::string& state) {
    const json jobs = ask({"list", "jobs", "--where", "state = " + state});
    return jobs["rows"].empty() ? json() : jobs["rows"][0];
  }
};

TEST_F(JobStop, ADriverThatWaitsIsCancelledAndItsJobIsStopped) {
  start({"--nodes", "2", "--cpus", "1"});
  const auto program = plant({"plant_wait", state.string() + "-never"});
  const json job = job_in("running");
  ASSERT_FALSE(job.is_null());
  EXPECT_EQ(job["user"], os::user_name());
  EXPECT_EQ(job["pid"], program->pid());
  EXPECT_GT(job["started_unix_ns"].get<std::int64_t>(), 0);
  const json stopped = ask({"job", "stop", job["id"].get<std::string>().substr(0, 12)});
  const std::string why = "stopped by " + os::user_name() + " with troupe job stop";
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_EQ(stopped["why"], why);
  EXPECT_LT(stopped["seconds"].get<double>(), 9.0) << "it was not killed";
  const std::string said = program->read_until(why + "\n");
  EXPECT_TRUE(says(said, "the job was " + why)) << said;
  EXPECT_EQ(program->finish(0), 5) << "it goes on as it likes";
  const json row = job_in("stopped");
  ASSERT_FALSE(row.is_null());
  EXPECT_EQ(row["why"], why);
  EXPECT_GE(row["ended_unix_ns"].get<std::int64_t>(), row["started_unix_ns"].get<std::int64_t>());
}

TEST_F(JobStop, ADriverAtAnotherNodeIsToldByItsAgent) {
  const json head = start({"--nodes", "1", "--cpus", "1", "--join-tokens", "1"});
  const Outcome joined =
      troupe_command({"start", "--address", head["join_tokens"][0].get<std::string>(), "--cpus",
                      "1", "--memory", "64MiB", "--json"});
  ASSERT_EQ(joined.code, 0) << joined.err;
  const std::string there = json::parse(joined.out)["file"];
  Child program({paths::command(), "run", "--address", there, paths::cli_program(), "plant_wait",
                 state.string() + "-never"});
  ASSERT_TRUE(says(program.read_until("planted\n"), "planted\n"));
  const json job = job_in("running");
  ASSERT_FALSE(job.is_null());
  EXPECT_NE(job["node"], "node-0") << job;
  const json stopped = ask({"job", "stop", "--address", head["file"].get<std::string>(),
                            job["name"].get<std::string>()});
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_EQ(program.finish(0), 5);
}

TEST_F(JobStop, ADriverThatDoesNotWaitIsKilledByItsNode) {
  start({"--nodes", "2", "--cpus", "1"});
  const auto program = plant({"plant_loop"});
  const json job = job_in("running");
  ASSERT_FALSE(job.is_null());
  const json stopped = ask({"job", "stop", job["name"].get<std::string>()});
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_GE(stopped["seconds"].get<double>(), 9.9) << "it had its time";
  EXPECT_EQ(program->finish(0), 128 + SIGKILL);
}

TEST_F(JobStop, ASilentControlIsToldOfWithin2SecondsAndWaitedFor) {
  const json cluster = start({"--nodes", "1", "--cpus", "1"});
  const auto program = plant({"plant_loop"});
  const json job = job_in("running");
  ASSERT_FALSE(job.is_null());
  Child stop({"/bin/sh", "-c", "exec \"$0\" job stop \"$1\" 2>&1", paths::command(),
              job["id"].get<std::string>()});
  const std::string told = stop.read_until("is told to stop");
  ASSERT_TRUE(says(told, "is told to stop")) << told;
  const pid_t control = cluster["control"]["pid"];
  ASSERT_EQ(::kill(control, SIGSTOP), 0);
  const auto begin = std::chrono::steady_clock::now();
  const std::string silent = stop.read_until("is asked again", 9s);
  const auto passed = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(::kill(control, SIGCONT), 0);
  EXPECT_TRUE(says(silent, "control does not answer")) << silent;
  EXPECT_LT(passed, 4s) << "2 s, and what a busy machine adds";
  const std::string last = stop.read_until(" is stopped after");
  EXPECT_TRUE(says(last, " is stopped after")) << last;
  EXPECT_EQ(last.find("control does not answer"), last.rfind("control does not answer")) << last;
  EXPECT_EQ(stop.finish(0), 0);
  EXPECT_EQ(program->finish(0), 128 + SIGKILL);
}

TEST_F(JobStop, AnEndedOrUnknownJobIsRefusedInASentence) {
  start({"--nodes", "1", "--cpus", "1"});
  const Outcome none = troupe_command({"job", "stop", "train"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "has run no job")) << none.err;
  ASSERT_EQ(troupe_command({"run", paths::cli_program(), "one_line"}).code, 0);
  const json job = job_in("finished");
  ASSERT_FALSE(job.is_null());
  const Outcome ended = troupe_command({"job", "stop", job["id"].get<std::string>()});
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(says(ended.err, "has ended: it is finished") && says(ended.err, "troupe list jobs"))
      << ended.err;
  const Outcome unknown = troupe_command({"job", "stop", "nothing-has-this-id"});
  EXPECT_EQ(unknown.code, 2);
  for (const std::string& few : {std::string(), job["id"].get<std::string>().substr(0, 7)}) {
    const Outcome vague = troupe_command({"job", "stop", few});
    EXPECT_EQ(vague.code, 2) << few;
    EXPECT_TRUE(says(vague.err, "troupe list jobs") && !says(vague.err, "ended")) << vague.err;
  }
  EXPECT_TRUE(says(unknown.err, "nothing-has-this-id")) << unknown.err;
}

}  // namespace
}  // namespace troupe::cli
