// Tests optimize() with a results folder on real processes: drivers that are killed and continue,
// complete studies, damaged files, and calls that do not fit.
#include "tests/chaos/processes.hpp"
#include "tests/paths.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/study/study_disk.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace study_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace tune = troupe::tune;
using nlohmann::json;

struct Hp {
  double rate = 0.1;
};
struct Net {
  std::vector<double> weight = {1.0};
  [[maybe_unused]] friend auto fields(Net& n) { return std::tie(n.weight); }
  [[maybe_unused]] friend auto fields(const Net& n) { return std::tie(n.weight); }
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-4, 0.3));
}

void mark(const tune::Trial& t, const std::string& file, const std::string& what) {
  if (file.empty()) return;
  std::ofstream(file, std::ios::app) << what + ' ' + std::to_string(t.number()) + ' ' +
                                            std::to_string(t.attempt()) + ' ' +
                                            std::to_string(t.step()) + '\n';
}

/// A trial whose score at a step follows from its rate alone. Each attempt notes its beginning and
/// the reports that were answered.
void falls(tune::Trial& t, Hp hp, const std::string& marks) {
  Net net;
  t.restore(net);
  mark(t, marks, "begun");
  for (;;) {
    net.weight[0] *= 1 - hp.rate;
    ::usleep(2000);
    if (!t.report(net.weight[0], net)) return;
    mark(t, marks, "answered");
  }
}

tune::Options<> options_of(const std::string& kind, const std::string& folder) {
  tune::Options<> options{.goal = tune::minimize,
                          .trials = 20,
                          .scheduler = tune::AsyncHyperBand{.max_steps = 27, .eta = 3},
                          .searcher = tune::Tpe{},
                          .concurrent = 1,
                          .save_every = 3,
                          .seed = 5,
                          .show = false,
                          .results = folder};
  if (kind == "two slots" || kind == "long") options.concurrent = 2;
  if (kind == "long") {
    options.trials = 4;
    options.scheduler = tune::Fifo{};
    options.searcher = {};
    options.max_steps = 400;
    options.save_every = 50;
    return options;
  }
  if (kind != "Pbt" && kind != "synchronous Pbt") return options;
  options.trials = 4;
  options.concurrent = 2;
  options.scheduler = tune::Pbt{.perturb_every = 5, .synchronous = kind != "Pbt"};
  options.searcher = {};
  options.max_steps = 30;
  return options;
}

/// Returns the table of a board, without what differs from run to run: times and attempts.
std::string table_of(const tune::Board& board) {
  std::string table;
  for (const tune::TrialInfo& t : board.trials) {
    table += std::to_string(t.number) + " " + std::string(name_of(t.state)) + " " +
             board.space.show(t.params);
    std::map<long, double> scores;  // a repeated step has the same one
    for (const tune::Sample& s : t.history) scores[s.step] = s.score;
    for (const auto& [step, score] : scores)
      table += " " + std::to_string(step) + ":" + std::to_string(score * 1e9);
    table += "\n";
  }
  return table;
}

class Study : public testing::Test {
 protected:
  Study() = default;
  ~Study() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  std::string folder() const { return root_ + "/study"; }

