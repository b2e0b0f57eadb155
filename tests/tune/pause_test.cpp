// Tests what a user's pause does to trials and to a whole study, and that a restart keeps it.
#include "troupe/tune/experiment.hpp"

#include <gtest/gtest.h>
#include <algorithm>

namespace troupe::tune::pause_test {
namespace {

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}}};
}
ExperimentOptions options() {
  return {.goal = minimize, .trials = 4, .concurrent = 2, .max_steps = 9};
}

std::string refused(const Result<void>& result) {
  return result.ok() ? "" : result.error().message();
}

template <class T>
std::vector<T> all_of(const std::vector<Command>& commands) {
  std::vector<T> found;
  for (const Command& c : commands)
    if (const T* one = std::get_if<T>(&c)) found.push_back(*one);
  return found;
}

/// A study in which trials 0 and 1 run, and its log.
class PausedStudies : public testing::Test {
 protected:
  PausedStudies() : study(space(), options()) {
    study.with_store();
    study.begin(Time{});
    take();
  }
  /// Writes what the last inputs changed, and returns the commands.
  std::vector<Command> take() { return take_from(study); }
  std::vector<Command> take_from(Experiment& from) {
    const StudyBatch batch = from.take_batch();
    if (batch.meta) meta = *batch.meta;
    events.insert(events.end(), batch.events.begin(), batch.events.end());
    for (const TrialRow& row : batch.trials) rows[row.trial] = row.json;
    return from.take_commands();
  }
  /// A report, its save and the file, as far as the study asks for them.
  void report(int trial, long step, bool can_save) {
    study.reported(trial, 1, {.step = step, .score = 1, .can_save = can_save}, Time{});
  }
  void save(int trial, long step) {
    const std::string key = std::to_string(trial) + "-" + std::to_string(step);
    study.saved(trial, 1, {key, "hash", 8, step}, Time{});
    study.stored(key, Time{});
  }
  Experiment restored() const {
    std::vector<std::string> lines = {meta};
    lines.insert(lines.end(), events.begin(), events.end());
    return Experiment::restore(space(), options(), lines).value();
  }

  Experiment study;
  std::string meta;
  std::vector<std::string> events;
  std::map<std::uint32_t, std::string> rows;
};

TEST_F(PausedStudies, TrialsSaveAndGiveTheirSlotsUpUntilTheStudyGoesOn) {
  ASSERT_EQ(refused(study.pause({}, Time{})), "");
  EXPECT_TRUE(take().empty()) << "trials hold at their next report";
  for (const int trial : {0, 1}) {
    report(trial, 1, true);
    const auto commands = take();
    EXPECT_EQ(all_of<Save>(commands).size(), 1U);
    ASSERT_EQ(all_of<Reply>(commands).size(), 1U);
    EXPECT_FALSE(all_of<Reply>(commands)[0].go_on);
    save(trial, 1);
    study.ended(trial, 1, "", Time{});
  }
  EXPECT_TRUE(all_of<Start>(take()).empty()) << "no trial begins";
  EXPECT_NE(rows[0].find(R"("state":"paused")"), std::string::npos) << rows[0];
  EXPECT_FALSE(study.over());
  ASSERT_EQ(refused(study.resume({}, Time{})), "");
  const auto starts = all_of<Start>(take());
  ASSERT_EQ(starts.size(), 2U);
  for (const Start& start : starts) {
    EXPECT_LT(start.trial, 2) << "they go on before others begin";
    ASSERT_TRUE(start.from);
    EXPECT_EQ(start.from->step, 1);
  }
}

TEST_F(PausedStudies, ATrialWithoutAModelWaitsInsideItsReport) {
  ASSERT_EQ(refused(study.pause(0, Time{})), "");
  report(0, 1, false);
  report(1, 1, false);
  const auto replies = all_of<Reply>(take());
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].trial, 1) << "the other trial goes on";
  ASSERT_EQ(refused(study.resume(0, Time{})), "");
  const auto later = all_of<Reply>(take());
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later[0].trial, 0);
  EXPECT_TRUE(later[0].go_on);
}

TEST_F(PausedStudies, TheSlotOfAPausedTrialGoesToAnother) {
  ASSERT_EQ(refused(study.pause(0, Time{})), "");
  report(0, 1, true);
  save(0, 1);
  study.ended(0, 1, "", Time{});
  const auto starts = all_of<Start>(take());
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].trial, 2);
}

TEST_F(PausedStudies, ARestartKeepsThem) {
  ASSERT_EQ(refused(study.pause({}, Time{})), "");
  ASSERT_EQ(refused(study.pause(1, Time{})), "");
  take();
  EXPECT_NE(meta.find(R"("paused":true)"), std::string::npos) << meta;
  Experiment again = restored();
  EXPECT_EQ(again.fingerprint(), study.fingerprint());
  again.interrupted(Time{});
  EXPECT_TRUE(all_of<Start>(take_from(again)).empty());
  EXPECT_TRUE(again.board().paused);
  ASSERT_EQ(refused(again.resume({}, Time{})), "");
  const auto starts = all_of<Start>(take_from(again));
  ASSERT_EQ(starts.size(), 2U);
  for (const Start& start : starts) EXPECT_NE(start.trial, 1) << "it is paused by itself";
  EXPECT_EQ(meta.find(R"("paused":true)"), std::string::npos) << meta;
  EXPECT_EQ(restored().fingerprint(), again.fingerprint());
}

TEST_F(PausedStudies, TheEndOfAStudyEndsThem) {
  ASSERT_EQ(refused(study.pause({}, Time{})), "");
  report(0, 1, false);
  take();
  study.cancel(Time{});
  const auto replies = all_of<Reply>(take());
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_FALSE(replies[0].go_on);
  study.ended(0, 1, "", Time{});
  study.ended(1, 1, "killed", Time{});
  EXPECT_TRUE(study.over());
  EXPECT_EQ(refused(study.pause({}, Time{})), "tune: the study is over");
}

TEST_F(PausedStudies, WhatCannotBeDoneIsRefused) {
  EXPECT_EQ(refused(Experiment(space(), options()).pause({}, Time{})),
            "tune: the study does not run");
  EXPECT_EQ(refused(study.pause(7, Time{})), "tune: trial 7 does not exist");
  EXPECT_EQ(refused(study.resume({}, Time{})), "tune: the study is not paused");
  EXPECT_EQ(refused(study.resume(0, Time{})), "tune: trial 0 is not paused");
  ASSERT_EQ(refused(study.pause(1, Time{})), "");
  EXPECT_EQ(refused(study.pause(1, Time{})), "tune: trial 1 is paused already");
  EXPECT_EQ(refused(study.resume({}, Time{})),
            "tune: the study is not paused, but of its trials 1: resume these by number");
  ASSERT_EQ(refused(study.pause({}, Time{})), "");
  EXPECT_EQ(refused(study.pause({}, Time{})), "tune: the study is paused already");
  EXPECT_EQ(refused(study.resume(0, Time{})),
            "tune: trial 0 is not paused, but the study is: resume that");
  study.ended(0, 1, "boom", Time{});
  EXPECT_EQ(refused(study.pause(0, Time{})), "tune: trial 0 is over: it failed");
}

}  // namespace
}  // namespace troupe::tune::pause_test
