// Tests jobs that share a cluster of real processes: drivers that come and go, the objects and
// actors that outlive them, those that do not, and how programs reach the nodes.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

namespace {

using namespace troupe::cli;

/// Collects the living descendants of `parent`, by their name in /proc, without zombies.
void collect(int parent, std::multimap<std::string, int>& found) {
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    std::ifstream stat(std::string("/proc/") + entry->d_name + "/stat");
    int pid = 0, its_parent = 0;
    std::string name, state;
    if (!(stat >> pid >> name >> state >> its_parent) || its_parent != parent || state == "Z")
      continue;
    found.emplace(name, pid);
    collect(pid, found);
  }
  ::closedir(proc);
}
std::size_t count_named(const json& cluster, const std::string& name) {
  std::multimap<std::string, int> found;
  for (const json& node : cluster["nodes"]) collect(node["pid"], found);
  return found.count("(" + name + ")");
}

/// A driver in the cluster that obeys commands, one a line.
class Driver {
 public:
  explicit Driver(const std::vector<std::string>& command) : child_(command) {
    EXPECT_EQ(child_.line(), "ready");
  }

  std::string ask(const std::string& command) {
    child_.say(command + "\n");
    return child_.line();
  }
  /// Returns the words of the answer, split at '@': what → where.
  std::map<std::string, std::string> ask_where(const std::string& command) {
    std::map<std::string, std::string> found;
    std::istringstream words(ask(command));
    for (std::string word; words >> word;)
      found[word.substr(0, word.find('@'))] = word.substr(word.find('@') + 1);
    return found;
  }
  /// Ends the driver with the signal, or by the end of its input (0). Returns its exit code.
  int end(int signal) {
    if (signal == 0) child_.close_input();
    return child_.finish(signal);
  }

 private:
  Child child_;
};

std::set<std::string> places(const std::map<std::string, std::string>& where) {
  std::set<std::string> found;
  for (const auto& [what, place] : where) found.insert(place);
  return found;
}

class Jobs : public testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // a driver that has ended shows by its missing answer
    std::string text = testing::TempDir() + "troupe-jobs-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
    fs::create_directory(folder / "run");
    fs::permissions(folder / "run", fs::perms::owner_all);
    setenv("XDG_RUNTIME_DIR", (folder / "run").c_str(), 1);
    setenv("XDG_STATE_HOME", (folder / "state").c_str(), 1);
    setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);
    setenv("TROUPE_TEST_DRIVER", "1", 1);  // a variable that the nodes do not have
    unsetenv("TROUPE_ADDRESS");
  }
  void TearDown() override {
    (void)troupe_command({"stop", "--all"});
    for (const char* name :
         {"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TROUPE_ADDRESS"})
      unsetenv(name);
    fs::remove_all(folder);
  }
  void start(int nodes, int cpus) {
    unsetenv("TROUPE_TEST_DRIVER");
    const Outcome outcome =
        troupe_command({"start", "--head", "--json", "--memory", "256MiB", "--nodes",
                        std::to_string(nodes), "--cpus", std::to_string(cpus)});
    setenv("TROUPE_TEST_DRIVER", "1", 1);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    cluster = json::parse(outcome.out, nullptr, false);
    ASSERT_EQ(cluster["nodes"].size(), static_cast<std::size_t>(nodes));
    setenv("TROUPE_ADDRESS", cluster["file"].get<std::string>().c_str(), 1);
  }
  static json list(const std::string& what) {
    const Outcome outcome = troupe_command({"list", what, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false)["rows"];
  }
  static std::size_t living_actors() {
    const json actors = list("actors");
    return static_cast<std::size_t>(std::count_if(
        actors.begin(), actors.end(), [](const json& actor) { return actor["state"] != "dead"; }));
  }
  static std::uint64_t store_used() {
    std::uint64_t used = 0;
    for (const json& node : list("nodes")) used += node["store_used_bytes"].get<std::uint64_t>();
    return used;
  }
  fs::path folder;
  json cluster;
};

