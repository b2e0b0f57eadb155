// Tests the verbs of `troupe tune`, on studies that run and on idle ones.
#include "clusters.hpp"

#include "tests/paths.hpp"
#include "tests/tune/study/owners.hpp"
#include "troupe/tune/study/study_store.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace troupe::cli {
namespace {

using nlohmann::json;

class StudyVerbs : public testing::Test {
 protected:
  ~StudyVerbs() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::unique_ptr<tune::StudyStore> open(const std::string& name) const {
    tune::StudyStoreOptions options;
    options.free_space = [] { return Bytes{1ull << 40}; };
    return tune::StudyStore::open(root_ + "/" + name, options).value();
  }
  void make(const std::string& name) const {
    tune::StudyBatch batch{.first_event = 1, .events = {"{}", "{}"}};
    batch.meta = R"({"schema":3,"name":"resnet","metric":"accuracy","goal":"maximize"})";
    batch.trials = {{0, R"({"state":"completed","step":9,"score":0.5,"params":{"lr":0.1}})"},
                    {1, R"({"state":"running","step":3,"score":0.75,"params":{"lr":0.2}})"},
                    {2, R"({"state":"waiting","score":null})"}};
    ASSERT_TRUE(open(name)->write(batch).ok());
  }
  static json ask(const std::vector<std::string>& arguments, int code = 0) {
    std::vector<std::string> all = arguments;
    all.emplace_back("--json");
    const Outcome o = troupe_command(all);
    EXPECT_EQ(o.code, code) << o.out << o.err;
    return json::parse(o.out);
  }