  std::string root_ = [] {
    std::string name = testing::TempDir() + "troupe_study_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

/// The program that the tests kill: this test's own, in a process of its own.
TEST(StudyDriver, DISABLED_Runs) {
  const char* folder = std::getenv("STUDY_TEST");
  const char* kind = std::getenv("STUDY_TEST_KIND");
  ASSERT_TRUE(folder != nullptr && kind != nullptr);
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
  const std::string marks = std::string(folder) + ".marks";
  static_cast<void>(tune::optimize<falls, Hp>(ctx, space(), options_of(kind, folder), marks));
}

chaos::Child start_driver(const std::string& folder, const std::string& kind) {
  ::setenv("STUDY_TEST", folder.c_str(), 1);
  ::setenv("STUDY_TEST_KIND", kind.c_str(), 1);
  return chaos::start({"/proc/self/exe", "--gtest_also_run_disabled_tests",
                       "--gtest_filter=StudyDriver.DISABLED_Runs"},
                      {}, folder + ".log", false);
}

/// Runs drivers until one ends by itself, and kills `kills` of them at random moments of the
/// study. Returns how many were killed.
int run_drivers(const std::string& folder, const std::string& kind, int kills, int round) {
  chaos::adopt_orphans();
  unsigned state =
      12345 + static_cast<unsigned>(kind.size()) + 1000u * static_cast<unsigned>(round);
  int killed = 0;
  for (int run = 0; run < 4 * kills + 4; ++run) {
    chaos::Child driver = start_driver(folder, kind);
    state = state * 1664525u + 1013904223u;
    const auto moment = std::chrono::milliseconds(20 + (state >> 25));  // up to 147 ms
    const bool began = chaos::within(
        20s, [&] { return fs::exists(folder + "/owner") || !chaos::is_alive(driver.pid); });
    EXPECT_TRUE(began);
    if (killed < kills && !chaos::within(moment, [&] { return !chaos::is_alive(driver.pid); })) {
      chaos::hit(driver.pid, SIGKILL);
      ++killed;
    }
    const int code = chaos::wait_for(driver.pid, 60s);
    chaos::close_ends(driver);
    if (code == 0) return killed;
    EXPECT_EQ(code, 128 + SIGKILL) << "a driver failed: see its log";
    if (code != 128 + SIGKILL) break;
  }
  ADD_FAILURE() << "no driver came to the end";
  return killed;
}

constexpr int kKills = 5;  ///< of a study
/// Studies of a test, each killed at moments of its own.
int studies() {
  return std::getenv("TROUPE_LONG_TESTS") != nullptr ? 10 : 1;
}

void expect_no_process_is_left() {
  EXPECT_TRUE(chaos::within(5s, [] { return chaos::descendants().empty(); }));
}

TEST_F(Study, ADriverThatIsKilledGoesOnWithTheVeryTableOfACalmOne) {
  for (int round = 0; round < studies(); ++round) {
    const std::string place = folder() + std::to_string(round);
    EXPECT_GE(run_drivers(place, "one slot", kKills, round), 2);
    expect_no_process_is_left();
    troupe::Session session{{.cpus = 2}};
    troupe::Context ctx = session.context();
    const auto calm =
        tune::optimize<falls, Hp>(ctx, space(), options_of("one slot", ""), std::string());
    const auto over =
        tune::optimize<falls, Hp>(ctx, space(), options_of("one slot", place), std::string());
    EXPECT_EQ(table_of(over.board), table_of(calm.board));
    EXPECT_EQ(over.score, calm.score);
    Net net;
    over.restore(ctx, net);
    EXPECT_EQ(net.weight[0], over.score);
  }
}

TEST_F(Study, NoTrialStartsBeforeItsLastButOneCheckpoint) {
  for (int round = 0; round < studies(); ++round) {
    const std::string place = folder() + std::to_string(round);
    EXPECT_GE(run_drivers(place, "two slots", kKills, round), 2);
    expect_no_process_is_left();
    std::ifstream marks(place + ".marks");
    std::map<int, long> furthest;
    std::map<int, int> attempts;
    std::string what;
    for (int trial = 0, attempt = 0, step = 0; marks >> what >> trial >> attempt >> step;) {
      if (what == "begun") {
        // Due checkpoints are at most 3 steps apart, and the last one may have no file yet.
        EXPECT_GE(step + 5, furthest[trial]) << "trial " << trial << ", attempt " << attempt;
        EXPECT_GT(attempt, attempts[trial]) << "no attempt runs twice";
      }
      furthest[trial] = std::max<long>(furthest[trial], step);
      attempts[trial] = attempt;
    }
    EXPECT_EQ(attempts.size(), 20u);
  }
}

TEST_F(Study, KilledPopulationsEndWithAllTrialsAndProvenCopies) {
  for (int round = 0; round < 2 * studies(); ++round) {
    const std::string kind = round % 2 == 0 ? "Pbt" : "synchronous Pbt";
    const std::string place = folder() + std::to_string(round);
    EXPECT_GE(run_drivers(place, kind, kKills, round), 2) << kind;
    expect_no_process_is_left();
    troupe::Session session{{.cpus = 2}};
    troupe::Context ctx = session.context();
    const auto over =
        tune::optimize<falls, Hp>(ctx, space(), options_of(kind, place), std::string());
    ASSERT_EQ(over.board.trials.size(), 4u);
    for (const tune::TrialInfo& t : over.board.trials) {
      EXPECT_EQ(t.state, tune::TrialState::completed) << kind << t.number << ": " << t.note;
      EXPECT_EQ(t.step(), 30) << kind;
      EXPECT_EQ(t.failures, 0) << kind;
      for (const tune::Copy& copy : t.copies) EXPECT_TRUE(copy.proven) << kind << t.number;
    }
    Net net;
    over.restore(ctx, net);
    EXPECT_EQ(net.weight[0], over.score) << kind;
  }
}

/// The answer of a verb of `troupe tune`; null when it fails.
json verb(std::vector<std::string> arguments, const std::string& log) {
  arguments.insert(arguments.begin(), {paths::command(), "tune"});
  arguments.emplace_back("--json");
  chaos::Child child = chaos::start(arguments, {}, log, false);
  const std::string answer = chaos::read_all(child.out, 20s);
  const int code = chaos::wait_for(child.pid, 20s);
  chaos::close_ends(child);
  return code == 0 ? json::parse(answer, nullptr, false) : json();
}

/// Whether the study's owner says that it is paused, and at least two of its trials have stopped
/// with a checkpoint while none runs.
bool stands_still(const std::string& folder) {
  const json study = verb({"show", folder}, folder + ".verbs");
  if (!study.is_object() || study.at("state") != "running" || study.at("paused") != true)
    return false;
  int stopped = 0;
  for (const json& trial : study.at("trials")) {
    if (trial.at("state") == "running" || trial.at("state") == "leaving") return false;
    stopped += trial.at("state") == "paused" && trial.contains("checkpoint") ? 1 : 0;
  }
  return stopped >= 2;
}

TEST_F(Study, APauseLastsOverAKillUntilTheUserResumesTheStudy) {
  chaos::adopt_orphans();
  chaos::Child driver = start_driver(folder(), "long");
  EXPECT_TRUE(chaos::within(20s, [&] {
    verb({"pause", folder()}, folder() + ".verbs");
    return stands_still(folder());
  }));
  const fs::path files = folder() + "/checkpoints";
  EXPECT_TRUE(chaos::within(20s, [&] {
    return std::distance(fs::directory_iterator(files), fs::directory_iterator()) >= 2;
  }));
  verb({"pause", folder()}, folder() + ".verbs");  // answered once the files were recorded
  chaos::hit(driver.pid, SIGKILL);
  EXPECT_EQ(chaos::wait_for(driver.pid, 60s), 128 + SIGKILL);
  chaos::close_ends(driver);
  EXPECT_EQ(verb({"show", folder()}, folder() + ".verbs").value("paused", false), true);
  chaos::Child next = start_driver(folder(), "long");
  EXPECT_TRUE(chaos::within(20s, [&] { return stands_still(folder()); }));
  EXPECT_TRUE(verb({"resume", folder()}, folder() + ".verbs").is_object());
  EXPECT_EQ(chaos::wait_for(next.pid, 60s), 0);
  chaos::close_ends(next);
  std::ifstream marks(folder() + ".marks");
  int continued = 0;
  std::string what;
  for (int trial = 0, attempt = 0, step = 0; marks >> what >> trial >> attempt >> step;)
    continued += what == "begun" && attempt > 1 && step > 0 ? 1 : 0;
  EXPECT_GT(continued, 0) << "trials go on from what they saved";
  expect_no_process_is_left();
}

template <class E, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.message();
  }
  return "nothing was thrown";
}