TEST_F(Jobs, TwoDriversAtOnceDoNotSeeEachOthersWorkersAndActors) {
  start(2, 2);
  Driver a({paths::jobs_program()}), b({paths::jobs_program()});
  EXPECT_EQ(a.ask("spawn mine 10 0 0 0"), "10");
  const auto of_a = a.ask_where("spread 24 2"), of_b = b.ask_where("spread 24 2");
  EXPECT_GE(of_a.size(), 2u);
  EXPECT_GE(of_b.size(), 2u);
  for (const auto& [pid, node] : of_a) EXPECT_EQ(of_b.count(pid), 0u) << "a worker of both jobs";
  EXPECT_EQ(places(of_a).size(), 2u);
  EXPECT_EQ(a.end(0), 0);
  EXPECT_TRUE(eventually([&] { return b.ask("add mine 1") == "none"; }, 5s))
      << "it ends with its job";
  EXPECT_GE(b.ask_where("spread 24 2").size(), 2u) << "the other's end is nothing to it";
  EXPECT_EQ(b.end(0), 0);
  EXPECT_TRUE(eventually([&] { return count_named(cluster, "troupe-zygote") == 0; }, 5s));
}

TEST_F(Jobs, ADetachedActorOutlivesItsDriver) {
  start(2, 2);
  {
    Driver maker({paths::jobs_program()});
    EXPECT_EQ(maker.ask("spawn tally 40 1 0 1"), "40");
    EXPECT_EQ(maker.ask("add tally 1"), "41");
    maker.ask_where("spread 12");  // starts workers of the job that must end with it
    EXPECT_EQ(maker.end(0), 0);
  }
  EXPECT_TRUE(eventually([&] { return count_named(cluster, "troupe-worker") == 1; }, 5s));
  Driver other({paths::jobs_program()});
  EXPECT_EQ(other.ask("add tally 1"), "42") << "its state is kept";
  const int pid = std::stoi(other.ask("pid tally"));
  ASSERT_GT(pid, 1);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return other.ask("add tally 0") == "40"; }, 10s)) << "a second life";
  EXPECT_EQ(other.ask("kill tally"), "killed");
  EXPECT_TRUE(eventually([&] { return other.ask("add tally 0") == "none"; }, 5s));
  EXPECT_EQ(other.end(SIGKILL), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return count_named(cluster, "troupe-zygote") == 0; }, 5s));
  EXPECT_EQ(living_actors(), 0u);
}

TEST_F(Jobs, WhatADetachedActorKeepsOutlivesTheDriverThatMadeIt) {
  start(2, 2);
  for (const int signal : {0, SIGKILL}) {
    Driver maker({paths::jobs_program()});
    EXPECT_EQ(maker.ask("shelve shelf" + std::to_string(signal)), "kept");
    maker.end(signal);
  }
  EXPECT_TRUE(eventually([&] { return count_named(cluster, "troupe-worker") == 2; }, 5s));
  Driver other({paths::jobs_program()});
  EXPECT_EQ(other.ask("shelved shelf0"), "300000");
  EXPECT_EQ(other.ask("shelved shelf" + std::to_string(SIGKILL)), "300000");
}

