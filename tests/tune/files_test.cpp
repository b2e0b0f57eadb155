// Tests the files of an experiment: the log, the results, and the runs for TensorBoard.
#include "troupe/tune/views/files.hpp"
#include "troupe/tune/simulate.hpp"
#include "troupe/tune/views/tables.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe::tune::files_test {
namespace {

namespace fs = std::filesystem;

struct Files : ::testing::Test {
  fs::path folder;
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "troupe-tune-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }
  void expect_no_drafts() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      EXPECT_FALSE(name.ends_with(".new") || name.ends_with("draft")) << entry.path();
    }
  }
};

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}}};
}

Simulation falling() {
  return {
      .train = [](std::vector<double>& w, const Point& p, long) { return w[0] *= 1 - p[0] / 2; },
      .weights = {10.0}};
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

TEST_F(Files, ALogThatWasCutShortIsGoneOnWith) {
  const ExperimentOptions options{.goal = minimize, .trials = 3, .max_steps = 6, .save_every = 2};
  const std::string path = (folder / "deep" / "er" / "experiment.jsonl").string();
  std::map<std::string, std::vector<double>> stored;
  {
    Experiment e(space(), options);
    Simulator sim(e, falling());
    sim.run(13);
    LogFile(path).append(sim.log());
    stored = sim.stored();
  }
  std::ofstream(path, std::ios::app) << R"({"t":4.0,"eve)";  // the process died while writing
  LogFile log(path);
  const auto lines = read_log(path);
  ASSERT_TRUE(lines.ok());
  auto e = Experiment::restore(space(), options, *lines);
  ASSERT_TRUE(e.ok()) << e.error().message();
  Simulator rest(*e, falling());
  rest.load(stored);
  rest.run();
  log.append(rest.log());
  EXPECT_TRUE(e->over());
  EXPECT_TRUE(Experiment::restore(space(), options, *read_log(path)).ok());
}

TEST_F(Files, PagesThatMayTakeAWhileAreWrittenOrFailInTheSameWay) {
  Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 4});
  const fs::path there = folder / "results";
  fs::create_directory(there);
  std::ofstream(there / "curves.svg.new") << "left by a writer that hung";
  EXPECT_TRUE(write_pages_within(there.string(), e.board(), std::chrono::seconds(20)));
  EXPECT_TRUE(fs::exists(there / "curves.svg") && fs::exists(there / "report.html"));
  expect_no_drafts();
  std::ofstream(folder / "file") << "no folder";
  EXPECT_THROW(write_pages_within((folder / "file").string(), e.board(), std::chrono::seconds(20)),
               InvalidArgument);
}

TEST_F(Files, ResultsAreAllThereAndNoDraftsRemain) {
  Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 4});
  Simulator(e, falling()).run();
  write_results(folder.string(), e.board(), 1.7e9);
  write_results(folder.string(), e.board(), 1.7e9);  // writes over the first results
  for (const char* name :
       {"curves.svg", "report.html", "progress.csv", "trials.csv", "trials.jsonl",
        "tensorboard/trial-1/events.out.tfevents.1700000000.troupe.1"}) {
    EXPECT_GT(content(folder / name).size(), 50U) << name;
  }
  expect_no_drafts();
}

/// The disk becomes full half-way: earlier files stay as they were, and no incomplete file is
/// left.
TEST_F(Files, AFailureLeavesNoDrafts) {
  Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 4});
  Simulator(e, falling()).run();
  write_results(folder.string(), e.board(), 1.7e9);
  const std::string rows = content(folder / "progress.csv");
  fs::remove(folder / "trials.jsonl");
  fs::create_directories(folder / "trials.jsonl" / "in the way");
  EXPECT_THROW(write_results(folder.string(), e.board(), 1.8e9), InvalidArgument);
  fs::remove_all(folder / "trials.jsonl");
  const fs::path other = folder / "tensorboard/trial-1/events.out.tfevents.1800000000.troupe.1";
  fs::create_directories(other / "in the way");
  EXPECT_THROW(write_results(folder.string(), e.board(), 1.8e9), InvalidArgument);
  expect_no_drafts();
  fs::remove_all(folder / "tensorboard" / "trial-1");
  std::ofstream(folder / "tensorboard" / "trial-1") << "a file where a folder is to be";
  EXPECT_THROW(write_results(folder.string(), e.board(), 1.8e9), InvalidArgument);
  expect_no_drafts();
  EXPECT_EQ(content(folder / "progress.csv"), rows);
}

