// Tests the processes that run trials: one for many attempts, and what ends them.
#include "tests/leeway.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

namespace trial_hosts {

using namespace std::chrono_literals;
namespace tune = troupe::tune;
namespace train = troupe::train;

struct Hp {
  double rate = 0.1;
};
tune::Space<Hp> space() {
  return tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-2, 0.3));
}
tune::Options<> options(int trials, long max_steps = 1) {
  return {.goal = tune::minimize, .trials = trials, .max_steps = max_steps, .show = false};
}
template <auto trial, class... X>
tune::Best<Hp> best_on(double cpus, const tune::Options<>& with, X... passed) {
  troupe::Session session({.cpus = cpus});
  troupe::Context ctx = session.context();
  return tune::optimize<trial, Hp>(ctx, space(), with, passed...);
}
/// Returns the texts of Trial::note() without the trials' numbers.
std::vector<std::string> notes_of(const tune::Best<Hp>& best) {
  std::vector<std::string> notes;
  for (const std::string& note : best.notes)
    if (note.compare(0, 6, "trial ") == 0) notes.push_back(note.substr(note.find(": ") + 2));
  return notes;
}

void says_pid(tune::Trial& t, Hp) {
  static int runs = 0;
  t.note(std::to_string(::getpid()) + " " + std::to_string(++runs));
  t.report(1);
}

TEST(TrialHost, OneProcessRunsTrialAfterTrialAndKeepsItsStatics) {
  const std::vector<std::string> notes = notes_of(best_on<says_pid>(1, options(5)));
  ASSERT_EQ(notes.size(), 5U);
  const std::string pid = notes[0].substr(0, notes[0].find(' '));
  for (int run = 1; run <= 5; ++run)
    EXPECT_EQ(notes[static_cast<std::size_t>(run) - 1], pid + " " + std::to_string(run));
}

TEST(TrialHost, AFreshProcessForEachAttemptOnRequest) {
  tune::Options<> fresh = options(4);
  fresh.fresh_process = true;
  std::set<std::string> pids;
  for (const std::string& note : notes_of(best_on<says_pid>(1, fresh))) {
    pids.insert(note);
    EXPECT_EQ(note.substr(note.find(' ')), " 1");
  }
  EXPECT_EQ(pids.size(), 4U);
}

void ignore_signal(int) {}

/// Notes what an earlier trial has left behind, and then leaves as much as it can.
void vandal(tune::Trial& t, Hp) {
  std::string found;
  if (std::getenv("VANDAL") != nullptr) found += " environment";
  if (std::getenv("HOME_OF_VANDAL") == nullptr) found += " variable";
  if (std::filesystem::current_path() == "/") found += " folder";
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (mask == 0123) found += " umask";
  if (std::signal(SIGUSR2, SIG_DFL) == ignore_signal) found += " signal";
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (sigismember(&blocked, SIGUSR2) == 1) found += " mask";
  if (std::string(std::setlocale(LC_NUMERIC, nullptr)) != "C") found += " locale";
  if (std::fegetround() != FE_TONEAREST) found += " rounding";
  t.note("found" + found);
  ::setenv("VANDAL", "1", 1);
  ::unsetenv("HOME_OF_VANDAL");
  std::filesystem::current_path("/");
  ::umask(0123);
  std::signal(SIGUSR2, ignore_signal);
  sigaddset(&blocked, SIGUSR2);
  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  std::setlocale(LC_ALL, "C.UTF-8");
  std::fesetround(FE_UPWARD);
  t.report(1);
}

TEST(TrialHost, TheNextTrialFindsTheProcessAsTheFirstOne) {
  ::setenv("HOME_OF_VANDAL", "1", 1);
  const std::vector<std::string> notes = notes_of(best_on<vandal>(1, options(3)));
  ::unsetenv("HOME_OF_VANDAL");
  EXPECT_EQ(notes, (std::vector<std::string>{"found", "found", "found"}));
}

void ends_badly(tune::Trial& t, Hp hp, bool leaves_child) {
  says_pid(t, hp);
  if (t.number() != 0) return;
  if (!leaves_child) throw std::runtime_error("boom");
  if (::fork() == 0) {
    ::pause();
    ::_exit(0);
  }
}

TEST(TrialHost, AnAttemptThatFailsOrLeavesAChildIsTheLastOfItsProcess) {
  for (const bool leaves_child : {false, true}) {
    const std::vector<std::string> notes =
        notes_of(best_on<ends_badly>(1, options(3), leaves_child));
    ASSERT_EQ(notes.size(), 3U);
    EXPECT_EQ(notes[0].substr(notes[0].find(' ')), " 1");
    EXPECT_EQ(notes[1].substr(notes[1].find(' ')), " 1") << "a new process";
    EXPECT_EQ(notes[2].substr(notes[2].find(' ')), " 2");
  }
}

void falls_silent(tune::Trial& t, Hp) {
  t.report(1);
  if (t.number() == 0) std::this_thread::sleep_for(1h);
  t.report(0.5);
}