TEST_F(Jobs, ADetachedObjectOutlivesItsDriverAndControlUntilItIsForgotten) {
  start(2, 2);
  for (const int signal : {0, SIGKILL}) {
    Driver maker({paths::jobs_program()});
    EXPECT_EQ(maker.ask("detach parts" + std::to_string(signal) + " 7"), "detached");
    maker.end(signal);
  }
  EXPECT_TRUE(eventually([&] { return count_named(cluster, "troupe-zygote") == 0; }, 5s));
  std::multimap<std::string, int> found;
  collect(cluster["launcher"], found);
  ASSERT_EQ(found.count("(troupe-control)"), 1u);
  ::kill(found.find("(troupe-control)")->second, SIGKILL);
  Driver other({paths::jobs_program()});
  EXPECT_EQ(other.ask("found parts0"), "300007") << "with what it names, however deep";
  EXPECT_EQ(other.ask("found parts" + std::to_string(SIGKILL)), "300007");
  EXPECT_EQ(other.ask("found nothing"), "none");
  const std::string taken = other.ask("detach parts0 8");
  EXPECT_TRUE(says(taken, "error invalid_argument") && says(taken, "'parts0' exists already"))
      << taken;
  const std::string mistaken = other.ask("mistaken parts0");
  EXPECT_TRUE(says(mistaken, "error invalid_argument") && says(mistaken, "Parts, not a int"))
      << mistaken;

  const json names = list("names");
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0]["name"], "parts0");
  std::set<std::string> shown;
  for (const json& object : list("objects"))
    if (!object["name"].is_null()) shown.insert(object["name"].get<std::string>());
  EXPECT_EQ(shown, (std::set<std::string>{"parts0", "parts9"}));
  EXPECT_TRUE(says(troupe_command({"list", "objects"}).out, "its name 'parts0'"));
  EXPECT_TRUE(says(troupe_command({"memory"}).out, "2 objects stay when the program"));

  EXPECT_GT(store_used(), 3'000'000u);
  EXPECT_EQ(other.ask("forget parts0"), "forgotten");
  EXPECT_EQ(other.ask("forget parts0"), "none");
  const Outcome forgotten = troupe_command({"forget", "parts9"});
  EXPECT_EQ(forgotten.code, 0) << forgotten.err;
  EXPECT_EQ(troupe_command({"forget", "parts9"}).code, 1);
  EXPECT_EQ(other.ask("found parts9"), "none");
  EXPECT_TRUE(eventually([&] { return store_used() == 0; }, 10s)) << store_used();
}

TEST_F(Jobs, ADetachedActorWhoseDriverEndsWhileItStartsLivesOn) {
  start(3, 1);
  for (int i = 0; i < 3; ++i) {
    Driver maker({paths::jobs_program()});
    const std::string text = "spawn quick" + std::to_string(i) + " 5 1 0 0";
    EXPECT_EQ(maker.ask(text), "5");
    maker.end(i == 0 ? 0 : SIGKILL);
  }
  Driver other({paths::jobs_program()});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other.ask("add quick" + std::to_string(i) + " 1"), "6");
}

TEST_F(Jobs, GetIfExistsMakesOneActorForTwoDrivers) {
  start(2, 2);
  Driver a({paths::jobs_program()}), b({paths::jobs_program()});
  EXPECT_EQ(a.ask("spawn one 7 0 1 0"), "7");
  EXPECT_EQ(b.ask("spawn one 9 0 1 0"), "7");
  EXPECT_EQ(b.ask("add one 1"), "8");
  EXPECT_EQ(a.ask("pid one"), b.ask("pid one"));
  EXPECT_TRUE(says(b.ask("spawn one 9 0 0 0"), "error")) << "a name is given once";
}

TEST_F(Jobs, AKilledDriverLeavesNothing) {
  start(3, 1);
  for (int round = 0; round < 3; ++round) {
    Driver driver({paths::jobs_program()});
    EXPECT_EQ(driver.ask("spawn held 1 0 0 3"), "1");
    EXPECT_EQ(places(driver.ask_where("spread 24 3")).size(), 3u);
    EXPECT_EQ(driver.ask("store 10"), "30");
    EXPECT_TRUE(eventually([&] { return store_used() > 8'000'000; }, 2s)) << store_used();
    EXPECT_EQ(driver.ask("busy 6"), "busy");
    driver.end(SIGKILL);
    EXPECT_TRUE(eventually(
        [&] {
          return count_named(cluster, "troupe-zygote") + count_named(cluster, "troupe-worker") == 0;
        },
        5s))
        << count_named(cluster, "troupe-zygote") << " zygotes, "
        << count_named(cluster, "troupe-worker") << " workers";
    EXPECT_TRUE(eventually([&] { return store_used() == 0; }, 5s)) << store_used();
    EXPECT_TRUE(eventually([&] { return living_actors() == 0; }, 5s));
    EXPECT_TRUE(eventually(
        [&] {
          const json jobs = list("jobs");
          return std::all_of(jobs.begin(), jobs.end(),
                             [](const json& job) { return job["state"] == "failed"; });
        },
        5s));
  }
}

