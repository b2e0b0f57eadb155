// Tests the exports of a study: files that go on after any cut as if nothing had happened.
#include "troupe/tune/export/exports.hpp"

#include "tests/tune/study/studies.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/tune/simulate.hpp"
#include "troupe/tune/views/tables.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <sstream>

namespace troupe::tune::exports_test {
namespace {

using namespace studies;

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"kind", choices({"a", "b,\"c\""})}}};
}

/// What a study of the simulator writes, in about `parts` batches.
std::vector<StudyBatch> batches_of(const ExperimentOptions& options, std::size_t parts) {
  Experiment e(space(), options);
  Simulation simulation;
  simulation.weights = {10};
  simulation.train = [](std::vector<double>& w, const Point& p, long) {
    return w[0] *= 1 - p[0] / 2;
  };
  simulation.fault = [](int trial, int attempt, long step) {
    return trial % 5 == 1 && attempt <= 2 && step == 2 ? "boom" : "";
  };
  SimulatedStore store;
  std::vector<StudyBatch> all;
  store.written = [&](const StudyBatch& batch) { all.push_back(batch); };
  Simulator sim(e, simulation);
  sim.keep(store);
  sim.run();
  std::vector<StudyBatch> merged;
  const std::size_t each = std::max<std::size_t>(all.size() / parts, 1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % each == 0) {
      merged.push_back(all[i]);
      continue;
    }
    StudyBatch& into = merged.back();
    const auto add = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    if (into.events.empty()) into.first_event = all[i].first_event;
    add(into.events, all[i].events);
    add(into.trials, all[i].trials);
    add(into.reports, all[i].reports);
    if (all[i].meta) into.meta = all[i].meta;
  }
  return merged;
}

ExperimentOptions small(int trials = 30) {
  ExperimentOptions options{.goal = minimize, .trials = trials};
  options.concurrent = 4;
  options.max_failures = 1;
  options.max_steps = 6;
  options.scheduler = AsyncHyperBand{.max_steps = 6, .eta = 2};
  options.metric = "loss";
  return options;
}

Board names() {
  Board board;
  board.metric = "loss";
  board.space = space();
  return board;
}

/// Returns the content of each file below the folder.
std::map<std::string, std::string> tree(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), folder).string()] = slurp(entry.path());
  return files;
}

class ExportsTest : public studies::Test {
 protected:
  void open_store() {
    store_.reset();
    auto store = StudyStore::open(study_, options());
    ASSERT_TRUE(store.ok()) << store.error().what();
    store_ = std::move(*store);
  }
  void write(const StudyBatch& batch) { ASSERT_TRUE(store_->write(batch).ok()); }
  void write_rows(const Exports::Pumped& pumped) {
    StudyBatch rows;
    rows.exporters = pumped.rows;
    write(rows);
  }
  /// Takes all events, and returns the notes.
  std::vector<std::string> pump_all(Exports& exports) {
    std::vector<std::string> notes;
    for (bool more = true; more;) {
      const Exports::Pumped pumped = exports.pump(store_->rows(), 100);
      notes.insert(notes.end(), pumped.notes.begin(), pumped.notes.end());
      write_rows(pumped);
      more = pumped.more && pumped.notes.empty();
    }
    return notes;
  }
  std::string folder() const { return root_ + "/exports"; }
  /// The files of a study that nothing interrupted.
  std::map<std::string, std::string> uninterrupted(const std::vector<StudyBatch>& batches,
                                                   ExportOptions which) {
    open_store();
    for (const StudyBatch& batch : batches) write(batch);
    Exports exports(root_ + "/whole", names(), which);
    EXPECT_EQ(pump_all(exports), std::vector<std::string>());
    store_.reset();
    fs::remove_all(study_);
    return tree(root_ + "/whole");
  }

  std::unique_ptr<StudyStore> store_;
};

TEST_F(ExportsTest, ARowPerReportAndPerTrialThatIsOver) {
  const auto batches = batches_of(small(), 10);
  const auto files = uninterrupted(batches, {});
  std::map<std::string, int> kinds;
  for (const StudyBatch& batch : batches)
    for (const std::string& event : batch.events)
      ++kinds[*Json::parse(event).value().find("event")->as_text()];
  const auto lines = [&](const std::string& name) {
    const std::string& text = files.at(name);
    return std::count(text.begin(), text.end(), '\n');
  };
  const int over = kinds["completed"] + kinds["stopped"] + kinds["failed"];
  EXPECT_EQ(over, 30);
  EXPECT_GT(kinds["retry"], 0);
  EXPECT_EQ(lines("progress.csv"), kinds["report"] + 1);
  EXPECT_EQ(lines("progress.jsonl"), kinds["report"]);
  EXPECT_EQ(lines("trials.csv"), over + 1);
  EXPECT_EQ(lines("trials.jsonl"), over);
  EXPECT_TRUE(files.at("trials.csv").starts_with(trials_csv_header(names())));
  EXPECT_EQ(files.size(), 4U + 30U) << "a run per trial";
  std::istringstream rows(files.at("trials.jsonl"));
  for (std::string row; std::getline(rows, row);) {
    const Json json = Json::parse(row).value();
    ASSERT_NE(json.find("loss"), nullptr) << row;
    EXPECT_TRUE(json.find("loss")->as_number());
    EXPECT_NE(json.find("config")->find("kind")->as_text(), nullptr);
    EXPECT_TRUE(*json.find("done")->as_bool());
  }
}