  std::string root_ = [] {
    std::string name = testing::TempDir() + "troupe_studies_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

TEST_F(StudyVerbs, ShowHasTheTrialsAndTheBest) {
  make("a");
  const json study = ask({"tune", "show", root_ + "/a"});
  EXPECT_EQ(study.at("meta").at("name"), "resnet");
  EXPECT_EQ(study.at("events"), 2);
  EXPECT_EQ(study.at("best"), 1);
  ASSERT_EQ(study.at("trials").size(), 3u);
  EXPECT_EQ(study.at("trials")[0].at("params").at("lr"), 0.1);
  const Outcome people = troupe_command({"tune", "show", root_ + "/a"});
  EXPECT_EQ(people.code, 0);
  EXPECT_NE(people.out.find("3 trials, 2 events, best accuracy 0.75 (trial 1)"), std::string::npos)
      << people.out;
  EXPECT_NE(people.out.find("lr=0.2"), std::string::npos) << people.out;
  EXPECT_EQ(troupe_command({"tune", "show", root_ + "/b"}).code, 2);
}

TEST_F(StudyVerbs, ListNamesStudiesThatRunAndSuchAsCannotBeRead) {
  make("a");
  make("b");
  make("c");
  std::filesystem::remove(root_ + "/b/synced");
  std::filesystem::create_directory(root_ + "/other");
  const auto owner = open("c");
  const json studies = ask({"tune", "list", root_}).at("studies");
  ASSERT_EQ(studies.size(), 3u);
  EXPECT_EQ(studies[0].at("state"), "idle");
  EXPECT_EQ(studies[0].at("trials"), 3);
  EXPECT_EQ(studies[1].at("state"), "unreadable");
  EXPECT_EQ(studies[2].at("state"), "running");
  EXPECT_EQ(studies[2].at("owner").at("pid"), ::getpid());
  const Outcome o = troupe_command({"tune", "show", root_ + "/c"});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("pid " + std::to_string(::getpid())), std::string::npos) << o.err;
}

TEST_F(StudyVerbs, DoctorSavesWhatCanBeRead) {
  make("a");
  std::filesystem::remove(root_ + "/a/synced");
  EXPECT_EQ(troupe_command({"tune", "show", root_ + "/a"}).code, 4);
  const std::string to = root_ + "/saved.jsonl";
  const json seen = ask({"tune", "doctor", root_ + "/a", "--to", to});
  EXPECT_EQ(seen.at("damaged"), true);
  EXPECT_EQ(seen.at("records").at("event"), 2);
  EXPECT_EQ(seen.at("missing_events"), 0);
  std::ifstream in(to);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) EXPECT_TRUE(json::accept(line)) << line;
  EXPECT_EQ(lines, 6);
  const Outcome people = troupe_command({"tune", "doctor", root_ + "/a"});
  EXPECT_NE(people.out.find("Can be read: 2 events, 1 meta, 3 trials."), std::string::npos)
      << people.out;
}

std::string why_refused(std::vector<std::string> arguments, int code) {
  arguments.insert(arguments.begin(), "tune");
  const Outcome o = troupe_command(arguments);
  EXPECT_EQ(o.code, code) << o.out << o.err;
  return o.err;
}

TEST_F(StudyVerbs, TrialsArePickedAndSorted) {
  make("a");
  const std::string study = root_ + "/a";
  const json some = ask({"tune", "trials", study, "--where", "lr > 0.05 and accuracy < 0.7"});
  EXPECT_EQ(some.at("matched"), 1);
  EXPECT_EQ(some.at("trials")[0].at("number"), 0);
  const json best = ask({"tune", "trials", study, "--sort", "score", "--limit", "2"});
  EXPECT_EQ(best.at("matched"), 3);
  ASSERT_EQ(best.at("trials").size(), 2u);
  EXPECT_EQ(best.at("trials")[0].at("number"), 1) << "the goal is to maximize";
  EXPECT_EQ(best.at("trials")[1].at("number"), 0);
  const Outcome people =
      troupe_command({"tune", "trials", study, "--sort", "lr:asc", "--limit", "1"});
  EXPECT_EQ(people.code, 0) << people.err;
  EXPECT_NE(people.out.find("lr=0.1"), std::string::npos) << people.out;
  EXPECT_NE(people.out.find("1 of 3 trials; --limit shows more"), std::string::npos) << people.out;
  EXPECT_EQ(troupe_command({"tune", "trials", study, "--where", "state = failed"}).out,
            "no trial fits\n");
  EXPECT_NE(why_refused({"trials", study, "--where", "score >"}, 2).find("--where: column 8"),
            std::string::npos)
      << why_refused({"trials", study, "--where", "score >"}, 2);
  EXPECT_NE(why_refused({"trials", study, "--sort", "colour"}, 2).find("--sort: "),
            std::string::npos);
}

TEST_F(StudyVerbs, AStudyThatRunsIsShownByItsOwner) {
  tune::studies::Owner owner(root_ + "/a");
  owner.act([](tune::Experiment& e, Time now) {
    e.reported(1, 1, {.step = 3, .score = 0.75, .metrics = {{"f1", 0.5}}}, now);
  });
  const json study = ask({"tune", "show", root_ + "/a"});
  EXPECT_EQ(study.at("state"), "running");
  EXPECT_EQ(study.at("owner").at("pid"), ::getpid());
  EXPECT_EQ(study.at("planned"), 20);
  EXPECT_EQ(study.at("best"), 1);
  EXPECT_EQ(study.at("trials").size(), 3u);
  const json list = ask({"tune", "list", root_}).at("studies");
  EXPECT_EQ(list[0].at("state"), "running");
  EXPECT_EQ(list[0].at("trials"), 3);
  EXPECT_EQ(list[0].at("best"), 1);
  const json picked = ask({"tune", "trials", root_ + "/a", "--where", "f1 = 0.5"});
  EXPECT_EQ(picked.at("matched"), 1);
  const Outcome people = troupe_command({"tune", "show", root_ + "/a"});
  EXPECT_NE(people.out.find("best accuracy 0.75 (trial 1), runs (pid "), std::string::npos)
      << people.out;
}

TEST_F(StudyVerbs, CommandsChangeAStudyThatRuns) {
  const std::string study = root_ + "/a";
  tune::studies::Owner owner(study);
  const Outcome added = troupe_command({"tune", "add", study, "lr=0.5", "optimizer=adam"});
  EXPECT_EQ(added.code, 0) << added.err;
  EXPECT_EQ(added.out, "added lr=0.5 optimizer=adam; 20 trials are planned\n");
  EXPECT_EQ(ask({"tune", "set", study, "trials=40", "time_limit=2h"}).at("planned"), 40);
  EXPECT_EQ(ask({"tune", "pause", study, "1"}).at("paused"), true);
  const Outcome paused = troupe_command({"tune", "pause", study});
  EXPECT_EQ(
      paused.out,
      "the study is paused: no attempt starts, and those that run stop at their next report\n");
  EXPECT_EQ(ask({"tune", "show", study}).at("paused"), true);
  EXPECT_NE(troupe_command({"tune", "show", study}).out.find(", is paused (pid "),
            std::string::npos);
  EXPECT_NE(why_refused({"pause", study}, 2).find("the study is paused already"),
            std::string::npos);
  EXPECT_EQ(troupe_command({"tune", "resume", study}).out, "the study goes on\n");
  EXPECT_EQ(ask({"tune", "show", study}).at("paused"), false);
  EXPECT_EQ(ask({"tune", "stop", study, "0"}).at("state"), "leaving");
  owner.act([](tune::Experiment& e, Time now) {
    e.ended(0, 1, "", now);
    ASSERT_EQ(e.board().trials.size(), 4u);
    EXPECT_EQ(e.board().trials[3].params, (tune::Point{0.5, 1}));
  });
  EXPECT_NE(why_refused({"stop", study, "0"}, 2).find("trial 0 is over: it stopped"),
            std::string::npos);
  EXPECT_NE(why_refused({"stop", study, "99"}, 2).find("trial 99 does not exist"),
            std::string::npos);
  EXPECT_NE(why_refused({"set", study, "goal=minimize"}, 2).find("'goal' is no option that may"),
            std::string::npos);
  EXPECT_NE(why_refused({"set", study, "trials"}, 2).find("'trials' is no name=value"),
            std::string::npos);
  EXPECT_NE(why_refused({"add", study, "lr=7", "optimizer=adam"}, 2).find("lr = '7' is outside"),
            std::string::npos);
  EXPECT_NE(why_refused({"add", study, "lr=0.1", "lr=0.2"}, 2).find("lr has two values"),
            std::string::npos);
  const json error = ask({"tune", "stop", study, "99"}, 2);
  EXPECT_EQ(error.at("error").at("code"), "invalid_argument");
}

TEST_F(StudyVerbs, CommandsToAnIdleStudyAreRefused) {
  make("a");
  const std::vector<std::vector<std::string>> all = {{"add", root_ + "/a", "lr=0.1"},
                                                     {"stop", root_ + "/a", "1"},
                                                     {"pause", root_ + "/a"},
                                                     {"resume", root_ + "/a", "1"},
                                                     {"set", root_ + "/a", "trials=9"}};
  for (const auto& arguments : all)
    EXPECT_NE(why_refused(arguments, 3).find("no process runs the study"), std::string::npos);
  EXPECT_EQ(ask({"tune", "show", root_ + "/a"}).at("events"), 2);
}

TEST_F(StudyVerbs, FollowPrintsEventsUntilTheStudyIsOver) {
  tune::studies::Owner owner(root_ + "/a");
  Child people({paths::command(), "tune", "show", root_ + "/a", "--follow"});
  EXPECT_NE(people.line().find("3 trials"), std::string::npos);  // printed once it follows
  owner.act([](tune::Experiment& e, Time now) { EXPECT_TRUE(e.stop(2, now).ok()); });
  owner.act([](tune::Experiment& e, Time now) { e.ended(2, 1, "", now); });
  EXPECT_NE(people.read_until("the user stopped it").find("trial 2"), std::string::npos);
  owner.act([](tune::Experiment& e, Time now) {
    e.cancel(now);
    for (const int trial : {0, 1, 3}) e.ended(trial, 1, "killed", now);
    EXPECT_TRUE(e.over());
  });
  EXPECT_EQ(people.finish(0), 0);
  auto last = std::make_unique<tune::studies::Owner>(root_ + "/b");
  Child machine({paths::command(), "tune", "show", root_ + "/b", "--follow", "--json"});
  // Reports go on until one is printed: the command has begun to follow then.
  for (long step = 1; step <= 30 && !says(machine.read_until("\n", 1s), "\n"); ++step)
    last->act([&](tune::Experiment& e, Time now) {
      e.reported(0, 1, {.step = step, .score = 0.5}, now);
    });
  const json first = json::parse(machine.line());
  EXPECT_GT(first.at("number"), 1);
  EXPECT_TRUE(first.at("event").contains("event"));
  last.reset();
  EXPECT_EQ(machine.finish(0), 0);
}

TEST_F(StudyVerbs, AStoppedOwnerIsNamed) {
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const tune::studies::Owner owner(root_ + "/a");
    if (::write(channel[1], "y", 1) == 1) ::pause();
    ::_exit(0);
  }
  char begun = 'n';
  EXPECT_EQ(::read(channel[0], &begun, 1), 1);
  EXPECT_EQ(troupe_command({"tune", "show", root_ + "/a"}).code, 0);
  ::kill(pid, SIGSTOP);
  const std::string why = why_refused({"stop", root_ + "/a", "1"}, 3);
  EXPECT_NE(why.find("(pid " + std::to_string(pid) + ") has not answered within 5 s"),
            std::string::npos)
      << why;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  ::close(channel[0]);
  ::close(channel[1]);
  EXPECT_EQ(ask({"tune", "show", root_ + "/a"}).at("state"), "idle") << "its socket is still there";
}

TEST_F(StudyVerbs, LogsPrintsTheLinesOfATrial) {
  make("a");
  EXPECT_NE(why_refused({"logs", root_ + "/a", "1"}, 1).find("has no lines of trial 1"),
            std::string::npos);
  std::ofstream(root_ + "/a/logs/trial-1.txt") << "epoch 1\n\x1b[2Jepoch 2\n";
  const Outcome people = troupe_command({"tune", "logs", root_ + "/a", "1"});
  EXPECT_EQ(people.code, 0) << people.err;
  EXPECT_EQ(people.out, "epoch 1\n\\x1b[2Jepoch 2\n");
  const json lines = ask({"tune", "logs", root_ + "/a", "1"});
  EXPECT_EQ(lines.at("lines"), (json::array({"epoch 1", "\x1b[2Jepoch 2"})));
  EXPECT_EQ(troupe_command({"tune", "logs", root_ + "/a", "x"}).code, 2);
}

}  // namespace
}  // namespace troupe::cli