TEST_F(Jobs, AStoppedZygoteHoldsUpNoOtherJob) {
  start(1, 2);
  Driver stopped({paths::jobs_program()});
  const auto workers = stopped.ask_where("spread 2 1");
  ASSERT_FALSE(workers.empty());
  std::multimap<std::string, int> found;
  collect(cluster["nodes"][0]["pid"], found);
  const auto zygote = found.find("(troupe-zygote)");
  ASSERT_NE(zygote, found.end());
  ::kill(zygote->second, SIGSTOP);
  ::kill(std::stoi(workers.begin()->first), SIGKILL);
  {
    Driver other({paths::jobs_program()});
    EXPECT_EQ(other.ask("store 10"), "30");
    other.end(SIGKILL);
  }
  EXPECT_TRUE(eventually([&] { return store_used() == 0; }, 10s)) << store_used();
  ::kill(zygote->second, SIGCONT);
  EXPECT_EQ(places(stopped.ask_where("spread 2 1")).size(), 1u);
}

TEST_F(Jobs, ADriverThatEndsWithAFullQueueToItsAgentHasFinishedItsJob) {
  start(1, 1);
  setenv("TROUPE_LOGS", "off", 1);  // a driver that prints waits for an answer of its agent anyway
  Driver driver({paths::jobs_program()});
  unsetenv("TROUPE_LOGS");
  ASSERT_EQ(driver.ask("share 5000"), "5000");
  const int agent = cluster["nodes"][0]["pid"];
  ::kill(agent, SIGSTOP);
  EXPECT_EQ(driver.ask("drop"), "dropped");
  std::thread goes_on([agent] {
    std::this_thread::sleep_for(500ms);  // the driver has ended meanwhile, up to its last messages
    ::kill(agent, SIGCONT);
  });
  EXPECT_EQ(driver.end(0), 0);
  goes_on.join();
  EXPECT_EQ(list("jobs")[0]["state"], "finished") << list("jobs")[0];
}

TEST_F(Jobs, TheActorsOfADriverEndBeforeItsJobAlsoWhenItIsKilled) {
  start(3, 1);
  for (const int signal : {0, SIGKILL}) {
    Driver driver({paths::jobs_program()});
    const auto file = [&](int i) { return (folder / ("log" + std::to_string(i))).string(); };
    for (int i = 0; i < 4; ++i) {
      const int pid = std::stoi(driver.ask("log " + file(i)));
      if (i == 3) ::kill(pid, SIGSTOP);  // a stopped process does not end by itself
    }
    driver.end(signal);
    const auto ended = [&](int i) {
      std::string text;
      std::ifstream(file(i)) >> text;
      return text == "ended";
    };
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(signal == 0 ? ended(i) : eventually([&] { return ended(i); }, 5s)) << i;
      fs::remove(file(i));
    }
    EXPECT_TRUE(eventually([&] { return count_named(cluster, "troupe-worker") == 0; }, 5s));
    EXPECT_FALSE(ended(3));
    EXPECT_EQ(living_actors(), 0u);
  }
}

TEST_F(Jobs, AProgramThatEndsBeforeRunFailsItsOwnJobOnly) {
  start(2, 1);
  Driver good({paths::jobs_program()});
  EXPECT_EQ(places(good.ask_where("spread 12 2")).size(), 2u);
  {
    Driver early({paths::jobs_program(), "early"});
    const std::string answer = early.ask("spread 4");
    EXPECT_TRUE(says(answer, "error unavailable") && says(answer, "zygote")) << answer;
    EXPECT_EQ(places(good.ask_where("spread 12 2")).size(), 2u) << "the other job goes on";
  }
  EXPECT_EQ(places(good.ask_where("spread 12 2")).size(), 2u);
}

