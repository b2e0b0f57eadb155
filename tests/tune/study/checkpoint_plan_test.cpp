// Tests the rules of checkpoint files: what is written next, what is needed, what is deleted when.
#include "troupe/tune/study/checkpoint_plan.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace troupe::tune {
namespace {

using Why = CheckpointSave::Why;
using Keys = std::vector<std::string>;

CheckpointSave save_of(const std::string& key, std::uint32_t trial, Why why = Why::due) {
  CheckpointSave save;
  save.key = key;
  save.trial = trial;
  save.why = why;
  return save;
}

/// Saves and writes a file at once.
void write(CheckpointPlan& plan, const std::string& key, std::uint32_t trial, Why why = Why::due) {
  plan.save(save_of(key, trial, why));
  const auto next = plan.next();
  ASSERT_TRUE(next.has_value());
  ASSERT_EQ(next->key, key);
  plan.written(key);
}

/// Returns the files that a batch's recording lets go.
Keys settle(CheckpointPlan& plan) {
  (void)plan.take_drops();
  plan.recorded();
  Keys keys = plan.take_deletions();
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(CheckpointPlan, TwoAreWrittenAtATimeAndReportsGoBeforeScores) {
  CheckpointPlan plan;
  plan.save(save_of("best", 1, Why::best));
  plan.save(save_of("due", 2));
  plan.save(save_of("end", 3, Why::end));
  EXPECT_EQ(plan.next()->key, "due");
  EXPECT_EQ(plan.next()->key, "end");
  EXPECT_FALSE(plan.next().has_value());
  plan.written("due");
  EXPECT_EQ(plan.next()->key, "best");
  EXPECT_FALSE(plan.next().has_value());
  plan.lost("end");
  EXPECT_EQ(plan.take_given_up(), Keys{"end"});
  EXPECT_FALSE(plan.next().has_value());
}

TEST(CheckpointPlan, AWaitingSaveForTheScoreGivesWayToANewerOne) {
  CheckpointPlan plan;
  plan.save(save_of("a", 1, Why::best));
  EXPECT_EQ(plan.next()->key, "a");  // it is being written, so it stays
  plan.save(save_of("b", 2, Why::best));
  plan.save(save_of("c", 1, Why::best));
  EXPECT_EQ(plan.take_given_up(), Keys{"b"});
  EXPECT_EQ(plan.next()->key, "c");
  plan.save(save_of("d", 1, Why::best));
  plan.starts_from(5, "d");  // a copier needs it now
  plan.save(save_of("e", 1, Why::best));
  EXPECT_EQ(plan.take_given_up(), Keys{});
  plan.written("a");
  EXPECT_EQ(plan.next()->key, "d");
}

TEST(CheckpointPlan, ALiveTrialKeepsTwoAPausedOneOneAndAClosedOneNone) {
  CheckpointPlan plan;
  for (const char* key : {"1", "2", "3"}) write(plan, key, 7);
  EXPECT_EQ(settle(plan), Keys{"1"});
  plan.paused(7);
  EXPECT_EQ(settle(plan), Keys{"2"});
  EXPECT_EQ(plan.newest(7)->key, "3");
  plan.live(7);
  write(plan, "4", 7);
  EXPECT_EQ(settle(plan), Keys{});
  plan.best("3");
  plan.closed(7, false);
  EXPECT_EQ(settle(plan), Keys{"4"});
  EXPECT_TRUE(plan.is_file("3"));
  write(plan, "5", 8);
  plan.best("5");
  EXPECT_EQ(settle(plan), Keys{"3"});
  plan.closed(8, true);
  EXPECT_EQ(settle(plan), Keys{});
}

TEST(CheckpointPlan, AFileGoesOnlyAfterTheBatchThatDropsItsRow) {
  CheckpointPlan plan;
  for (const char* key : {"1", "2", "3"}) write(plan, key, 7);
  EXPECT_EQ(plan.take_drops(), Keys{"1"});
  EXPECT_EQ(plan.take_deletions(), Keys{});
  EXPECT_EQ(plan.take_drops(), Keys{"1"});  // the batch was not written: again
  plan.lost("3");                           // belongs to the next batch
  plan.recorded();
  EXPECT_EQ(plan.take_deletions(), Keys{"1"});
  EXPECT_EQ(plan.take_drops(), Keys{"3"});
}

TEST(CheckpointPlan, ADonorsFileStaysWhileItsCopierNeedsIt) {
  CheckpointPlan plan;
  write(plan, "donor", 1);
  plan.starts_from(2, "donor");
  plan.closed(1, false);
  EXPECT_EQ(settle(plan), Keys{});
  EXPECT_EQ(plan.newest(2)->key, "donor");
  write(plan, "own", 2);
  EXPECT_EQ(settle(plan), Keys{});
  write(plan, "next", 2);
  EXPECT_EQ(settle(plan), Keys{"donor"});
}

TEST(CheckpointPlan, AWaitingSaveOfAnEndedTrialIsGivenUp) {
  CheckpointPlan plan;
  plan.save(save_of("due", 1));
  plan.save(save_of("copied", 1));
  plan.save(save_of("end", 1, Why::end));
  plan.starts_from(2, "copied");
  plan.closed(1, true);
  EXPECT_EQ(plan.take_given_up(), Keys{});
  plan.closed(1, false);
  EXPECT_EQ(plan.take_given_up(), Keys{"due"});
  EXPECT_EQ(plan.next()->key, "copied");
}

TEST(CheckpointPlan, ABadFileLeavesTheOneBefore) {
  CheckpointPlan plan;
  plan.restored(save_of("1", 7));
  plan.restored(save_of("2", 7));
  EXPECT_EQ(plan.newest(7)->key, "2");
  plan.lost("2");
  EXPECT_EQ(plan.newest(7)->key, "1");
  EXPECT_EQ(plan.take_drops(), Keys{"2"});
  plan.lost("1");
  EXPECT_FALSE(plan.newest(7).has_value());
}

TEST(CheckpointPlan, RandomStudiesKeepWhatIsNeededAndNoMore) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    CheckpointPlan plan;
    std::map<std::string, std::uint32_t> files;  // on disk
    Keys writing;
    std::set<std::uint32_t> open;
    std::string best;
    for (int step = 0; step < 300; ++step) {
      const auto trial = static_cast<std::uint32_t>(random.below(6));
      switch (random.below(7)) {
        case 0:
        case 1: {
          const std::string key = "k" + std::to_string(step);
          if (open.insert(trial).second) plan.live(trial);
          plan.save(save_of(key, trial, static_cast<Why>(random.below(3))));
          break;
        }
        case 2:
          if (const auto next = plan.next()) writing.push_back(next->key);
          ASSERT_LE(writing.size(), 2u);
          break;
        case 3:
          if (!writing.empty()) {
            files[writing.back()] = trial;
            plan.written(writing.back());
            writing.pop_back();
          }
          break;
        case 4:
          if (!files.empty()) {
            const auto at =
                std::next(files.begin(), static_cast<std::ptrdiff_t>(random.below(files.size())));
            if (plan.is_file(at->first)) {
              if (random.chance(0.5))
                plan.best(best = at->first);
              else if (open.count(trial) > 0)
                plan.starts_from(trial, at->first);
            }
          }
          break;
        case 5:
          if (random.chance(0.3)) {
            plan.closed(trial, false);
            open.erase(trial);
          }
          break;
        default:
          for (const std::string& key : settle(plan)) ASSERT_EQ(files.erase(key), 1u) << seed;
          for (const std::string& key : plan.needed()) ASSERT_EQ(files.count(key), 1u) << seed;
          ASSERT_TRUE(best.empty() || files.count(best) == 1) << seed;
          // Two of each trial, and the best; those of an unknown trial are never kept.
          ASSERT_LE(files.size(), 2 * 6 + 1u) << seed;
      }
    }
    for (std::uint32_t trial = 0; trial < 6; ++trial) plan.closed(trial, false);
    for (const std::string& key : settle(plan)) files.erase(key);
    EXPECT_LE(files.size(), 1u) << seed;
  }
}

TEST(CheckpointPlan, CheckpointsThatWillNotFitAreToldWithNeededAndFree) {
  EXPECT_EQ(why_not_all_fit(1 << 20, 4, 9 << 20), "");
  const std::string text = why_not_all_fit(1ull << 30, 256, 100ull << 30);
  EXPECT_NE(text.find("256 trials need 525312 MiB, and 102400 MiB are free"), std::string::npos)
      << text;
  EXPECT_NE(text.find("save_every"), std::string::npos) << text;
}

}  // namespace
}  // namespace troupe::tune
