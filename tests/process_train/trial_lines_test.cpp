// Tests what trials of a private cluster print, and the ranks of their gangs.
#include "tests/eventually.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trial_lines {

namespace fs = std::filesystem;
namespace train = troupe::train;
namespace tune = troupe::tune;

struct Hp {
  double rate = 0.1;
};

/// Rank 1 of the first gang dies behind its first line.
void loop(train::Worker& w) {
  do {
    w.next_step();
    std::cout << "rank " << w.rank() << " step " << w.step() << '\n';
    std::cerr << "warning " << w.rank() << '\n';
    if (w.rank() == 1 && w.step() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    std::vector<float> model(1, 1.0f);
    w.all_reduce_mean(model);
  } while (w.report({.step = w.step(), .loss = 1}));
}
void gang(tune::Trial& t, Hp) {
  std::cout << "begins\n";
  train::fit<loop>(t, {.workers = 2, .max_restarts = 1});
  std::cout << "ends\n";
}

/// Prints its last lines when the driver knows of its end already.
void late(tune::Trial& t, Hp, std::string over) {
  static std::jthread printer;  // ends with the process
  std::cout << "in time" << std::endl;
  printer = std::jthread([out = ::dup(STDOUT_FILENO), over = std::move(over)] {
    const std::string text = "late\nwithout an end";
    if (eventually([&] { return fs::exists(over); })) (void)!::write(out, text.data(), text.size());
    ::close(out);
  });
  t.report(1);
}

constexpr int kManyLines = 80'000;
constexpr std::size_t kLineSize = 100;  ///< with the number and the newline

/// Prints more at its end than one look at its file takes.
void many(tune::Trial& t, Hp) {
  t.report(1);
  std::string text;
  for (int i = 0; i < kManyLines; ++i) {
    std::string line = "line " + std::to_string(i);
    line.resize(kLineSize - 1, '.');
    text += line + '\n';
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

TEST(TrialLines, ThatComeAfterTheEndAreShown) {
  std::string folder = testing::TempDir() + "troupe_lines_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string over = folder + "/over";
  testing::internal::CaptureStdout();
  {
    troupe::Session session{{.cpus = 1}};
    troupe::Context ctx = session.context();
    tune::Options<> with{
        .goal = tune::minimize, .trials = 1, .max_steps = 1, .show = false, .results = folder};
    with.on_event = [&over](const tune::Event& event) {
      if (event.kind == tune::Event::Kind::completed) std::ofstream(over) << "yes";
    };
    tune::optimize<late, Hp>(ctx, tune::Space<Hp>{}.with(&Hp::rate, tune::uniform(0, 1)), with,
                             over);
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "t0: in time\nt0: late\nt0: without an end\n");
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

TEST(TrialLines, AreAllShownWhenManyComeAtTheEnd) {
  std::string folder = testing::TempDir() + "troupe_lines_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  testing::internal::CaptureStdout();
  {
    troupe::Session session{{.cpus = 1}};
    troupe::Context ctx = session.context();
    tune::optimize<many, Hp>(
        ctx, tune::Space<Hp>{}.with(&Hp::rate, tune::uniform(0, 1)),
        {.goal = tune::minimize, .trials = 1, .max_steps = 1, .show = false, .results = folder});
  }
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), kManyLines);
  EXPECT_EQ(shown.size(), kManyLines * (kLineSize + 4)) << "each with its trial's number";
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

TEST(TrialLines, OfRanksAreAmongThoseOfTheirTrial) {
  std::string folder = testing::TempDir() + "troupe_lines_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  testing::internal::CaptureStdout();
  {
    troupe::Session session{{.cpus = 2}};
    troupe::Context ctx = session.context();
    const auto best = tune::optimize<gang, Hp>(
        ctx, tune::Space<Hp>{}.with(&Hp::rate, tune::uniform(0, 1)),
        {.goal = tune::minimize, .trials = 2, .max_steps = 3, .show = false, .results = folder});
    for (const tune::TrialInfo& trial : best.board.trials)
      EXPECT_EQ(trial.state, tune::TrialState::completed) << trial.note;
  }
  const std::string shown = testing::internal::GetCapturedStdout();
  for (const std::string trial : {"0", "1"}) {
    std::ifstream file(std::string(folder).append("/logs/trial-").append(trial).append(".txt"));
    const std::string before = "t" + trial + ": ";
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line);
      EXPECT_NE(shown.find(before + line + "\n"), std::string::npos) << line;
    }
    const auto count = [&lines](const std::string& text) {
      return std::count(lines.begin(), lines.end(), text);
    };
    EXPECT_EQ(count("begins"), 1);
    EXPECT_EQ(count("ends"), 1);
    EXPECT_EQ(count("rank 1 step 1"), 2) << "of two gangs";
    EXPECT_EQ(count("rank 0 step 3"), 1);
    EXPECT_EQ(count("rank 1 step 3"), 1);
    EXPECT_EQ(count("warning 1"), 4);
    EXPECT_GE(std::find(lines.begin(), lines.end(), "ends"), lines.end() - 1);
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace trial_lines