/// TensorBoard shows all runs that it finds, so a folder that is used again must hold one
/// experiment only.
TEST_F(Files, RunsOfAnEarlierExperimentWithMoreTrialsAreGone) {
  Experiment many(space(), {.goal = minimize, .trials = 12, .max_steps = 2});
  Simulator(many, falling()).run();
  write_results(folder.string(), many.board(), 1.6e9);
  const fs::path runs = folder / "tensorboard";
  std::ofstream(runs / "trial-11" / "mine.txt") << "x";
  fs::create_directories(runs / "trial-1x");
  fs::create_directories(runs / "trial-99999999999999999999");
  Experiment few(space(), {.goal = minimize, .trials = 2, .max_steps = 2});
  Simulator(few, falling()).run();
  write_results(folder.string(), few.board(), 1.7e9);
  std::size_t events = 0;
  for (const auto& entry : fs::recursive_directory_iterator(runs))
    events += entry.path().filename().string().find("tfevents") != std::string::npos;
  EXPECT_EQ(events, 2U);
  EXPECT_FALSE(fs::exists(runs / "trial-2"));
  EXPECT_TRUE(fs::exists(runs / "trial-11" / "mine.txt")) << "what is not ours stays";
  EXPECT_TRUE(fs::exists(runs / "trial-1x"));
}

/// An incomplete line is taken back, since the next line would be spoilt.
TEST_F(Files, WhatCouldNotBeWrittenWholeIsTakenBack) {
  const std::string path = (folder / "experiment.jsonl").string();
  LogFile log(path);
  log.append({"first"});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(log.append({"second", "third"}), InvalidArgument);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old);
  log.append({"fourth"});
  EXPECT_EQ(*read_log(path), (std::vector<std::string>{"first", "fourth"}));
}

TEST_F(Files, APipeIsNoLog) {
  const std::string path = (folder / "experiment.jsonl").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(LogFile{path}, InvalidArgument);
  EXPECT_FALSE(read_log(path).ok());
}

TEST_F(Files, ALogHasOneWriterAndOneExperiment) {
  const std::string path = (folder / "experiment.jsonl").string();
  {
    LogFile first(path, LogFile::Mode::create);
    first.append({"line"});
    EXPECT_THROW(LogFile(path, LogFile::Mode::append), InvalidArgument);
  }
  EXPECT_THROW(LogFile(path, LogFile::Mode::create), InvalidArgument);
  LogFile(path).append({"more"});
  std::ofstream(path, std::ios::app) << "torn";
  EXPECT_EQ(*read_log(path), (std::vector<std::string>{"line", "more"}));
}

TEST_F(Files, EveryReportIsThereAndNothingOfAnOlderRun) {
  Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 9000});
  Simulator sim(e, falling());
  sim.run();
  const std::string path = (folder / "experiment.jsonl").string();
  LogFile(path).append(sim.log());
  EXPECT_LT(e.board().trials[0].history.size(), 5000U);
  const fs::path old =
      folder / "tensorboard" / "trial-1" / "events.out.tfevents.1600000000.troupe.1";
  fs::create_directories(old.parent_path());
  std::ofstream(old) << "x";
  write_results(folder.string(), e.board(), 1.7e9, path);
  const std::string rows = content(folder / "progress.csv");
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2 * 9000 + 1);
  EXPECT_FALSE(fs::exists(old));
  std::size_t bytes = 0;
  for (long step = 1; step <= 9000; ++step)
    bytes += tensorboard_scalar(1.7e9, step, "score", 1).size();
  EXPECT_EQ(content(folder / "tensorboard/trial-1/events.out.tfevents.1700000000.troupe.1").size(),
            tensorboard_header(1.7e9).size() + bytes);
  expect_no_drafts();
}

TEST_F(Files, ErrorsSayWhatAndWhere) {
  EXPECT_FALSE(read_log((folder / "none").string()).ok());
  std::ofstream(folder / "file") << "x";
  try {
    LogFile log((folder / "file" / "log").string());
    FAIL() << "a file is no folder";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.message().find("cannot make the folder"), std::string::npos);
  }
  LogFile full("/dev/full");
  EXPECT_THROW(full.append({"line"}), OutOfDisk);
}

}  // namespace
}  // namespace troupe::tune::files_test
