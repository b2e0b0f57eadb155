// Kills processes of a gang over nodes at each moment of its life. The run ends with the weights
// of a calm one, and no process is left. The driver is this program in a process of its own, so
// that it can be stopped and killed as well.
#include "tests/chaos/page.hpp"
#include "tests/chaos/processes.hpp"
#include "tests/eventually.hpp"
#include "tests/paths.hpp"
#include "tests/process_train/tiny.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace gang_kills {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace train = troupe::train;

constexpr int kRanks = 3;
constexpr long kSteps = 20, kMarked = 12;  // of the loop; at the second, it marks its moments
constexpr auto kBound = 30s;

struct Moment {
  const char* name;
  const char* call;  ///< of CHAOS_CALL; empty: the loop marks the moment
  int marks = 0;     ///< how often it does
};
// The second checkpoint is the one that is hit, so the next gang begins at step 5.
constexpr Moment kMoments[] = {
    {"gathers", "stop listen 3"},
    {"opens its first link", "stop connect 1"},
    {"computes", "", kRanks},
    {"waits in a sum", "", kRanks - 1},
    {"writes a checkpoint file", "stop write 4 .step-00000010."},
    {"syncs", "stop fsync 2 .step-00000010."},
    {"is before its rename", "stop rename 1 /step-00000010"},
    {"is after its rename", "stop renamed 1 /step-00000010"},
};
enum { gathers, links, computes, sums, writes, syncs, before, after };
enum class Victim { nothing, rank0, last_rank, last_agent, control, own_agent };

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Counts that a rank has come to the moment, in the page of the test.
class Marks {
 public:
  Marks() : page_(chaos::map_page(std::getenv(chaos::kPageVariable), false)) {}
  void mark() { ++page_->calls; }
  bool go() const { return page_->go != 0; }

 private:
  chaos::Page* page_;
};

void learn(train::Worker& w, int moment) {
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(tiny::model(), w.layout(), w.mesh(), device, {});
  if (!w.restore(engine)) engine.initialize(1);
  const tiny::Rows rows;
  for (train::Batch batch : w.shard(rows, {.batch = 12, .steps = kSteps, .seed = 3})) {
    if (w.step() == kMarked && w.incarnation() == 0 && (moment == computes || moment == sums)) {
      Marks marks;
      const bool waits = moment == computes || w.rank() == 1;
      if (moment == computes || w.rank() != 1) marks.mark();
      float product = 1;
      for (const auto until = troupe::steady_now() + kBound;
           waits && !marks.go() && troupe::steady_now() < until;)
        for (int i = 0; i < 1000; ++i) product *= 1.0001f;
      w.all_reduce_sum(static_cast<double>(product));
    }
    const train::StepResult result = engine.step(train::micro_batches(batch, w.layout().micro));
    w.report({.step = w.step(),
              .loss = result.loss,
              .extra = {{"weights", static_cast<double>(engine.weights_hash() >> 11)}}});
    if (w.wants_checkpoint()) w.checkpoint(engine);
  }
}

/// The program that is hit.
TEST(GangKillsDriver, DISABLED_Runs) {
  const fs::path folder = std::getenv("GANG_KILLS_FOLDER");
  troupe::Session session{{.cpus = 2, .nodes = kRanks}};
  troupe::Context ctx = session.context();
  ASSERT_TRUE(eventually([&] { return ctx.cluster().nodes.size() == kRanks; }));
  const train::Fit fit =
      train::fit<learn>(ctx,
                        {.workers = kRanks,
                         .layout = {.zero = 1},
                         .max_restarts = 3,
                         .placement = troupe::Placement::spread,
                         .run = {.folder = folder / "run", .every = 5, .keep = 2}},
                        std::atoi(std::getenv("GANG_KILLS_MOMENT")));
  std::ofstream(folder / "result") << std::fixed << fit.last().extra.at("weights") << ' '
                                   << fit.last().step << ' ' << fit.history().size();
  std::ofstream(folder / "resumed") << fit.resumed_from();
  std::ofstream(folder / "restarts") << fit.restarts();
}

