// Tests what the driver of a run's folder keeps: which saves have ended, and the reports.
#include "troupe/train/detail/passes.hpp"
#include "troupe/train/fit.hpp"
#include "troupe/train/internal/report_file.hpp"
#include "troupe/train/internal/run_folder.hpp"
#include "troupe/train/internal/saves.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

namespace run_folder_parts {

using namespace troupe::train::internal;

FolderEvent written(long step, const std::string& file, const std::string& error = {}) {
  FolderEvent event{.step = step, .error = error};
  if (!file.empty()) event.files.push_back({file, 1, 2});
  return event;
}

TEST(Saves, EndWhenEveryRankHasTold) {
  Saves saves(3);
  FolderEvent first = written(5, "a");
  first.document = "{}";
  EXPECT_FALSE(saves.heard(0, first));
  EXPECT_FALSE(saves.heard(0, first)) << "a rank counts once";
  EXPECT_FALSE(saves.heard(1, written(10, "b")));
  EXPECT_FALSE(saves.heard(1, written(5, "b")));
  const auto ended = saves.heard(2, written(5, ""));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->step, 5);
  EXPECT_EQ(ended->error, "");
  EXPECT_EQ(ended->document, "{}");
  EXPECT_EQ(ended->files.size(), 2u);
}

TEST(Saves, FailWithTheFirstError) {
  Saves saves(2);
  saves.heard(0, written(5, "a"));
  const auto ended = saves.heard(1, written(5, "", "no room"));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->error, "worker 1: no room");
  const auto left_out = saves.heard(
      0, {.kind = FolderEvent::Kind::left_out, .step = 6, .files = {}, .error = "slow"});
  ASSERT_TRUE(left_out) << "one rank tells of it for all";
  EXPECT_EQ(left_out->error, "slow");
  EXPECT_TRUE(left_out->left_out);
}

class ReportFiles : public testing::Test {
 protected:
  ~ReportFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path() const { return folder_ + "/reports.jsonl"; }
  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path()) << text; }

 private:
  std::string folder_ = [] {
    std::string name = testing::TempDir() + "troupe_reports_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

Reported report(long step, std::optional<double> value = {}) {
  return {{.step = step, .loss = 0.1 * static_cast<double>(step), .extra = {{"norm", 3}}}, value};
}

TEST_F(ReportFiles, ComeBackAndAreCut) {
  {
    ReportFile file(path());
    for (long step = 1; step <= 4; ++step) file.append(report(step, 0.5));
    file.append(report(5));
  }
  ReportFile file(path());
  ASSERT_EQ(file.all().size(), 5u);
  EXPECT_EQ(file.all()[2].metrics.step, 3);
  EXPECT_EQ(file.all()[2].metrics.loss, 0.1 * 3);
  EXPECT_EQ(file.all()[2].metrics.extra.at("norm"), 3);
  EXPECT_EQ(file.all()[2].value, 0.5);
  EXPECT_FALSE(file.all()[4].value);
  file.cut_after(3);
  EXPECT_EQ(file.all().size(), 3u);
  file.append(report(4, std::numeric_limits<double>::quiet_NaN()));
  file.append(report(2));  // a run that begins again
  EXPECT_EQ(file.all().size(), 2u);
  const std::string lines = text();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
}

TEST_F(ReportFiles, EndAtTheLineThatACrashLeft) {
  {
    ReportFile(path()).append(report(1));
  }
  const std::string good = text();
  for (const char* torn : {"{\"step\":2,\"lo", "{\"step\":1}\n", "x\n{\"step\":3}\n"}) {
    write(good + torn);
    EXPECT_EQ(ReportFile(path()).all().size(), 1u) << torn;
    EXPECT_EQ(text(), good) << torn;
  }
}

TEST_F(ReportFiles, ARankThatDoesNotSeeTheFolderEndsTheRun) {
  troupe::train::FitOptions options;
  options.run.folder = path().substr(0, path().rfind('/'));
  RunFolder folder(options);
  const RunSetup setup = folder.begin_gang();
  EXPECT_EQ(setup.folder, options.run.folder);
  EXPECT_TRUE(setup.starts.empty());
  EXPECT_THROW(folder.started({.kind = FolderEvent::Kind::unseen, .files = {}, .error = "node b"}),
               troupe::InvalidArgument);
}

TEST_F(ReportFiles, CheckpointsThatAreLeftOutAreNoFailures) {
  troupe::train::FitOptions options;
  options.run.folder = path().substr(0, path().rfind('/'));
  RunFolder folder(options);
  folder.begin_gang();
  const auto end = [&](bool left_out) {
    return folder.ended(
        {.step = 5, .error = "slow", .left_out = left_out, .files = {}, .document = {}});
  };
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(end(true));
  EXPECT_EQ(folder.take_notes().size(), 5u);
  EXPECT_FALSE(end(false) || end(false));
  EXPECT_THROW(end(false), troupe::Unavailable);
}

TEST(PassBook, RefusesOtherDataInThePassOfTheCheckpoint) {
  const auto begins = [](std::uint64_t samples, std::uint64_t batch, std::uint64_t seed) {
    PassBook passes;
    passes.resume({.passes = 0, .batches = 3});
    passes.expect({.pass = 1, .samples = 64, .batch = 8, .seed = 5});
    passes.begin({.samples = samples, .batch = batch, .seed = seed, .per_epoch = 8});
  };
  begins(64, 8, 5);
  EXPECT_THROW(begins(65, 8, 5), troupe::InvalidArgument);
  EXPECT_THROW(begins(64, 9, 5), troupe::InvalidArgument);
  EXPECT_THROW(begins(64, 8, 6), troupe::InvalidArgument);
}

}  // namespace run_folder_parts
