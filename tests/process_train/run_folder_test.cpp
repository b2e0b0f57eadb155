// Tests fit() with a folder on real processes: checkpoints, what stays, resuming, damage, full
// disks, and two drivers.
#include "tests/process_train/tiny.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/folder/run_lock.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace run_folder {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace train = troupe::train;

using tiny::model;
using tiny::Rows;

struct Plan {
  long steps = 20;
  long die_at = 0;                   ///< rank 1 of the first gang
  long full_from = 0, full_end = 0;  ///< steps at which rank 0 can write nothing large
  std::uint64_t batch = 8, seed = 3;
  std::string steal;  ///< the lock file that gets another driver's id at step 8
};

/// A part of a checkpoint that sets the largest file that this process may write, when the part is
/// saved. The save before has ended then.
struct Room {
  rlim_t bytes = RLIM_INFINITY;
  friend auto fields(Room& r) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{r.bytes, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return std::tie(r.bytes);
  }
};

/// A loop whose checkpoint has an engine and a number.
void loop(train::Worker& w, const Plan& plan, const Rows& rows) {
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(model(), w.layout(), w.mesh(), device, {});
  long saves = 0;
  Room room;
  if (!w.restore(room, engine, saves)) engine.initialize(1);
  for (train::Batch batch :
       w.shard(rows, {.batch = plan.batch, .steps = plan.steps, .seed = plan.seed})) {
    if (w.step() == plan.die_at && w.rank() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    const train::StepResult result =
        engine.step(train::micro_batches(batch, w.layout().micro), {.rate = 1e-2f});
    if (w.wants_checkpoint()) ++saves;
    w.report({.step = w.step(),
              .loss = result.loss,
              .extra = {{"weights", static_cast<double>(engine.weights_hash() >> 11)},
                        {"saves", static_cast<double>(saves)}}});
    if (w.step() == 8 && w.rank() == 0 && !plan.steal.empty())
      std::ofstream(plan.steal) << R"({"host":"h2","id":"x","process":7})";
    const bool full = w.step() >= plan.full_from && w.step() < plan.full_end;
    room.bytes = full ? 4096 : RLIM_INFINITY;
    if (w.wants_checkpoint()) w.checkpoint(room, engine, saves);
  }
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RunFolder : public testing::Test {
 protected:
  ~RunFolder() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  train::FitOptions options(const train::Layout& layout = {.zero = 1}) const {
    return {.workers = 2,
            .layout = layout,
            .max_restarts = 1,
            .run = {.folder = folder_, .every = 5, .keep = 2}};
  }
  train::Fit fit(const train::FitOptions& options, const Plan& plan = {}, const Rows& rows = {}) {
    return train::fit<loop>(ctx, options, plan, rows);
  }
  /// Returns the hash of a run without a folder and without faults.
  double calm(const train::FitOptions& with, long steps = 20) {
    train::FitOptions plain = with;
    plain.run = {};
    return fit(plain, {.steps = steps}).last().extra.at("weights");
  }
  fs::path step(const std::string& number) const {
    return fs::path(folder_) / ("step-000000" + number);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
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

  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
  std::string folder_ = [] {
    std::string name = testing::TempDir() + "troupe_run_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

TEST_F(RunFolder, KeepsTheNewestAndTheBestAndAllReports) {
  train::FitOptions with = options();
  with.metric = "saves";  // the first checkpoint has the fewest
  const train::Fit run = fit(with);
  EXPECT_EQ(names(), (std::vector<std::string>{"lock", "reports.jsonl", "step-00000005",
                                               "step-00000015", "step-00000020"}));
  EXPECT_EQ(run.latest_checkpoint().step, 20);
  EXPECT_EQ(run.best_checkpoint().step, 5);
  EXPECT_EQ(run.resumed_from(), 0);
  EXPECT_TRUE(run.failures().empty());
  const std::string reports = bytes_of(fs::path(folder_) / "reports.jsonl");
  EXPECT_EQ(std::count(reports.begin(), reports.end(), '\n'), 20);
  troupe::collective::Mesh alone;
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(model(), {}, alone, device, {});
  long saves = 0;
  Room room;
  run.restore(room, engine, saves);
  EXPECT_EQ(engine.steps(), 5);
  EXPECT_EQ(saves, 1);
}

TEST_F(RunFolder, AKilledWorkersGangGoesOnFromTheFolderBitwise) {
  const double hash = calm(options());
  const train::Fit hit = fit(options(), {.die_at = 13});
  EXPECT_EQ(hit.restarts(), 1);
  EXPECT_EQ(hit.last().extra.at("weights"), hash);
  EXPECT_EQ(hit.history().size(), 20u);
  EXPECT_EQ(hit.resumed_from(), 0) << "the run began at step 1";
}

TEST_F(RunFolder, TheNextRunGoesOnInAnotherLayout) {
  const double hash = calm(options());
  const train::Fit first = fit(options(), {.steps = 12});
  EXPECT_EQ(first.latest_checkpoint().step, 10);
  const train::Fit next = fit(options());
  EXPECT_EQ(next.resumed_from(), 10);
  EXPECT_EQ(next.last().extra.at("weights"), hash);
  ASSERT_EQ(next.history().size(), 20u) << "reports of the first run up to step 10, and new ones";
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(next.history()[i].step, static_cast<long>(i) + 1);
  const train::Fit over = fit(options());
  EXPECT_EQ(over.resumed_from(), 20);
  EXPECT_EQ(over.last().extra.at("weights"), hash) << "a run at its end has its last report";
  for (const train::Layout& layout : {train::Layout{.zero = 3}, {.tp = 2}}) {
    const train::Fit other = fit(options(layout), {.steps = 21});
    EXPECT_EQ(other.resumed_from(), 20);
    EXPECT_EQ(other.last().step, 21);
  }
}

TEST_F(RunFolder, ADamagedCheckpointIsNamedAndTheOneBeforeIsTaken) {
  const double hash = calm(options());
  fit(options());
  const fs::path model = step("20") / "model-00001-of-00002.safetensors";
  const std::string good = bytes_of(model);
  const auto goes_on = [&](const std::string& what) {
    const train::Fit next = fit(options());
    EXPECT_EQ(next.resumed_from(), 15) << what;
    ASSERT_FALSE(next.failures().empty()) << what;
    EXPECT_NE(next.failures().front().find(what), std::string::npos) << next.failures().front();
    EXPECT_EQ(next.last().extra.at("weights"), hash) << what;
    EXPECT_EQ(next.restarts(), 0) << what;
    EXPECT_EQ(fit(options()).resumed_from(), 20) << "the new one stands in its place: " << what;
  };
  std::string flipped = good;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
  std::ofstream(model, std::ios::binary) << flipped;
  goes_on("model-00001-of-00002.safetensors has other bytes");
  fs::resize_file(model, good.size() - 4);
  goes_on("model-00001-of-00002.safetensors has");
  fs::remove(model);
  goes_on("model-00001-of-00002.safetensors");
  fs::remove(model);
  ASSERT_EQ(::mkfifo(model.c_str(), 0600), 0);
  goes_on("is no regular file");
  std::ofstream(step("20") / "checkpoint.json") << "{\"step\": 20}";
  goes_on("no document of a troupe checkpoint");
}

TEST_F(RunFolder, OtherDataAreRefused) {
  fit(options(), {.steps = 7});
  for (const Plan& plan : {Plan{.batch = 16}, Plan{.seed = 4}}) {
    const std::string message = message_of<troupe::TaskFailed>([&] { fit(options(), plan); });
    EXPECT_NE(message.find("batches of 8 from 64 samples in the order of seed 3"),
              std::string::npos)
        << message;
  }
  const std::string message =
      message_of<troupe::TaskFailed>([&] { fit(options(), {}, Rows{.count = 65}); });
  EXPECT_NE(message.find("65 samples"), std::string::npos) << message;
}

TEST_F(RunFolder, BadOptionsAreRefusedInASentence) {
  const auto refused = [&](const train::RunOptions& run) {
    train::FitOptions with = options();
    with.run = run;
    return message_of<troupe::InvalidArgument>([&] { fit(with); });
  };
  EXPECT_NE(refused({.folder = "a/b"}).find("begins with /"), std::string::npos);
  EXPECT_NE(refused({.folder = folder_ + "/none"}).find("make it first"), std::string::npos);
  EXPECT_NE(refused({.folder = folder_, .every = -1}).find("run.every is -1"), std::string::npos);
  EXPECT_NE(refused({.folder = folder_, .keep = 0}).find("run.keep is 0"), std::string::npos);
}

TEST_F(RunFolder, ATrialHasNoFolder) {
  struct Trial : train::GangObserver {
    train::SavedModel start() override { return {}; }
    void restored(std::uint64_t) override {}
    bool reported(const train::Metrics&, const train::SavedModel&) override { return true; }
    void restarted(const std::string&, long) override {}
  } trial;
  const std::string message = message_of<troupe::InvalidArgument>(
      [&] { train::fit_observed<loop>(ctx, options(), trial, Plan{}, Rows{}); });
  EXPECT_NE(message.find("a trial has no run.folder"), std::string::npos) << message;
}

TEST_F(RunFolder, ASecondDriverIsRefusedWithTheFirstOnesProcess) {
  const train::RunLock first(folder_);
  const std::string message = message_of<troupe::InvalidArgument>([&] { fit(options()); });
  EXPECT_NE(message.find("in use by process " + std::to_string(::getpid()) + " on host "),
            std::string::npos)
      << message;
}

TEST_F(RunFolder, ADriverThatLostTheFolderEndsBeforeItsNextRename) {
  const std::string message = message_of<troupe::Unavailable>(
      [&] { fit(options(), {.steps = 100'000, .steal = folder_ + "/lock"}); });
  EXPECT_NE(message.find("process 7 on host h2 has taken run.folder"), std::string::npos)
      << message;
  EXPECT_FALSE(fs::exists(step("10"))) << "step 5 may have been complete before the id changed";
}

TEST_F(RunFolder, AFullDiskCostsOneCheckpoint) {
  const double hash = calm(options());
  const train::Fit run = fit(options(), {.full_from = 10, .full_end = 15});
  ASSERT_EQ(run.failures().size(), 1u);
  EXPECT_NE(
      run.failures()[0].find("the checkpoint of step 10 was not saved: worker 0: cannot write"),
      std::string::npos)
      << run.failures()[0];
  EXPECT_EQ(run.last().extra.at("weights"), hash);
  EXPECT_EQ(run.restarts(), 0);
  EXPECT_FALSE(fs::exists(step("10")));
  EXPECT_TRUE(fs::exists(step("15")));
  EXPECT_EQ(fit(options()).resumed_from(), 20);
}

TEST_F(RunFolder, TheThirdFailureInARowEndsTheRun) {
  train::FitOptions with = options();
  with.run.every = 2;
  const std::string message = message_of<troupe::Unavailable>(
      [&] { fit(with, {.steps = 200, .full_from = 4, .full_end = 200}); });
  EXPECT_NE(message.find("3 checkpoints in a row failed"), std::string::npos) << message;
  EXPECT_NE(message.find("step 8"), std::string::npos) << message;
  EXPECT_TRUE(fs::exists(step("02"))) << "what was complete stays";
}

TEST_F(RunFolder, WithoutAFolderEveryMakesObjects) {
  train::FitOptions with = options();
  with.run = {.every = 5};
  const train::Fit run = fit(with);
  EXPECT_EQ(run.latest_checkpoint().step, 20);
  EXPECT_TRUE(run.latest_checkpoint().folder.empty());
  EXPECT_EQ(run.last().extra.at("saves"), 4);
}

/// The program that the next test kills: this test's own, in a process of its own.
TEST(RunFolderDriver, DISABLED_Runs) {
  const char* folder = std::getenv("RUN_FOLDER_TEST");
  ASSERT_NE(folder, nullptr);
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();
  train::fit<loop>(ctx, {.workers = 2, .max_restarts = 1, .run = {.folder = folder, .every = 1}},
                   Plan{.steps = 40}, Rows{});
}

TEST_F(RunFolder, AKilledDriverGoesOnFromACompleteFolder) {
  const double hash = calm(options(), 40);
  const int kills = std::getenv("TROUPE_LONG_TESTS") != nullptr ? 200 : 4;
  ::setenv("RUN_FOLDER_TEST", folder_.c_str(), 1);
  unsigned state = 12345;
  int status = -1, killed = 0;
  for (int run = 0; run < 10 * kills + 10 && status != 0; ++run) {
    const pid_t driver = ::fork();
    ASSERT_GE(driver, 0);
    if (driver == 0) {
      ::execl("/proc/self/exe", "driver", "--gtest_also_run_disabled_tests",
              "--gtest_filter=RunFolderDriver.DISABLED_Runs", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    // The moment: when the newest checkpoint is at least some steps further, or never.
    state = state * 1664525u + 1013904223u;
    const auto newest = [&] {
      long step = 0;
      for (const std::string& name : names())
        step = std::max(step, train::step_of_folder(name).value_or(0));
      return step;
    };
    const long until = newest() + 1 + static_cast<long>(state >> 28) / 3;
    while (::waitpid(driver, &status, WNOHANG) == 0) {
      if (killed < kills && newest() >= until) {
        ++killed;
        ::kill(driver, SIGKILL);
        ::waitpid(driver, &status, 0);
        break;
      }
      ::usleep(500);
    }
  }
  EXPECT_EQ(status, 0);
  EXPECT_GT(killed, 1);
  const train::Fit over = fit(options(), {.steps = 40});
  EXPECT_EQ(over.resumed_from(), 40);
  EXPECT_EQ(over.last().extra.at("weights"), hash);
  EXPECT_EQ(over.history().size(), 40u);
  EXPECT_TRUE(over.failures().empty());
}

}  // namespace run_folder