class GangKills : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(paths::chaos_shim()).empty())
      GTEST_SKIP() << "a sanitizer must be loaded before the library that stops processes";
    chaos::adopt_orphans();
    run(0, Victim::nothing);
    calm_ = text_of(folder_ / "result");
    ASSERT_FALSE(calm_.empty()) << text_of(folder_ / "log");
  }
  ~GangKills() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  /// Returns the process of a rank whose door is open. Ranks are spread, so rank r is on node-r.
  static int rank(const chaos::Page& page, int rank) {
    for (std::uint32_t i = page.listeners; i-- > 0;) {
      const int pid = page.listener[i].pid;
      if (text_of("/proc/" + std::to_string(pid) + "/cmdline")
              .starts_with("troupe: worker node-" + std::to_string(rank) + " "))
        return pid;
    }
    return 0;
  }
  static int process(const std::string& line) {
    for (const chaos::Process& each : chaos::descendants())
      if (text_of("/proc/" + std::to_string(each.pid) + "/cmdline").starts_with(line))
        return each.pid;
    return 0;
  }
  static int victim(const chaos::Page& page, Victim who) {
    switch (who) {
      case Victim::rank0: return rank(page, 0);
      case Victim::last_rank: return rank(page, kRanks - 1);
      case Victim::last_agent: return process("troupe: agent node-" + std::to_string(kRanks - 1));
      case Victim::control: return process("troupe: control");
      case Victim::own_agent: return process("troupe: agent node-0");
      case Victim::nothing: break;
    }
    return 0;
  }

  /// Starts a run, kills the victim at the moment, and waits for the end. Returns the exit code.
  int run(int moment, Victim who) {
    const Moment& at = kMoments[moment];
    fs::remove(folder_ / "page");
    fs::remove(folder_ / "result");
    fs::create_directory(folder_ / "run");
    chaos::Page* page = chaos::map_page((folder_ / "page").c_str(), true);
    chaos::Child driver = chaos::start({"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                        "--gtest_filter=GangKillsDriver.DISABLED_Runs"},
                                       {{"LD_PRELOAD", paths::chaos_shim()},
                                        {chaos::kPageVariable, folder_ / "page"},
                                        {"CHAOS_CALL", who == Victim::nothing ? "" : at.call},
                                        {"GANG_KILLS_FOLDER", folder_},
                                        {"GANG_KILLS_MOMENT", std::to_string(moment)}},
                                       folder_ / "log", false);
    if (who == Victim::nothing) {
      page->go = 1;
    } else {
      EXPECT_TRUE(chaos::within(kBound, [&] {
        return at.marks > 0 ? page->calls >= at.marks
                            : page->stopped != 0 && chaos::look_at(page->stopped).state == 'T';
      })) << "the moment did not come";
      const int pid = victim(*page, who);
      EXPECT_TRUE(chaos::hit(pid)) << "there is no such process";
      EXPECT_TRUE(chaos::within(5s, [pid] { return !chaos::is_alive(pid); }));
      killed_ = chaos::Clock::now();
      page->go = 1;
      if (page->stopped != 0) chaos::hit(page->stopped, SIGCONT);
    }
    const int code = chaos::wait_for(driver.pid, 60s);
    ended_after_ = chaos::Clock::now() - killed_;
    chaos::close_ends(driver);
    EXPECT_TRUE(chaos::within(5s, [] { return chaos::descendants().empty(); }));
    for (const chaos::Process& each : chaos::descendants())
      ADD_FAILURE() << "process " << each.pid << " (" << each.name << ") is left";
    ::munmap(page, sizeof *page);
    return code;
  }

  /// Kills the victim at these moments, or with TROUPE_LONG_TESTS at all of them.
  void table(Victim who, std::vector<int> moments) {
    if (std::getenv("TROUPE_LONG_TESTS") != nullptr)
      moments = {gathers, links, computes, sums, writes, syncs, before, after};
    for (const int moment : moments) {
      SCOPED_TRACE(std::string("the gang ") + kMoments[moment].name);
      fs::remove_all(folder_ / "run");
      fs::remove(folder_ / "log");
      EXPECT_EQ(run(moment, who), 0);
      EXPECT_EQ(text_of(folder_ / "result"), calm_) << text_of(folder_ / "log");
      // A gang that loses a node before its first step is no restart. While the driver is stopped,
      // the ranks may come to their end.
      const bool restarts = who != Victim::control && moment >= computes && moment < before;
      const int made = std::stoi(text_of(folder_ / "restarts"));
      EXPECT_GE(made, restarts ? 1 : 0);
      EXPECT_LE(made, who == Victim::control ? 0 : 1);
    }
  }

  fs::path folder_ = [] {
    std::string name = testing::TempDir() + "troupe_kills_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
  std::string calm_;
  chaos::Clock::time_point killed_;
  chaos::Clock::duration ended_after_{};
};

TEST_F(GangKills, OfRank0) {
  table(Victim::rank0, {gathers, writes});
}
TEST_F(GangKills, OfTheLastRank) {
  table(Victim::last_rank, {links, sums, after});
}
TEST_F(GangKills, OfTheLastAgent) {
  table(Victim::last_agent, {gathers, computes, syncs});
}
TEST_F(GangKills, OfControl) {
  table(Victim::control, {links, before});
}

TEST_F(GangKills, OfTheDriversOwnAgentEndTheProgramAndTheSameCommandGoesOn) {
  for (const int moment : {sums, before}) {
    SCOPED_TRACE(std::string("the gang ") + kMoments[moment].name);
    fs::remove_all(folder_ / "run");
    fs::remove(folder_ / "log");
    EXPECT_EQ(run(moment, Victim::own_agent), 1);
    EXPECT_LT(ended_after_, 2s);
    const std::string log = text_of(folder_ / "log");
    EXPECT_FALSE(fs::exists(folder_ / "result"));
    EXPECT_EQ(run(0, Victim::nothing), 0);
    EXPECT_EQ(text_of(folder_ / "result"), calm_) << log;
    EXPECT_GE(std::stol(text_of(folder_ / "resumed")), 5);
  }
}

}  // namespace gang_kills
