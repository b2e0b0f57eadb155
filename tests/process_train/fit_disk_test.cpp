// Tests checkpoints of a gang over nodes on disks that are full, that hang, and that a node does
// not see.
#include "tests/chaos/page.hpp"
#include "tests/eventually.hpp"
#include "tests/paths.hpp"
#include "tests/process_train/tiny.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace fit_disk {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace train = troupe::train;

/// `throws_at`: a step at which rank 1 throws; 0: none.
void learn(train::Worker& w, long steps, int pause_ms, long throws_at) {
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(tiny::model(), w.layout(), w.mesh(), device, {});
  if (!w.restore(engine)) engine.initialize(1);
  const tiny::Rows rows;
  for (train::Batch batch : w.shard(rows, {.batch = 8, .steps = steps, .seed = 3})) {
    const train::StepResult result = engine.step(train::micro_batches(batch, w.layout().micro));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    if (w.step() == throws_at && w.rank() == 1) throw std::runtime_error("a bug of the loop");
    w.report({.step = w.step(),
              .loss = result.loss,
              .extra = {{"weights", static_cast<double>(engine.weights_hash() >> 11)}}});
    if (w.wants_checkpoint()) w.checkpoint(engine);
  }
}

class FitDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(paths::chaos_shim()).empty())
      GTEST_SKIP() << "a sanitizer must be loaded before the library that makes disks fail";
    fs::create_directory(folder_ / "run");
  }
  ~FitDisk() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  train::FitOptions options() const {
    return {.workers = 2,
            .layout = {.zero = 1},
            .placement = troupe::Placement::spread,
            .run = {.folder = folder_ / "run", .every = 5, .keep = 20}};
  }
  /// Runs the loop on two nodes whose processes have the fault (chaos/shim.cpp).
  train::Fit fit(const char* variable, const std::string& fault, const train::FitOptions& options,
                 long steps, int pause_ms = 0, long throws_at = 0) {
    fs::remove(folder_ / "page");
    chaos::Page* page = chaos::map_page((folder_ / "page").c_str(), true);
    ::munmap(page, sizeof *page);
    ::setenv("LD_PRELOAD", paths::chaos_shim(), 1);
    ::setenv(chaos::kPageVariable, (folder_ / "page").c_str(), 1);
    ::setenv(variable, fault.c_str(), 1);
    troupe::Session session{{.cpus = 2, .nodes = 2}};
    for (const char* name : {"LD_PRELOAD", chaos::kPageVariable, variable}) ::unsetenv(name);
    troupe::Context ctx = session.context();
    EXPECT_TRUE(eventually([&] { return ctx.cluster().nodes.size() == 2; }));
    return train::fit<learn>(ctx, options, steps, pause_ms, throws_at);
  }
  double calm(long steps) {
    train::FitOptions plain = options();
    plain.run = {};
    return fit("CHAOS_CALL", "", plain, steps).last().extra.at("weights");
  }
  bool has_step(const std::string& number) const {
    return fs::exists(folder_ / "run" / ("step-000000" + number));
  }
  /// Returns the first failure that has this text, or all of them.
  static std::string failure(const train::Fit& run, const std::string& text) {
    std::string all;
    for (const std::string& each : run.failures()) {
      if (each.find(text) != std::string::npos) return each;
      all += each + "\n";
    }
    return all;
  }

  fs::path folder_ = [] {
    std::string name = testing::TempDir() + "troupe_disk_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

TEST_F(FitDisk, FullInTheMiddleOfASaveCostsThatSave) {
  const train::Fit run = fit("CHAOS_CALL", "full write 3 .step-00000010.", options(), 20);
  EXPECT_EQ(run.last().extra.at("weights"), calm(20));
  EXPECT_EQ(run.restarts(), 0);
  ASSERT_EQ(run.failures().size(), 1u);
  EXPECT_NE(run.failures()[0].find("the checkpoint of step 10 was not saved: worker "),
            std::string::npos)
      << run.failures()[0];
  EXPECT_NE(run.failures()[0].find("No space left on device"), std::string::npos)
      << run.failures()[0];
  EXPECT_FALSE(has_step("10"));
  EXPECT_TRUE(has_step("05") && has_step("15") && has_step("20"));
}

TEST_F(FitDisk, AWriteThatHangsForLongerThanTheTimeoutCostsLaterSaves) {
  train::FitOptions with = options();
  with.timeout = 1s;
  const train::Fit run = fit("CHAOS_CALL", "hang=2500 write 3 .step-00000010.", with, 60, 20);
  EXPECT_EQ(run.last().extra.at("weights"), calm(60));
  EXPECT_EQ(run.restarts(), 0);
  const std::string said = failure(run, "step 15");
  EXPECT_NE(said.find("the checkpoint of step 15 was not saved: it was left out, because the save "
                      "of step 10 was still being written"),
            std::string::npos)
      << said;
  EXPECT_FALSE(has_step("15"));
  EXPECT_TRUE(has_step("10") && has_step("60"));
}

TEST_F(FitDisk, ASaveThatTakesTenTimeoutsHasFailedWhileTheLoopGoesOn) {
  train::FitOptions with = options();
  with.timeout = 700ms;
  with.run.every = 20;
  const train::Fit run = fit("CHAOS_CALL", "hang=8000 write 3 .step-00000020.", with, 400, 10);
  EXPECT_EQ(run.last().extra.at("weights"), calm(400));
  EXPECT_EQ(run.restarts(), 0);
  const std::string said = failure(run, "timeouts of the gang");
  EXPECT_NE(said.find("the checkpoint of step 20 was not saved: worker "), std::string::npos)
      << said;
  EXPECT_FALSE(has_step("20"));
  EXPECT_FALSE(has_step("40"));
  EXPECT_TRUE(fs::exists(folder_ / "run/step-00000400"));
  for (const auto& entry : fs::directory_iterator(folder_ / "run"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST_F(FitDisk, ThatHangsDoesNotHoldUpTheErrorOfALoop) {
  const troupe::Time begun = troupe::steady_now();
  try {
    fit("CHAOS_CALL", "hang=30000 write 3 .step-00000010.", options(), 60, 20, 13);
    ADD_FAILURE() << "it went through";
  } catch (const troupe::TaskFailed& error) {
    EXPECT_NE(error.message().find("a bug of the loop"), std::string::npos) << error.message();
  }
  EXPECT_LT(troupe::steady_now() - begun, 15s);
}

TEST_F(FitDisk, ThatANodeDoesNotSeeIsNamedBeforeTheFirstStep) {
  const std::string folder = folder_ / "run";
  try {
    fit("CHAOS_HIDE", "node-1 " + folder, options(), 20);
    ADD_FAILURE() << "it went through";
  } catch (const troupe::InvalidArgument& error) {
    EXPECT_EQ(error.message(),
              "train: node node-1 does not see run.folder " + folder + ": the driver's file " +
                  folder + "/lock is not there: give a folder that all nodes share at this path");
  }
  EXPECT_EQ(fs::file_size(fs::path(folder) / "reports.jsonl"), 0u);
}

}  // namespace fit_disk