class ShortStudy : public Study {
 protected:
  tune::Best<Hp> run(const tune::Options<>& options) {
    return tune::optimize<falls, Hp>(ctx, space(), options, std::string(folder() + ".marks"));
  }
  tune::Options<> options() const {
    tune::Options<> options = options_of("one slot", folder());
    options.scheduler = tune::Fifo{};
    options.searcher = {};
    options.trials = 4;
    options.max_steps = 6;
    options.save_at_end = true;
    return options;
  }
  /// Returns how many attempts have begun.
  int begun() const {
    std::ifstream marks(folder() + ".marks");
    int count = 0;
    for (std::string line; std::getline(marks, line);) count += line.starts_with("begun") ? 1 : 0;
    return count;
  }
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
};

TEST_F(ShortStudy, ACompleteStudyReturnsItsResultAndStartsNothing) {
  const auto first = run(options());
  EXPECT_EQ(begun(), 4);
  const auto again = run(options());
  EXPECT_EQ(begun(), 4);
  EXPECT_EQ(again.score, first.score);
  EXPECT_EQ(again.params.rate, first.params.rate);
  EXPECT_EQ(table_of(again.board), table_of(first.board));
  EXPECT_EQ(again.models.trials(), (std::vector<int>{0, 1, 2, 3}));
  for (const int trial : again.models.trials()) {
    Net net;
    static_cast<void>(troupe::train::load_model(ctx, again.models.at(trial), 10s, net));
    EXPECT_EQ(net.weight[0], again.board.trials[static_cast<std::size_t>(trial)].score());
  }
}

TEST_F(ShortStudy, MoreTrialsContinueACompleteStudy) {
  const auto first = run(options());
  tune::Options<> more = options();
  more.trials = 7;
  const auto next = run(more);
  EXPECT_EQ(begun(), 7);
  ASSERT_EQ(next.board.trials.size(), 7u);
  EXPECT_EQ(table_of(next.board).find(table_of(first.board)), 0u) << "the first four stay";
}

