// Tests schedules as text, and the values of Layout::schedule.
#include "troupe/train/pipeline/text.hpp"

#include "tests/train/pipeline/schedules.hpp"
#include "troupe/train/pipeline/validate.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace troupe::train::pipeline_test {
namespace {

/// A file that is removed with the test.
class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("schedule_" + std::to_string(::getpid()) + ".txt")) {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(ScheduleText, ComesBackAsItWas) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Schedule schedule = lower(RandomOrder(1 + static_cast<int>(seed % 4), 3, 2, seed).make());
    EXPECT_EQ(parse_schedule(text_of(schedule)), schedule);
  }
}

TEST(ScheduleText, HasAllNames) {
  EXPECT_EQ(text_of(Action{Action::F, 2, 0}), "2F0");
  EXPECT_EQ(text_of(Schedule{{{Action::F, 0, 1},
                              {Action::B, 1, 2},
                              {Action::I, 2, 3},
                              {Action::W, 3, 4},
                              {Action::SendF, 4, 5},
                              {Action::RecvF, 5, 6},
                              {Action::SendB, 6, 7},
                              {Action::RecvB, 7, 8}}}),
            "0F1, 1B2, 2I3, 3W4, 4SendF5, 5RecvF6, 6SendB7, 7RecvB8\n");
}

TEST(ScheduleText, MayHaveBlanksCommasEmptyLinesAndComments) {
  const Schedule expected = {{{Action::F, 0, 0}, {Action::B, 0, 0}}, {{Action::F, 12, 345}}};
  EXPECT_EQ(parse_schedule("0F0,0B0\n12F345\n"), expected);
  EXPECT_EQ(parse_schedule("# a comment, 1F1\n\n \t 0F0 , 0B0  # rank 0\r\n\n12F345"), expected);
  EXPECT_EQ(parse_schedule("0F0\t0B0 \n   \n#\n 12F345#"), expected);
  EXPECT_EQ(parse_schedule(""), Schedule{});
}

TEST(ScheduleText, MistakesAreNamedWithLineAndColumn) {
  const auto refusal = [](const char* text) { return refusal_of([&] { parse_schedule(text); }); };
  EXPECT_EQ(refusal("0F0\n\n0F1, 2X0"),
            "schedule, line 3, column 6: \"2X0\" is no action: write a stage, one of F B I W SendF "
            "RecvF SendB RecvB and a micro-batch, as in 2F0, with numbers up to 2^20");
  for (const char* const none :
       {"F0", "0F", "0", "F", "-1F0", "0F-1", "0f0", "0SendX0", "0 F0", "0F0x", "1048577F0",
        "0F1048577", "99999999999F0", "0F0;0B0", "+1F0", "0F 0", "0SendF0B0"})
    EXPECT_TRUE(contains(refusal(none), "line 1, column ")) << none;
  EXPECT_TRUE(contains(refusal("0F0,,0B0"), "line 1, column 5: there is a comma, but no action"));
  EXPECT_TRUE(contains(refusal(",0F0"), "line 1, column 1: there is a comma, but no action"));
  EXPECT_TRUE(contains(refusal("0F0, # more"), "line 1, column 6: the line ends with a comma"));
  EXPECT_LT(refusal(std::string(10'000, 'x').c_str()).size(), 300u);
}

TEST(ScheduleFile, IsReadOrRefusedWithItsPath) {
  const File file("0F0 0B0  # one rank\n");
  EXPECT_EQ(read_schedule(file.path()), parse_schedule("0F0 0B0"));
  for (const std::string& path : {file.path() + ".none", std::string("/"), std::string()}) {
    const std::string text = refusal_of([&] { read_schedule(path); });
    EXPECT_TRUE(contains(text, "the file " + path + " cannot be read")) << text;
  }
}

TEST(ScheduleChoice, IsANameOrAFile) {
  EXPECT_EQ(parse_schedule_choice("gpipe").kind, kGpipe);
  EXPECT_EQ(parse_schedule_choice("1f1b").kind, k1f1b);
  EXPECT_EQ(parse_schedule_choice("interleaved").v, 2);
  EXPECT_EQ(parse_schedule_choice("interleaved:3").kind, kInterleaved);
  EXPECT_EQ(parse_schedule_choice("interleaved:1024").v, 1024);
  EXPECT_EQ(parse_schedule_choice("file:a/b.txt").path, "a/b.txt");
  for (const char* const none : {"", "GPipe", "file:", "a.txt", "interleaved:", "interleaved:1",
                                 "interleaved:1025", "interleaved:2x", "interleaved:-2"})
    EXPECT_TRUE(contains(refusal_of([&] { parse_schedule_choice(none); }),
                         "layout: schedule is \"" + std::string(none) + "\"; choose gpipe"))
        << none;
}

TEST(LayoutSchedules, AreThoseOfTheLayoutsSizes) {
  EXPECT_EQ(schedule_of({.pp = 2, .micro = 4}).schedule, generate(k1f1b, 2, 4));
  EXPECT_EQ(schedule_of({.pp = 2, .micro = 4, .schedule = "gpipe"}).schedule,
            generate(kGpipe, 2, 4));
  const LayoutSchedule interleaved =
      schedule_of({.pp = 2, .micro = 4, .schedule = "interleaved:3"});
  EXPECT_EQ(interleaved.schedule, generate(kInterleaved, 2, 4, 3));
  EXPECT_EQ(interleaved.v, 3);
  EXPECT_TRUE(
      contains(refusal_of([] { schedule_of({.pp = 2, .micro = 3, .schedule = "interleaved"}); }),
               "no multiple"));
}

TEST(LayoutSchedules, OfAFileAreLoweredAndValidated) {
  const Schedule order = RandomOrder(2, 3, 2, /*seed=*/7).make();
  for (const Schedule& written : {order, lower(order)}) {
    const File file(text_of(written));
    const LayoutSchedule read =
        schedule_of({.pp = 2, .micro = 3, .schedule = "file:" + file.path()});
    EXPECT_EQ(read.schedule, lower(order));
    EXPECT_EQ(read.v, 2);
    const auto refusal = [&](int pp, int micro) {
      return refusal_of(
          [&] { schedule_of({.pp = pp, .micro = micro, .schedule = "file:" + file.path()}); });
    };
    EXPECT_TRUE(contains(refusal(4, 3), "lists for 2 ranks, and the layout has pp = 4"));
    EXPECT_TRUE(contains(refusal(2, 4), "rank 0: 0F3 is missing"));
    EXPECT_TRUE(contains(refusal(2, 2), "is of micro-batch 2, and there are 2"));
  }
}

}  // namespace
}  // namespace troupe::train::pipeline_test