/// The driver dies at any moment: the row of a cursor may be older than the files, which may have
/// bytes after it, also half a row.
TEST_F(ExportsTest, CutAndContinuedAnywhereTheFilesAreThoseOfAnUninterruptedStudy) {
  const auto batches = batches_of(small(), 60);
  const ExportOptions which{.most_runs = 7};
  const auto expected = uninterrupted(batches, which);
  EXPECT_EQ(expected.size(), 4U + 7U);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    fs::remove_all(study_);
    fs::remove_all(folder());
    open_store();
    auto exports = std::make_unique<Exports>(folder(), names(), which);
    for (const StudyBatch& batch : batches) {
      write(batch);
      const Exports::Pumped pumped = exports->pump(store_->rows(), 1 + random.below(30));
      EXPECT_TRUE(pumped.notes.empty()) << pumped.notes.front();
      const bool dies = random.chance(0.2);
      if (!dies || random.chance(0.5)) write_rows(pumped);
      if (!dies) continue;
      exports.reset();
      if (random.chance(0.5))
        for (const auto& [file, content] : tree(folder()))
          spill(folder() + "/" + file, content + "half a row");
      open_store();
      exports = std::make_unique<Exports>(folder(), names(), which);
    }
    EXPECT_EQ(pump_all(*exports), std::vector<std::string>());
    EXPECT_EQ(tree(folder()), expected);
    store_.reset();
  }
}

TEST_F(ExportsTest, AFullDiskIsANoteAndLaterAllIsThere) {
  const auto batches = batches_of(small(), 10);
  const auto expected = uninterrupted(batches, {});
  open_store();
  for (const StudyBatch& batch : batches) write(batch);
  ASSERT_TRUE(store_->sync().ok());
  Exports exports(folder(), names());
  write_rows(exports.pump(store_->rows(), 20));
  ASSERT_TRUE(store_->sync().ok());
  const auto before = tree(folder());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tiny = limit;
  tiny.rlim_cur = before.at("progress.jsonl").size() + 50;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tiny), 0);
  const Exports::Pumped first = exports.pump(store_->rows(), 1000);
  const Exports::Pumped second = exports.pump(store_->rows(), 1000);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, old);
  const auto of_jsonl = [](const Exports::Pumped& pumped) {
    return std::count_if(pumped.notes.begin(), pumped.notes.end(), [](const std::string& note) {
      return note.find("the export jsonl waits") == 0;
    });
  };
  EXPECT_EQ(of_jsonl(first), 1);
  EXPECT_EQ(of_jsonl(second), 0) << "it is said once";
  for (const ExporterRow& row : first.rows) EXPECT_NE(row.exporter, "jsonl");
  write_rows(first);
  write_rows(second);
  EXPECT_EQ(pump_all(exports), std::vector<std::string>());
  EXPECT_EQ(tree(folder()), expected);
}

TEST_F(ExportsTest, ATableThatSomebodyShortenedIsWrittenAnew) {
  const auto batches = batches_of(small(), 10);
  const auto expected = uninterrupted(batches, {});
  open_store();
  for (const StudyBatch& batch : batches) write(batch);
  {
    Exports exports(folder(), names());
    write_rows(exports.pump(store_->rows(), 40));
  }
  spill(folder() + "/progress.csv", "x");
  fs::remove(folder() + "/trials.jsonl");
  Exports exports(folder(), names());
  const Exports::Pumped pumped = exports.pump(store_->rows(), 100);
  ASSERT_EQ(pumped.notes.size(), 2U);
  EXPECT_NE(pumped.notes[0].find("progress.csv"), std::string::npos) << pumped.notes[0];
  EXPECT_NE(pumped.notes[1].find("trials.jsonl"), std::string::npos) << pumped.notes[1];
  write_rows(pumped);
  EXPECT_EQ(pump_all(exports), std::vector<std::string>());
  EXPECT_EQ(tree(folder()), expected);
}

TEST_F(ExportsTest, TenThousandTrialsMakeFewFilesAndTheBestHaveCurves) {
  ExperimentOptions options{.goal = minimize, .trials = 10'000};
  options.concurrent = 2;
  options.max_steps = 1;
  options.metric = "loss";
  const auto batches = batches_of(options, 100);
  open_store();
  for (const StudyBatch& batch : batches) write(batch);
  Exports exports(folder(), names());
  for (bool more = true; more;) {
    const Exports::Pumped pumped = exports.pump(store_->rows(), 5000);
    ASSERT_TRUE(pumped.notes.empty()) << pumped.notes.front();
    write_rows(pumped);
    more = pumped.more;
  }
  const auto files = tree(folder());
  EXPECT_EQ(files.size(), 4U + 200U);
  std::size_t bytes = 0;
  for (const auto& [file, content] : files) bytes += content.size();
  EXPECT_LT(bytes, std::size_t{10} << 20);
  // The 150 best trials have runs.
  std::vector<std::pair<double, int>> order;
  std::istringstream rows(files.at("progress.csv"));
  std::string row;
  std::getline(rows, row);
  while (std::getline(rows, row))
    order.emplace_back(std::stod(row.substr(row.rfind(',') + 1)), std::stoi(row));
  ASSERT_EQ(order.size(), 10'000U);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < 150; ++i)
    EXPECT_TRUE(fs::exists(folder() + "/tensorboard/trial-" + std::to_string(order[i].second)))
        << i;
}

}  // namespace
}  // namespace troupe::tune::exports_test
