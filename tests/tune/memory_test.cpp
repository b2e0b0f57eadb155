// Tests which trials of a long study stay in memory, and that the rest of it goes on without them.
#include "tests/leeway.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/tune/simulate.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <algorithm>
#include <set>

namespace troupe::tune::memory_test {
namespace {

SearchSpace space(int parameters = 1) {
  SearchSpace space;
  for (int i = 0; i < parameters; ++i)
    space.parameters.push_back({"p" + std::to_string(i), uniform(0, 1)});
  return space;
}

ExperimentOptions options_of(int trials) {
  ExperimentOptions options{.goal = maximize, .trials = trials};
  options.concurrent = 4;
  options.max_steps = 2;
  options.seed = 3;
  return options;
}

Simulation simulation() {
  Simulation s;
  s.weights = {0};
  s.train = [](std::vector<double>& w, const Point& p, long step) {
    return w[0] = p[0] * static_cast<double>(step);
  };
  s.fault = [](int trial, int, long step) { return trial % 10 == 3 && step == 2 ? "boom" : ""; };
  s.file_seconds = 0.2;
  return s;
}

Result<Experiment> restored(const ExperimentOptions& options, const SimulatedStore& store) {
  std::size_t i = 0;
  return Experiment::restore(space(), options, [&]() -> std::optional<std::string> {
    if (i == 0) return ++i, store.meta;
    return i <= store.events.size() ? std::optional(store.events[i++ - 1]) : std::nullopt;
  });
}

double score_in(const std::string& row) {
  return Json::parse(row).value().find("score")->as_number().value_or(-1);
}

TEST(StudyMemory, AThousandTrialsAreAllThere) {
  const ExperimentOptions options = options_of(1000);
  Experiment e(space(), options);
  SimulatedStore store;
  Simulator sim(e, simulation());
  sim.keep(store);
  sim.run();
  EXPECT_EQ(e.board().trials.size(), 1000U);
  EXPECT_EQ(e.board().gone.count(), 0);
}

TEST(StudyMemory, OfMoreTrialsTheLiveTheBestAndTheLatestStay) {
  constexpr int kTrials = 3000;
  const ExperimentOptions options = options_of(kTrials);
  Experiment e(space(), options);
  SimulatedStore store;
  Simulator sim(e, simulation());
  sim.keep(store);
  std::optional<Experiment> second;
  std::size_t batches = 0;
  std::vector<int> over;  // in their order
  store.written = [&](const StudyBatch& batch) {
    if (!second) {
      SimulatedStore start;
      start.meta = store.meta;
      auto follower = restored(options, start);
      ASSERT_TRUE(follower.ok()) << follower.error().message();
      second.emplace(std::move(*follower));
    }
    for (const std::string& line : batch.events) {
      ASSERT_TRUE(second->follow(line).ok());
      const auto event = event_from_json(line, space()).value();
      if (event.kind == Event::Kind::completed || event.kind == Event::Kind::failed)
        over.push_back(event.trial);
    }
    EXPECT_LE(e.board().trials.size(), 1004U);
    if (++batches % 293 != 0) return;
    ASSERT_EQ(second->fingerprint(), e.fingerprint());
    ASSERT_EQ(second->next_point(), e.next_point());
  };
  sim.run();
  ASSERT_TRUE(e.over());
  const Board& board = e.board();
  EXPECT_EQ(second->fingerprint(), e.fingerprint());
  EXPECT_EQ(board.created(), kTrials);
  EXPECT_LT(board.trials.size(), 600U);
  EXPECT_EQ(board.gone.completed + board.gone.failed, board.gone.count());
  int failed = board.gone.failed;
  int completed = board.gone.completed;
  for (const TrialInfo& t : board.trials) {
    failed += t.state == TrialState::failed;
    completed += t.state == TrialState::completed;
  }
  EXPECT_EQ(failed, kTrials / 10);
  EXPECT_EQ(completed, kTrials - kTrials / 10);
  EXPECT_EQ(board.gone.failures, board.gone.failed);
  // The store has a row for each trial, and each of them is over.
  ASSERT_EQ(store.trials.size(), static_cast<std::size_t>(kTrials));
  std::vector<std::pair<double, int>> best;
  for (const auto& [trial, row] : store.trials) {
    EXPECT_TRUE(row.find("\"state\":\"completed\"") != std::string::npos ||
                row.find("\"state\":\"failed\"") != std::string::npos)
        << row;
    best.emplace_back(-score_in(row), static_cast<int>(trial));
  }
  std::sort(best.begin(), best.end());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_NE(board.find(best[i].second), nullptr) << i;
  ASSERT_EQ(over.size(), static_cast<std::size_t>(kTrials));
  for (std::size_t i = over.size() - 100; i < over.size(); ++i)
    EXPECT_NE(board.find(over[i]), nullptr);
  EXPECT_NE(board.find(board.best), nullptr);
  EXPECT_TRUE(std::is_sorted(board.trials.begin(), board.trials.end(),
                             [](const auto& a, const auto& b) { return a.number < b.number; }));
}

/// Schedulers decide about trials in memory alone, whatever has left it.
TEST(StudyMemory, SchedulersGoOnWhenTrialsHaveLeft) {
  for (const AnyScheduler& scheduler :
       {AnyScheduler(AsyncHyperBand{.max_steps = 4, .eta = 2, .brackets = 2}),
        AnyScheduler(SuccessiveHalving{.eta = 2}), AnyScheduler(Patience{.patience = 1})}) {
    SCOPED_TRACE(show(scheduler));
    ExperimentOptions options = options_of(1400);
    options.max_steps = 4;
    options.max_failures = 1;
    options.scheduler = scheduler;
    options.searcher = Halton{};
    Experiment e(space(), options);
    SimulatedStore store;
    Simulator sim(e, simulation());
    sim.keep(store);
    sim.run();
    ASSERT_TRUE(e.over());
    EXPECT_GT(e.board().gone.count(), 500);
    EXPECT_EQ(store.trials.size(), 1400U);
    const auto again = restored(options, store);
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(again->fingerprint(), e.fingerprint());
    EXPECT_EQ(again->board().gone.stopped, e.board().gone.stopped);
  }
}

TEST(StudyMemory, ALongStudyGoesOnFromItsStore) {
  const ExperimentOptions options = options_of(2500);
  Experiment e(space(), options);
  SimulatedStore store;
  Simulator sim(e, simulation());
  sim.keep(store);
  sim.run(5000);
  ASSERT_FALSE(e.over());
  ASSERT_GT(e.board().gone.count(), 0);
  const int gone = [&] {
    int trial = 0;
    while (e.board().find(trial) != nullptr) ++trial;
    return trial;
  }();
  EXPECT_EQ(e.stop(gone, sim.now()).error().message(),
            "tune: trial " + std::to_string(gone) + " is over");
  e.ended(gone, 1, "a late message", sim.now());  // changes nothing
  e.reported(gone, 1, {.step = 7, .score = 1e9}, sim.now());
  auto again = restored(options, store);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->fingerprint(), e.fingerprint());
  Simulator rest(*again, simulation());
  rest.keep(store);
  rest.run();
  EXPECT_TRUE(again->over());
  EXPECT_EQ(again->board().created(), 2500);
  std::set<int> started;
  for (const Start& start : rest.starts()) {
    EXPECT_EQ(store.trials.count(static_cast<std::uint32_t>(start.trial)), 1U);
    started.insert(start.trial);
  }
  EXPECT_EQ(started.count(gone), 0U) << "a finished trial ran again";
  EXPECT_EQ(store.trials.size(), 2500U);
}

TEST(StudyMemory, TrialsWhoseModelIsKeptStay) {
  ExperimentOptions options = options_of(1500);
  options.save_at_end = true;
  Experiment e(space(), options);
  SimulatedStore store;
  Simulator sim(e, simulation());
  sim.keep(store);
  sim.run();
  for (const auto& [key, weights] : store.files) EXPECT_TRUE(e.needs(key)) << key;
  std::size_t kept = 0;
  for (const TrialInfo& t : e.board().trials) kept += t.checkpoint.has_value();
  EXPECT_EQ(kept, 1350U);
}

/// Returns the bytes that the program has allocated, large blocks included.
std::size_t heap() {
  const auto all = ::mallinfo2();
  return all.uordblks + all.hblkhd;
}

/// Runs trials that report once, through the core alone.
void run(Experiment& e, int until) {
  Time now{};
  const auto carry_out = [&](const Command& command) {
    if (const auto* start = std::get_if<Start>(&command)) {
      const double score = start->params[0];
      e.reported(start->trial, start->attempt, {.step = 1, .score = score}, now);
    } else if (const auto* reply = std::get_if<Reply>(&command)) {
      e.ended(reply->trial, reply->attempt, "", now);
    }
  };
  if (e.board().created() == 0) e.begin(now);
  while (!e.over() && e.board().created() < until) {
    now += std::chrono::milliseconds(1);
    e.tick(now);
    (void)e.take_batch();
    for (const Command& command : e.take_commands()) carry_out(command);
  }
}

/// 100,000 trials may take 32 MiB with random search, and 64 MiB with Tpe.
TEST(StudyMemory, GrowsByFewBytesATrial) {
  if (heap() == 0 || kLeeway > 2) GTEST_SKIP() << "the allocator does not count";
  constexpr int kTrials = 10'000;
  ExperimentOptions options = options_of(100'000);
  options.concurrent = 2;
  options.max_steps = 1;
  Experiment e(space(10), options);
  e.with_store();
  run(e, 1000);
  const std::size_t before = heap();
  run(e, kTrials);
  const auto core = static_cast<std::int64_t>(heap()) - static_cast<std::int64_t>(before);
  auto tpe = make_searcher(Tpe{}, space(10), maximize, 1);
  Random random(1);
  const std::size_t empty = heap();
  for (int i = 0; i < kTrials; ++i) {
    tpe->take(i, space(10).sample(random));
    tpe->tell({.trial = i, .score = random.uniform()});
  }
  const auto searcher = static_cast<std::int64_t>(heap()) - static_cast<std::int64_t>(empty);
  std::printf("core %.2f MiB, tpe %.2f MiB\n", static_cast<double>(core) / (1 << 20),
              static_cast<double>(searcher) / (1 << 20));
  EXPECT_LE(core, std::int64_t{kTrials} * (32 << 20) / 100'000);
  EXPECT_LE(searcher, std::int64_t{kTrials} * (32 << 20) / 100'000);
}

}  // namespace
}  // namespace troupe::tune::memory_test
