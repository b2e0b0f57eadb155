// Tests the views of an experiment: tables, pictures and TensorBoard's files.
#include "troupe/tune/internal/svg.hpp"
#include "troupe/tune/internal/text.hpp"
#include "troupe/tune/simulate.hpp"
#include "troupe/tune/views/report.hpp"
#include "troupe/tune/views/tables.hpp"
#include "troupe/tune/views/terminal.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace troupe::tune {
namespace {

Board sample_board(int trials = 6) {
  SearchSpace space{{{"lr", log_uniform(1e-4, 1)}, {"kind", choices({"a<b>", "c&d"})}}};
  Experiment e(space, {.goal = minimize,
                       .trials = trials,
                       .scheduler = Pbt{.perturb_every = 5},
                       .max_failures = 1,
                       .max_steps = 20,
                       .seed = 2,
                       .name = "<script>alert('x')</script>",
                       .metric = "loss"});
  Simulation s;
  s.weights = {8};
  s.train = [](std::vector<double>& w, const Point& p, long) {
    w[0] *= 1 - 0.2 / (1 + std::abs(std::log10(p[0]) + 1));
    return w[0];
  };
  s.fault = [](int trial, int attempt, long step) {
    return trial == 1 && attempt == 1 && step == 4 ? "boom \x1b[2J" : "";
  };
  Simulator(e, s).run();
  return e.board();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

TEST(Table, BestFirstWithinTheWidthAndTheRowLimit) {
  const Board board = sample_board(9);
  for (const int width : {20, 40, 60, 80, 200}) {
    const auto lines = table(board, {.width = width, .max_rows = 4});
    ASSERT_EQ(lines.size(), 8U);
    for (const std::string& line : lines) EXPECT_LE(columns(line), std::size_t(width)) << line;
    EXPECT_EQ(lines.back(), "… 5 more trials");
    EXPECT_TRUE(has(lines[3], std::to_string(board.best) + "*")) << lines[3];
  }
}

TEST(Table, EmptyColumnsAreHidden) {
  Board board = sample_board();
  EXPECT_TRUE(has(joined(table(board, {.width = 200})), "failures"));
  EXPECT_TRUE(has(joined(table(board, {.width = 200})), "copied"));
  for (TrialInfo& t : board.trials) {
    t.failures = 0;
    t.copies.clear();
  }
  EXPECT_FALSE(has(joined(table(board, {.width = 200})), "failures"));
  EXPECT_FALSE(has(joined(table(board, {.width = 200})), "copied"));
  EXPECT_TRUE(has(joined(table(board, {.width = 40})), "+"));  // marks missing columns
}

TEST(Table, NoColourAndNoUnicodeWhenToldSo) {
  const Board board = sample_board();
  EXPECT_FALSE(has(joined(table(board, {})), "\x1b"));
  EXPECT_TRUE(has(joined(table(board, {.colour = true})), "\x1b[32mcompleted"));
  for (const char c : joined(table(board, {.unicode = false})))
    EXPECT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST(Table, AnEmptyExperimentHasATableToo) {
  Board board;
  board.name = "none";
  board.planned = 3;
  EXPECT_EQ(table(board, {}).size(), 3U);
  EXPECT_EQ(progress_line(board), "0.0s · 3 to come");
  board.reports = 1;
  EXPECT_TRUE(has(progress_line(board), "1 reports · no score yet"));
  EXPECT_TRUE(has(summary(board), "no trial reported"));
}

TEST(Sparkline, FollowsTheCurve) {
  std::vector<Sample> history;
  for (int i = 0; i < 8; ++i) history.push_back({i, double(i), 0, 1});
  EXPECT_EQ(sparkline(history, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(columns(sparkline(history, 4)), 4U);
  history.push_back({8, std::nan(""), 0, 1});
  EXPECT_EQ(sparkline(history, 9), "▁▂▃▄▅▆▇█ ");
  EXPECT_EQ(sparkline({{1, 5, 0, 1}, {2, 5, 0, 1}}, 8), "▄▄");
}

TEST(LiveView, RedrawsInPlaceOnATerminal) {
  const Board board = sample_board();
  LiveView view({.live = true});
  const std::string first = view.update(board, Time{});
  EXPECT_FALSE(has(first, "\x1b["));
  EXPECT_EQ(view.update(board, Time{} + std::chrono::milliseconds(50)), "");
  const std::string second = view.update(board, Time{} + std::chrono::milliseconds(150));
  const auto lines = std::to_string(table(board, {}).size());
  EXPECT_EQ(second.substr(0, lines.size() + 6), "\x1b[" + lines + "A\x1b[J");
  EXPECT_TRUE(has(first, "copied trial"));
  EXPECT_FALSE(has(second, "copied trial")) << "events are printed once";
}

TEST(LiveView, ShowsANoteOnceAboveTheTableOrAsALine) {
  const Board board = sample_board();
  for (const bool live : {true, false}) {
    LiveView view({.live = live});
    const std::string none = view.update(board, Time{});
    view.note("trial 1: worker 1 died\x1b[2J");
    const std::string shown = view.update(board, Time{} + std::chrono::seconds(1));
    const auto at = shown.find(duration_text(board.seconds) + "  trial 1: worker 1 died");
    EXPECT_FALSE(has(none, "worker 1 died"));
    ASSERT_NE(at, std::string::npos) << shown;
    EXPECT_FALSE(has(shown, "died\x1b"));
    if (live) {
      EXPECT_LT(at, shown.find(board.name + " · "));
    }
    EXPECT_FALSE(has(view.finish(board), "worker 1 died"));
  }
}

TEST(LiveView, LinesOfTrialsAreWholeAndAboveAnIntactTable) {
  const Board board = sample_board();
  for (const bool live : {true, false}) {
    LiveView view({.live = live});
    Time now{};
    view.update(board, now);
    const std::string long_line(300, 'x');
    view.line(7, "epoch 1\x1b[2J");
    view.line(12, long_line);
    const std::string shown = view.update(board, now += std::chrono::seconds(4));
    EXPECT_TRUE(has(shown, "t7: epoch 1?[2J\nt12: " + long_line + "\n")) << shown;
    if (live) {  // the table is erased, and stands whole below the lines
      EXPECT_TRUE(shown.starts_with("\x1b["));
      const std::string all = joined(table(board, {.live = true}));
      EXPECT_TRUE(shown.ends_with(all)) << shown;
      EXPECT_LT(shown.find("t12: "), shown.find(all));
    }
    EXPECT_FALSE(has(view.update(board, now += std::chrono::seconds(4)), "t7:")) << "once";
    for (int i = 0; i < 1500; ++i) view.line(1, std::to_string(i));
    const std::string end = view.finish(board);
    EXPECT_TRUE(has(end, "… 500 lines of trials are left out\nt1: 500\n"));
    EXPECT_TRUE(has(end, "t1: 1499\n"));
  }
}

TEST(LiveView, WhatHoldsTrialsUpStandsUntilItIsOver) {
  const Board board = sample_board();
  for (const bool live : {true, false}) {
    LiveView view({.live = live});
    Time now{};
    view.standing({"trial 4 waits for 2 CPUs"});
    EXPECT_TRUE(has(view.update(board, now), "trial 4 waits for 2 CPUs"));
    EXPECT_TRUE(has(view.update(board, now += std::chrono::seconds(4)), "waits for 2 CPUs"));
    view.standing({});
    const std::string after = view.update(board, now += std::chrono::seconds(4));
    EXPECT_FALSE(has(after, "waits for 2 CPUs"));
    const auto lines = std::to_string(table(board, {}).size() + 1);
    if (live) {
      EXPECT_EQ(after.substr(0, lines.size() + 3), "\x1b[" + lines + "A") << "it is erased, too";
    }
  }
}

TEST(LiveView, OneShortLineEveryFewSecondsElsewhere) {
  const Board board = sample_board();
  LiveView view({.live = false}, std::chrono::seconds(3));
  EXPECT_TRUE(has(view.update(board, Time{}), "best trial"));
  EXPECT_EQ(view.update(board, Time{} + std::chrono::seconds(2)), "");
  const std::string line = view.update(board, Time{} + std::chrono::seconds(3));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const std::string end = view.finish(board);
  EXPECT_TRUE(has(end, "best: trial"));
  EXPECT_FALSE(has(end, "best trial")) << "the best is named once at the end";
  EXPECT_FALSE(has(end, "\x1b")) << "control characters of an error text must not reach the screen";
}

TEST(Report, IsOneEscapedFileWithoutRequests) {
  const std::string page = report_html(sample_board());
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "a<b>"));
  EXPECT_TRUE(has(page, "&lt;script&gt;alert(&#39;x&#39;)"));
  EXPECT_TRUE(has(page, "a&lt;b&gt;"));
  EXPECT_FALSE(has(page, "src="));
  EXPECT_FALSE(has(page, "href="));
  EXPECT_FALSE(has(page, "url(h"));
  EXPECT_TRUE(has(page, "prefers-color-scheme:dark"));
  EXPECT_TRUE(has(page, "proven by equal hashes"));
  EXPECT_TRUE(has(page, "copied trial"));
  EXPECT_FALSE(has(page, "\x1b"));
  EXPECT_FALSE(has(page, "nan")) << "coordinates are numbers";
}

/// Expects that tags open and close in order, as a browser demands before it draws.
void expect_balanced(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; (i = xml.find('<', i)) != std::string::npos;) {
    const std::size_t end = xml.find('>', i);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(i + 1, end - i - 1);
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    i = end + 1;
  }
  EXPECT_TRUE(open.empty());
}

TEST(Curves, WellFormedWithAxesLegendAndArrows) {
  const Board board = sample_board();
  for (const std::string& svg : {curves_svg(board), lineage_svg(board), parallel_svg(board)}) {
    expect_balanced(svg);
    EXPECT_FALSE(has(svg, "nan"));
    EXPECT_FALSE(has(svg, "inf"));
  }
  const std::string svg = curves_svg(board);
  EXPECT_TRUE(has(svg, "marker-end=\"url(#copy)\""));
  EXPECT_TRUE(has(svg, ">step<"));
  EXPECT_TRUE(has(svg, "trial 0: "));
}

TEST(Curves, OddScoresDoNotBreakThem) {
  Board board;
  board.name = "odd";
  board.space = {{{"x", uniform(0, 1)}}};
  EXPECT_TRUE(has(curves_svg(board), "no trial has reported"));
  expect_balanced(lineage_svg(board));
  expect_balanced(parallel_svg(board));
  for (int i = 0; i < 3; ++i) {
    TrialInfo t;
    t.number = i;
    t.params = {0.5};
    board.trials.push_back(t);
  }
  board.trials[0].history = {{1, HUGE_VAL, 0, 1}, {2, std::nan(""), 1, 1}};
  board.trials[1].history = {{1, 5, 0, 1}};
  board.best = 1;
  for (const std::string& svg : {curves_svg(board), lineage_svg(board), parallel_svg(board)}) {
    expect_balanced(svg);
    EXPECT_FALSE(has(svg, "\"nan")) << svg;
  }
  EXPECT_FALSE(report_html(board).empty());
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

/// Trials that share slots are paused again and again. That is a gap in the lane and no failure.
TEST(Lineage, ARingIsAFailureAndAGapIsAPause) {
  for (const bool fails : {false, true}) {
    Experiment e({{{"x", uniform(0, 1)}}}, {.goal = maximize,
                                            .trials = 6,
                                            .scheduler = Pbt{.perturb_every = 2},
                                            .concurrent = 2,
                                            .max_failures = 1,
                                            .max_steps = 12});
    Simulation s{.train = [](std::vector<double>& w, const Point& p, long) { return w[0] += p[0]; },
                 .weights = {0}};
    s.fault = [fails](int trial, int attempt, long step) {
      return fails && trial == 1 && attempt == 1 && step == 2 ? "boom" : "";
    };
    Simulator(e, s).run(100'000);
    ASSERT_TRUE(e.over());
    const std::string svg = lineage_svg(e.board());
    expect_balanced(svg);
    EXPECT_EQ(count_of(svg, "began again</title>"), fails ? 1U : 0U);
    EXPECT_GT(count_of(svg, "class=\"gap\""), 4U);
    EXPECT_EQ(count_of(report_html(e.board()), "began again</title>"), fails ? 1U : 0U);
  }
}

TEST(Views, EveryRangeEndsSoon) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const double top = std::numeric_limits<double>::max();
  const std::vector<std::pair<double, double>> ranges = {
      {0.3, 0.1 + 0.2},  {0, 0},         {0, tiny},     {tiny, 2 * tiny},      {tiny, 1},
      {-top, top},       {1, top},       {tiny, top},   {-tiny, tiny},         {1e300, 1.0001e300},
      {1e17, 1e17 + 16}, {-HUGE_VAL, 1}, {1, HUGE_VAL}, {-HUGE_VAL, HUGE_VAL}, {NAN, NAN},
      {1e-300, 1e-299},  {top, top}};
  for (const auto& [a, b] : ranges) {
    Board board;
    board.name = "range";
    board.space = {{{"x", uniform(0, 1)}, {"y", log_uniform(1e-3, 1)}}};
    for (int i = 0; i < 2; ++i) {
      TrialInfo t;
      t.number = i;
      t.params = {i == 0 ? a : b, i == 0 ? std::abs(a) : std::abs(b)};
      t.history = {{1, i == 0 ? a : b, 0, 1}, {2, i == 0 ? b : a, 1, 1}};
      board.trials.push_back(t);
    }
    board.best = 1;
    for (const std::string& svg : {curves_svg(board), lineage_svg(board), parallel_svg(board)}) {
      expect_balanced(svg);
      EXPECT_FALSE(has(svg, "\"nan")) << a << " " << b;
      EXPECT_LT(svg.size(), 200'000U);
    }
    EXPECT_FALSE(report_html(board).empty());
    EXPECT_FALSE(joined(table(board, {})).empty());
    EXPECT_EQ(columns(sparkline(board.trials[0].history, 8)), 2U);
    for (const bool log : {false, true}) {
      EXPECT_LE(ticks(a, b, 6, log).size(), 64U);
      EXPECT_LE(ticks(b, a, 1000000, log).size(), 64U);
    }
  }
}

TEST(Views, TenThousandTrialsMakeAPictureOfTheBest) {
  Board board;
  board.name = "many";
  board.space = {{{"x", uniform(0, 1)}}};
  for (int i = 0; i < 10000; ++i) {
    TrialInfo t;
    t.number = i;
    t.params = {0.5};
    for (int k = 0; k < 50; ++k)
      t.history.push_back({k + 1, double(i % 97) + 1.0 / (k + 1), double(k), 1});
    board.trials.push_back(t);
  }
  const std::string svg = curves_svg(board);
  EXPECT_LT(svg.size(), 1'000'000U);
  EXPECT_TRUE(has(svg, "9800 not drawn"));
  EXPECT_LT(report_html(board).size(), 3'000'000U);
}

/// A study keeps some of its trials in memory. The views count the others.
TEST(Views, TrialsThatAreGoneCount) {
  Board board;
  board.name = "long";
  board.space = {{{"x", uniform(0, 1)}}};
  board.planned = 5000;
  board.gone = {.completed = 4000, .stopped = 300, .failed = 500, .failures = 700, .copies = 20};
  for (int i = 0; i < 150; ++i) {
    TrialInfo t;
    t.number = 7 * i + 3;
    t.params = {0.5};
    t.state = TrialState::completed;
    t.history = {{1, 1000.0 + i, 0, 1}};
    if (i == 5) t.copies = {{.donor = 1}, {.donor = 10}};  // the first donor is gone
    board.trials.push_back(t);
  }
  board.best = 17;
  ASSERT_NE(board.find(17), nullptr);
  EXPECT_EQ(board.find(17)->number, 17);
  EXPECT_EQ(board.find(18), nullptr);
  EXPECT_EQ(board.created(), 4950);
  const std::string page = report_html(board);
  EXPECT_TRUE(has(page, "<b>4950</b><span class=\"soft\">trials of 5000"))
      << page.substr(2000, 900);
  EXPECT_TRUE(has(page, "<b>22</b>"));
  EXPECT_TRUE(has(page, "<b>700</b><span class=\"soft\">attempts failed"));
  EXPECT_TRUE(has(page, "<tr class=\"best\"><td>17</td>"));
  EXPECT_TRUE(has(page, "4850 more trials"));
  EXPECT_TRUE(has(page, "4800 not drawn"));
  EXPECT_TRUE(has(joined(table(board, {})), "4150 completed, 300 stopped, 500 failed, 50 to come"));
  EXPECT_TRUE(has(joined(table(board, {})), "… 4930 more trials"));
  expect_balanced(lineage_svg(board));
}

TEST(Views, TextThatIsNoUtf8IsMadeSo) {
  Board board;
  board.name = "a\xff\xc3(\xed\xa0\x80\xef\xbf\xbf";
  board.metric = "m\xfe";
  TrialInfo t;
  t.history = {{1, 5, 0, 1}};
  board.trials.push_back(t);
  for (const std::string& text : {curves_svg(board), report_html(board), trials_csv(board)}) {
    EXPECT_NO_THROW(static_cast<void>(nlohmann::json(text).dump()));  // throws if not UTF-8
    EXPECT_FALSE(has(text, "\xef\xbf\xbf"));
  }
  EXPECT_EQ(fit("a\xc2\x9b"
                "2Jb",
                10),
            "a?2Jb");
}

/// Of thousands of trials only some are drawn; the requested one must be among them.
TEST(Views, TheBestTrialIsShownHoweverItEnded) {
  Board board;
  board.name = "many";
  board.goal = maximize;
  board.space = {{{"x", uniform(0, 1)}}};
  for (int i = 0; i < 3000; ++i) {
    TrialInfo t;
    t.number = i;
    t.params = {0.5};
    t.history = {{1, 1000.0 + i, 0, 1}, {2, i == 7 ? -1e6 : i, 1, 1}};
    board.trials.push_back(t);
  }
  board.best = 7;
  EXPECT_TRUE(has(curves_svg(board), "trial 7:"));
  EXPECT_TRUE(has(lineage_svg(board), ">trial 7<"));
  EXPECT_TRUE(has(report_html(board), "<tr class=\"best\"><td>7</td>"));
  EXPECT_TRUE(has(joined(table(board, {})), "7*"));
}

TEST(Exports, NamesOfColumnsDiffer) {
  Board board;
  board.metric = "trial";
  for (const char* name : {"step", "note", "config/step", "metrics/trial", "a\xff", "a\xfe"})
    board.space.parameters.push_back({name, uniform(0, 1)});
  TrialInfo t;
  t.params = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6};
  t.history = {{1, 5, 0, 1}};
  board.trials.push_back(t);
  for (const std::string& csv : {progress_csv(board), trials_csv(board)}) {
    std::istringstream header(csv.substr(0, csv.find('\n')));
    std::vector<std::string> names;
    for (std::string name; std::getline(header, name, ',');) names.push_back(name);
    EXPECT_TRUE(std::count(names.begin(), names.end(), "metrics/trial") == 1);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << csv;
  }
  EXPECT_TRUE(has(trials_csv(board), "\n0,waiting,1,5,0.1,0.2,0.3,0.4,0.5,0.6,0,,\n"));
  const auto row = nlohmann::json::parse(trials_jsonl(board));
  EXPECT_EQ(row.at("config").size(), 6U);
}

TEST(Exports, AMetricThatIsCalledAsTheScoreIsNotLost) {
  Board board = sample_board(2);
  board.metric = "step";
  board.trials[0].metrics = {{"step", 41}, {"score", 42}, {"trial_id", 43}};
  board.trials[1].metrics = {{"step", board.trials[1].score()}};
  std::istringstream lines(trials_jsonl(board));
  std::string line;
  std::getline(lines, line);
  const auto row = nlohmann::json::parse(line);
  EXPECT_EQ(row.at("step"), board.trials[0].score());
  EXPECT_EQ(row.at("metrics/step"), 41);
  EXPECT_EQ(row.at("score"), 42);
  EXPECT_EQ(row.at("trial_id"), "0");
  EXPECT_EQ(row.at("metrics/trial_id"), 43);
  std::getline(lines, line);
  EXPECT_FALSE(nlohmann::json::parse(line).contains("metrics/step")) << "the score itself";
}

TEST(Exports, NamesOfMetricsNeverHideAField) {
  Board board = sample_board(2);
  board.trials[0].metrics = {{"config", 1}, {"done", 2}, {"metrics/done", 3}, {"x", std::nan("")}};
  const auto line = trials_jsonl(board);
  const auto row = nlohmann::json::parse(line.substr(0, line.find('\n')));
  EXPECT_TRUE(row.at("config").is_object());
  EXPECT_EQ(row.at("done"), true);
  EXPECT_EQ(row.at("metrics/config"), 1);
  EXPECT_EQ(row.at("metrics/done"), 2);
  EXPECT_TRUE(row.at("x").is_null());
}

TEST(Ticks, AreRound) {
  EXPECT_EQ(ticks(0, 100, 5, false), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  const auto log = ticks(0.02, 30, 5, true);
  EXPECT_EQ(log.size(), 3U);
  EXPECT_NEAR(log[0], 0.1, 1e-12);
  EXPECT_EQ(ticks(5, 5, 4, false), (std::vector<double>{5}));
}

TEST(Exports, CsvAndJsonLines) {
  Board board = sample_board();
  board.trials[0].note = "a, \"b\"\nc";
  const std::string csv = trials_csv(board);
  EXPECT_TRUE(has(csv, "trial,state,step,loss,lr,kind,failures,copied,note\n"));
  EXPECT_TRUE(has(csv, "\"a, \"\"b\"\"\nc\""));
  const std::string progress = progress_csv(board);
  std::size_t samples = 0;
  for (const TrialInfo& t : board.trials) samples += t.history.size();
  EXPECT_EQ(std::size_t(std::count(progress.begin(), progress.end(), '\n')), samples + 1);
  std::istringstream lines(trials_jsonl(board));
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    const auto j = nlohmann::json::parse(line);
    EXPECT_EQ(j.at("trial_id"), std::to_string(n));
    EXPECT_EQ(j.at("training_iteration"), 20);
    EXPECT_TRUE(j.at("config").contains("lr"));
  }
  EXPECT_EQ(n, 6);
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned char>(c));
    out += text;
  }
  return out;
}

// Bytes that TensorBoard's own reader accepts.
TEST(TensorBoard, GoldenBytes) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(hex(tensorboard_header(1.7e9)),
            "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
  EXPECT_EQ(hex(tensorboard_scalar(1.7e9 + 1, 7, "loss", 0.5F)),
            "1a00000000000000129bd82d0900004040fc54d94110072a0d0a0b0a046c6f7373150000003f368fc084");
  EXPECT_EQ(tensorboard_file_name(1.7e9, "n1", 42), "events.out.tfevents.1700000000.n1.42");
}

TEST(Text, FitsAndDisarms) {
  EXPECT_EQ(fit("abcdef", 4), "abc…");
  EXPECT_EQ(fit("äöü", 3), "äöü");
  EXPECT_EQ(fit("a\x1b[2Jb", 10), "a?[2Jb");
  EXPECT_EQ(number(0.00312345), "0.003123");
  EXPECT_EQ(number(128), "128");
  EXPECT_EQ(duration_text(7.34), "7.3s");
  EXPECT_EQ(duration_text(125), "2m05s");
  EXPECT_EQ(duration_text(3720), "1h02m");
}

}  // namespace
}  // namespace troupe::tune