TEST_F(Jobs, AKilledZygoteIsStartedAgain) {
  start(2, 1);
  Driver driver({paths::jobs_program()});
  EXPECT_EQ(places(driver.ask_where("spread 12 2")).size(), 2u);
  std::multimap<std::string, int> found;
  for (const json& node : cluster["nodes"]) collect(node["pid"], found);
  const auto zygotes = found.equal_range("(troupe-zygote)");
  for (auto at = zygotes.first; at != zygotes.second; ++at) ::kill(at->second, SIGKILL);
  // Waits for the end of the workers: a task that began in one would run again on some node, meet
  // the others there, and answer with that node.
  const auto workers = found.equal_range("(troupe-worker)");
  for (auto at = workers.first; at != workers.second; ++at)
    EXPECT_TRUE(eventually([&] { return ::kill(at->second, 0) != 0; }, 5s));
  EXPECT_EQ(places(driver.ask_where("spread 12 2")).size(), 2u);
}

/// Only the zygote could report on a worker that was ordered and never forked.
TEST_F(Jobs, AnActorWhoseWorkerAKilledZygoteHadNotForkedStartsAllTheSame) {
  start(1, 2);
  Driver driver({paths::jobs_program()});
  EXPECT_EQ(driver.ask_where("spread 1 1").size(), 1u);
  std::multimap<std::string, int> found;
  for (const json& node : cluster["nodes"]) collect(node["pid"], found);
  ASSERT_EQ(found.count("(troupe-zygote)"), 1u);
  const int zygote = found.find("(troupe-zygote)")->second;
  ::kill(zygote, SIGSTOP);
  std::thread killer([&] {
    std::this_thread::sleep_for(300ms);  // until then the order lies in the zygote's queue
    ::kill(zygote, SIGKILL);
  });
  EXPECT_EQ(driver.ask("spawn counter 5 0 0 0"), "5");
  killer.join();
}

/// Starts drivers as a parent would that ignores SIGPIPE and SIGCHLD and blocks SIGINT, and as a
/// shell would. The cluster was started with other ignored signals.
TEST_F(Jobs, WorkersHaveTheSignalsThatTheirDriverWasStartedWith) {
  for (const int nodes : {1, 3}) {
    std::signal(SIGPIPE, SIG_DFL);
    std::signal(SIGUSR2, SIG_IGN);
    start(nodes, 1);
    std::signal(SIGUSR2, SIG_DFL);
    std::signal(SIGPIPE, SIG_IGN);
    const std::string count = std::to_string(nodes);
    Driver odd({paths::jobs_program(), "signals", "11000", "2"});
    Driver plain({paths::jobs_program(), "signals", "0", "0"});
    std::string calls = std::to_string(4 * nodes);
    calls += " ";
    calls += count;
    const auto ended = odd.ask("pipes " + calls);
    EXPECT_EQ(std::count(ended.begin(), ended.end(), '@'), nodes) << ended;
    for (const auto& [driver, signals] :
         {std::pair(&odd, std::string("11000,2")), std::pair(&plain, std::string("0,0"))}) {
      std::istringstream seen(driver->ask("signals " + calls));
      int places = 0;
      for (std::string word; seen >> word; ++places)
        EXPECT_EQ(word.substr(0, word.find('@')), signals) << word;
      EXPECT_EQ(places, nodes) << "the same on each";
    }
    EXPECT_EQ(odd.end(0), 0);
    EXPECT_EQ(plain.end(0), 0);
    (void)troupe_command({"stop", "--all"});
  }
}

/// The program and its libraries lie where only the driver finds them. They are gone when workers
/// start on the second node.
TEST_F(Jobs, AProgramThatNoOtherNodeHasIsShipped) {
  start(2, 1);
  const fs::path home = folder / "home";
  fs::create_directories(home);
  fs::copy_file(paths::jobs_program(), home / "program");
  fs::copy_file(paths::jobs_library(), home / fs::path(paths::jobs_library()).filename());
  setenv("LD_LIBRARY_PATH", home.c_str(), 1);
  Driver driver({home / "program"});
  unsetenv("LD_LIBRARY_PATH");
  fs::remove(home / "program");
  const auto nodes = places(driver.ask_where("spread 12 2"));
  EXPECT_EQ(nodes.size(), 2u);
  for (const auto& [library, node] : driver.ask_where("libraries 12 2"))
    EXPECT_TRUE(says(library, (folder / "cache").string())) << library;
  driver.end(0);
}

}  // namespace