TEST_F(ShortStudy, ResumeSaysWhatTheFolderMustHold) {
  tune::Options<> with = options();
  with.resume = tune::Resume::required;
  EXPECT_NE(message_of<troupe::InvalidArgument>([&] { run(with); }).find("does not exist"),
            std::string::npos);
  with.resume = tune::Resume::never;
  run(with);
  EXPECT_NE(message_of<troupe::InvalidArgument>([&] { run(with); }).find("is there already"),
            std::string::npos);
  EXPECT_EQ(begun(), 4);
}

TEST_F(ShortStudy, AnotherExperimentIsRefusedWithBothValues) {
  run(options());
  const auto refusal = [&](const std::function<void(tune::Options<>&)>& change) {
    tune::Options<> other = options();
    change(other);
    return message_of<troupe::InvalidArgument>([&] { run(other); });
  };
  const std::string goal = refusal([](auto& o) { o.goal = tune::maximize; });
  EXPECT_NE(goal.find(folder()), std::string::npos) << goal;
  EXPECT_NE(goal.find("its goal is minimize, and that of this call is maximize"), std::string::npos)
      << goal;
  const std::string seed = refusal([](auto& o) { o.seed = 6; });
  EXPECT_NE(seed.find("its seed is 5, and that of this call is 6"), std::string::npos) << seed;
  const std::string scheduler = refusal([](auto& o) { o.scheduler = tune::MedianStopping{}; });
  EXPECT_NE(scheduler.find("its scheduler is"), std::string::npos) << scheduler;
  EXPECT_EQ(begun(), 4);
}

TEST_F(ShortStudy, AnAlteredFileCostsTheModelAndNotTheResult) {
  const auto first = run(options());
  for (const auto& file : fs::directory_iterator(folder() + "/checkpoints")) {
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-3, std::ios::end);
    bytes.put('!');
  }
  const auto again = run(options());
  EXPECT_EQ(again.score, first.score);
  EXPECT_FALSE(again.model);
  EXPECT_NE(again.no_model.find("is altered"), std::string::npos) << again.no_model;
  EXPECT_NE(message_of<troupe::InvalidArgument>([&] { (void)again.models.at(0); }).find("altered"),
            std::string::npos);
}

TEST_F(ShortStudy, AMissingFileIsNamedOnceAndTheStudyGoesOn) {
  run(options());
  for (const auto& file : fs::directory_iterator(folder() + "/checkpoints"))
    fs::remove(file.path());
  tune::Options<> more = options();
  more.trials = 5;
  testing::internal::CaptureStderr();
  const auto next = run(more);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("is missing"), std::string::npos) << told;
  EXPECT_EQ(next.board.trials.size(), 5u);
  EXPECT_EQ(next.board.trials[4].state, tune::TrialState::completed);
}

TEST_F(ShortStudy, AnotherBuildIsToldWithBothAndTheStudyGoesOn) {
  run(options());
  {
    auto disk = tune::StudyDisk::open(ctx, folder(), {}).value();
    std::string meta = *disk->lines()();
    const std::string name = R"("build":")";
    const std::size_t at = meta.find(name) + name.size();
    ASSERT_GT(at, name.size());
    meta.replace(at, meta.find('"', at) - at, "0123abc");
    tune::StudyBatch batch;
    batch.meta = meta;
    disk->write(batch);
  }
  tune::Options<> more = options();
  more.trials = 5;
  testing::internal::CaptureStderr();
  const auto next = run(more);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("goes on with another build: "), std::string::npos) << told;
  EXPECT_NE(told.find(" instead of 0123abc"), std::string::npos) << told;
  EXPECT_EQ(next.board.trials.size(), 5u);
}

void forever(tune::Trial& t, Hp hp, const std::string& file) {
  std::ofstream(file) << "x";
  for (long step = 1; t.report(hp.rate); ++step) ::usleep(1000);
}

TEST_F(ShortStudy, AStudyThatAnotherCallOwnsIsRefusedWithItsProcess) {
  std::string refusal;
  tune::Options<> with = options();
  with.trials = 1;
  with.max_steps = 3;
  with.on_event = [&](const tune::Event& e) {
    if (e.trial < 0 || !refusal.empty()) return;
    refusal = message_of<troupe::Unavailable>([&] { run(options()); });
  };
  static_cast<void>(tune::optimize<forever, Hp>(ctx, space(), with, folder() + ".marks"));
  EXPECT_NE(refusal.find("pid " + std::to_string(::getpid())), std::string::npos) << refusal;
}

}  // namespace
}  // namespace study_test
