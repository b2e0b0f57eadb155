// Tests what trials of a private cluster print, and the ranks of their gangs.
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
    std::ifstream file(folder + "/logs/trial-" + trial + ".txt");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line);
      EXPECT_NE(shown.find("t" + trial + ": " + line + "\n"), std::string::npos) << line;
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