TEST(TrialHost, ASilentAttemptEndsAsAFailure) {
  tune::Options<> with = options(2, 2);
  with.silence = 300ms;
  const auto best = best_on<falls_silent>(2, with);
  const tune::TrialInfo& silent = best.board.trials.at(0);
  EXPECT_EQ(silent.state, tune::TrialState::failed);
  EXPECT_EQ(silent.failures, 1);
  EXPECT_EQ(silent.note, "it has not reported for 0.3s, the limit of Options::silence");
  EXPECT_EQ(best.board.trials.at(1).state, tune::TrialState::completed);
}

void two_metrics(tune::Trial& t, Hp, bool named) {
  const double loss = 0.1 * (t.number() + 1);
  train::Metrics metrics{.step = 1, .loss = loss};
  metrics.extra[named ? "accuracy" : "f1"] = 1 - loss;
  t.report(metrics, {});
}

TEST(TrialHost, TheMetricsNameChoosesTheScore) {
  tune::Options<> with = options(3);
  with.goal = tune::maximize;
  with.metric = "accuracy";
  const auto best = best_on<two_metrics>(1, with, true);
  EXPECT_EQ(best.trial, 0) << "the largest accuracy, not the largest loss";
  EXPECT_DOUBLE_EQ(best.score, 0.9);
  EXPECT_DOUBLE_EQ(best.board.trials.at(0).metrics.at("loss"), 0.1);
  const auto none = best_on<two_metrics>(1, with, false);
  for (const tune::TrialInfo& trial : none.board.trials) {
    EXPECT_EQ(trial.state, tune::TrialState::failed);
    EXPECT_NE(trial.note.find("has no metric 'accuracy', which Options::metric names; it has loss, "
                              "f1"),
              std::string::npos)
        << trial.note;
  }
  EXPECT_EQ(best_on<says_pid>(1, with).score, 1) << "a plain number is the metric of any name";
  with.metric = "loss";
  EXPECT_DOUBLE_EQ(best_on<two_metrics>(1, with, true).score, 0.3);
}

/// Saves a model of the step before its report from step 2 on.
void saves_the_past(tune::Trial& t, Hp) {
  const std::vector<double> model = {1};
  for (long step = 1;; ++step) {
    const auto save = [&] {
      return train::save_model(t.context(), step == 1 ? 1 : step - 1, model);
    };
    if (!t.report({.step = step, .loss = 1 / static_cast<double>(step)}, save)) return;
  }
}

TEST(TrialHost, AModelOfAnotherStepIsRefused) {
  const auto best = best_on<saves_the_past>(1, options(1, 5));
  const tune::TrialInfo& trial = best.board.trials.at(0);
  EXPECT_EQ(trial.state, tune::TrialState::failed);
  EXPECT_NE(trial.note.find("the report of step 2 came with a model of step 1: save it"),
            std::string::npos)
      << trial.note;
}

TEST(TrialHost, EventsAreToldInTheDriverAndAThrowIsANote) {
  tune::Options<> with = options(2);
  std::vector<tune::Event::Kind> seen;
  with.on_event = [&](const tune::Event& event) {
    seen.push_back(event.kind);
    if (event.kind == tune::Event::Kind::completed && event.trial == 1)
      throw std::runtime_error("boom");
  };
  const auto best = best_on<says_pid>(1, with);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), tune::Event::Kind::completed), 2);
  EXPECT_EQ(seen.back(), tune::Event::Kind::over);
  EXPECT_EQ(std::count(best.notes.begin(), best.notes.end(), "Options::on_event threw: boom"), 1);
}

void endless(tune::Trial& t, Hp) {
  for (double score = 1; t.report(score); score /= 2) std::this_thread::sleep_for(10ms);
  if (t.number() == 0) std::this_thread::sleep_for(1h);  // it ignores the end
}

TEST(TrialHost, CtrlCEndsWithTheBestSoFarAndFiles) {
  char folder[] = "/tmp/troupe-cancel-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  tune::Options<> with = options(8, 1'000'000);
  with.results = folder;
  with.time_limit = 60s;
  std::signal(SIGINT, SIG_DFL);  // a shell may have started this in the background
  std::optional<std::chrono::steady_clock::time_point> struck;
  with.on_event = [&](const tune::Event& event) {
    if (event.kind != tune::Event::Kind::best || struck) return;
    struck = std::chrono::steady_clock::now();
    ::kill(::getpid(), SIGINT);
  };
  try {
    best_on<endless>(2, with);
    FAIL() << "it ended without an error";
  } catch (const troupe::Cancelled& error) {
    ASSERT_TRUE(struck);
    EXPECT_LT(std::chrono::steady_clock::now() - *struck, 2s * kLeeway / 2);
    EXPECT_NE(error.message().find("the best so far is trial "), std::string::npos)
        << error.message();
    EXPECT_NE(error.message().find(folder), std::string::npos) << error.message();
  }
  EXPECT_TRUE(std::filesystem::exists(std::string(folder) + "/report.html"));
  struct sigaction now{};
  ::sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "the second one kills";
  std::filesystem::remove_all(folder);
}

}  // namespace trial_hosts
