#include "troupe/tune/views/files.hpp"
#include "troupe/tune/simulate.hpp"
#include "troupe/tune/views/tables.hpp"

#include <gtest/gtest.h>
#include <algorithm>
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

TEST_F(Files, ResultsAreAllThereAndNoDraftsRemain) {
  Experiment e(space(), {.goal = minimize, .trials = 2, .max_steps = 4});
  Simulator(e, falling()).run();
  write_results(folder.string(), e.board(), 1.7e9);
  write_results(folder.string(), e.board(), 1.7e9);  // again, over the first
  for (const char* name :
       {"curves.svg", "report.html", "progress.csv", "trials.csv", "trials.jsonl",
        "tensorboard/trial-1/events.out.tfevents.1700000000.troupe.1"}) {
    EXPECT_GT(content(folder / name).size(), 50U) << name;
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    EXPECT_NE(entry.path().extension(), ".new");
  }
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
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    EXPECT_NE(entry.path().extension(), ".draft");
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
