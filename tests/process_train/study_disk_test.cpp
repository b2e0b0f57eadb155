// Tests studies on disks that are full or hang, and Ctrl-C meanwhile. Each study runs in a process
// of its own, which may have a small disk of its own.
#include "tests/chaos/page.hpp"
#include "tests/chaos/processes.hpp"
#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "tests/paths.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

namespace study_disk {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace tune = troupe::tune;

struct Hp {
  double rate = 0.1;
};
/// Reports with a model of some bytes, step after step.
void falls(tune::Trial& t, Hp hp, int bytes) {
  std::vector<char> model(static_cast<std::size_t>(bytes), 'm');
  for (double score = 1; t.report(score, model); score *= 1 - hp.rate) ::usleep(10'000);
}
tune::Options<> options_of(const std::string& folder, long steps) {
  return {.goal = tune::minimize,
          .trials = 2,
          .concurrent = 1,
          .max_steps = steps,
          .save_every = 1,
          .show = false,
          .results = folder};
}
auto run(troupe::Context& ctx, const tune::Options<>& options, int bytes = 1000) {
  return tune::optimize<falls, Hp>(ctx, tune::Space<Hp>{}.with(&Hp::rate, tune::uniform(0.1, 0.2)),
                                   options, bytes);
}
bool complete(const tune::Best<Hp>& best, long steps) {
  for (const tune::TrialInfo& trial : best.board.trials)
    if (trial.state != tune::TrialState::completed || trial.step() != steps || trial.failures > 0)
      return false;
  return best.board.trials.size() == 2;
}
double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// The file that gets the driver's stderr.
std::string log_of(const std::string& root) {
  return root + ".log";
}
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
/// Waits until the study has said after these bytes of the log that its disk is full.
void await_full(const std::string& root, std::size_t after) {
  if (!eventually(
          [&] { return text_of(log_of(root)).find(" are free", after) != std::string::npos; }))
    std::cout << "the study has met no full disk\n";
}

/// A file that takes all room of a disk while it lives.
class Filler {
 public:
  explicit Filler(std::string path) : path_(std::move(path)) {
    std::ofstream file(path_);
    const std::string block(1 << 20, 'f');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;
  ~Filler() { fs::remove(path_); }

 private:
  std::string path_;
};

/// A disk of 8 KiB takes no study. Larger, the same call goes on; full, trials wait in report().
void small_disk(const std::string& root) {
  troupe::Session session{{.cpus = 1}};
  troupe::Context ctx = session.context();
  tune::Options<> with = options_of(root + "/study", 20);
  try {
    run(ctx, with);
    std::cout << "it ran on 8 KiB\n";
  } catch (const troupe::OutOfDisk& error) {
    std::cout << "refused: " << error.message() << '\n';
  }
  if (::mount("none", root.c_str(), "tmpfs", MS_REMOUNT, "size=112m") != 0)
    std::cout << "no room\n";
  std::jthread room;
  with.on_event = [&](const tune::Event& event) {
    if (event.kind != tune::Event::Kind::best || event.step < 3 || room.joinable()) return;
    room = std::jthread([&root, said = text_of(log_of(root)).size(),
                         filler = std::make_unique<Filler>(root + "/filler")]() mutable {
      await_full(root, said);
      filler.reset();
    });
  };
  const auto best = run(ctx, with);
  std::cout << (complete(best, 20) ? "complete" : "not complete") << '\n';
}

/// Ctrl-C while the disk is full. Then there is room, and the same call goes on.
void interrupted_on_a_full_disk(const std::string& root) {
  if (::mount("none", root.c_str(), "tmpfs", MS_REMOUNT, "size=112m") != 0)
    std::cout << "no room\n";
  troupe::Session session{{.cpus = 1}};
  troupe::Context ctx = session.context();
  tune::Options<> with = options_of(root + "/study", 20);
  std::unique_ptr<Filler> filler;
  std::jthread user;
  std::atomic<std::chrono::steady_clock::time_point> struck{};
  with.on_event = [&](const tune::Event& event) {
    if (event.kind != tune::Event::Kind::best || event.step < 3 || filler) return;
    const std::size_t said = text_of(log_of(root)).size();
    filler = std::make_unique<Filler>(root + "/filler");
    user = std::jthread([&struck, &root, said] {
      await_full(root, said);
      struck = std::chrono::steady_clock::now();
      ::kill(::getpid(), SIGINT);
    });
  };
  try {
    run(ctx, with);
    std::cout << "it ended\n";
  } catch (const troupe::Cancelled& error) {
    std::cout << (seconds_since(struck) < 2.0 * kLeeway ? "in time: " : "late: ") << error.message()
              << '\n';
  }
  user = {};  // waits for its end
  filler.reset();
  std::cout << (complete(run(ctx, options_of(root + "/study", 20)), 20) ? "complete" : "no")
            << '\n';
}

/// Runs trials with models of 9 MB until Ctrl-C, which the test sends.
void until_interrupted(const std::string& root) {
  troupe::Session session{{.cpus = 1}};
  troupe::Context ctx = session.context();
  try {
    run(ctx, options_of(root + "/study", 1'000'000), 9'000'000);
    std::cout << "it ended\n";
  } catch (const troupe::Cancelled& error) {
    std::cout << error.message() << std::endl;
  }
}

/// Ctrl-C, which the test sends while a batch is slow. The same call goes on once the disk has taken
/// that batch.
void interrupted_on_a_slow_disk(const std::string& root) {
  troupe::Session session{{.cpus = 1}};
  troupe::Context ctx = session.context();
  try {
    run(ctx, options_of(root + "/study", 20));
    std::cout << "it ended\n";
  } catch (const troupe::Cancelled& error) {
    std::cout << error.message() << '\n';
  }
  const auto goes_on = [&] {
    try {
      std::cout << (complete(run(ctx, options_of(root + "/study", 20)), 20) ? "complete" : "no");
      return true;
    } catch (const troupe::Unavailable& error) {
      std::cerr << error.message() << '\n';
      return false;
    }
  };
  std::cout << (eventually(goes_on) ? "\n" : "it does not go on\n");
}

TEST(StudyDiskDriver, DISABLED_Runs) {
  const char* root = std::getenv("STUDY_DISK_ROOT");
  const char* kind = std::getenv("STUDY_DISK_KIND");
  ASSERT_TRUE(root != nullptr && kind != nullptr);
  std::signal(SIGINT, SIG_DFL);  // a shell may have started the test in the background
  const std::string what = kind;
  if (what == "until interrupted") return until_interrupted(root);
  if (what == "slow") return interrupted_on_a_slow_disk(root);
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", root, "tmpfs", 0, "size=8k") != 0)
    return static_cast<void>(std::cout << "no mount namespaces\n");
  what == "small" ? small_disk(root) : interrupted_on_a_full_disk(root);
}

constexpr const char* kNoShim =
    "a sanitizer must be loaded before the library that makes disks hang";

class StudyDisks : public testing::Test {
 protected:
  ~StudyDisks() override {
    if (driver_.pid > 0) chaos::hit(driver_.pid, SIGKILL);
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void start(const std::string& kind) {
    chaos::adopt_orphans();
    ::setenv("STUDY_DISK_ROOT", root_.c_str(), 1);
    ::setenv("STUDY_DISK_KIND", kind.c_str(), 1);
    driver_ = chaos::start({"/proc/self/exe", "--gtest_also_run_disabled_tests",
                            "--gtest_filter=StudyDiskDriver.DISABLED_Runs"},
                           {}, log_of(root_), false);
  }
  /// Starts a driver whose call of the disk hangs as `how` says, and sends Ctrl-C meanwhile. With a
  /// folder, the call comes later: Ctrl-C is sent once there is a file in that folder.
  std::chrono::steady_clock::time_point strike_in(const std::string& kind, const std::string& how,
                                                  const std::string& folder = {}) {
    fs::create_directory(root_);
    const std::string page_path = root_ + "/page";
    chaos::Page* page = chaos::map_page(page_path.c_str(), true);
    const std::pair<const char*, std::string> variables[] = {{"LD_PRELOAD", paths::chaos_shim()},
                                                             {chaos::kPageVariable, page_path},
                                                             {"CHAOS_CALL", how}};
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    start(kind);
    for (const auto& [name, value] : variables) ::unsetenv(name);
    const int number = how[how.find(' ', how.find(' ') + 1) + 1] - '0';
    const auto is_time = [&] {
      std::error_code none;
      return folder.empty()
                 ? page->calls >= number
                 : fs::directory_iterator(root_ + folder, none) != fs::directory_iterator();
    };
    EXPECT_TRUE(chaos::within(20s, is_time)) << how << errors();
    const auto struck = std::chrono::steady_clock::now();
    chaos::hit(driver_.pid, SIGINT);
    ::munmap(page, sizeof *page);
    return struck;
  }
  /// Waits for the driver's end and returns what it has printed.
  std::string output() {
    const std::string text = chaos::read_all(driver_.out, 60s);
    EXPECT_EQ(chaos::wait_for(driver_.pid, 20s), 0) << text << errors();
    chaos::close_ends(driver_);
    driver_ = {};
    return text;
  }
  std::string errors() const { return text_of(log_of(root_)); }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  chaos::Child driver_;
  std::string root_ = [] {
    std::string name = testing::TempDir() + "troupe_small_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

TEST_F(StudyDisks, OfFewKilobytesRefuseAStudyAndFullOnesHoldItsTrialsUp) {
  start("small");
  const std::string said = output();
  if (has(said, "no mount namespaces")) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_TRUE(has(said, "refused: ") && has(said, "bytes are free")) << said;
  EXPECT_TRUE(has(said, "\ncomplete")) << said << errors();
  EXPECT_TRUE(has(errors(), " are free")) << "it says once how much is free: " << errors();
}

TEST_F(StudyDisks, ThatAreFullDoNotHoldUpCtrlC) {
  start("interrupted");
  const std::string said = output();
  if (has(said, "no mount namespaces")) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_TRUE(has(said, "in time: tune: interrupted; the best so far is trial "))
      << said << errors();
  EXPECT_TRUE(has(said, "\ncomplete")) << said << errors();
}

TEST_F(StudyDisks, ThatHangDoNotHoldUpCtrlC) {
  if (std::string(paths::chaos_shim()).empty()) GTEST_SKIP() << kNoShim;
  // Files of checkpoints, the log of the store, to which each batch goes, and exports.
  for (const std::string call :
       {"write 2 .safetensors", "fsync 1 .safetensors", "rename 1 .safetensors", "write 9 /store/0",
        "fsync 9 /store/0", "write 3 /exports/"}) {
    const auto struck = strike_in("until interrupted", "hang=60000 " + call);
    const std::string said = output();
    EXPECT_LT(seconds_since(struck), 2.0 * kLeeway) << call;
    EXPECT_TRUE(has(said, "the same call goes on with the study ")) << call << said << errors();
    fs::remove_all(root_);
  }
}

TEST_F(StudyDisks, ThatHangUnderThePagesDoNotHoldUpCtrlC) {
  if (std::string(paths::chaos_shim()).empty()) GTEST_SKIP() << kNoShim;
  for (const std::string call : {"write 1 curves.svg", "rename 1 report.html"}) {
    const auto struck = strike_in("until interrupted", "hang=60000 " + call, "/study/checkpoints");
    const std::string said = output();
    EXPECT_LT(seconds_since(struck), 2.0 * kLeeway) << call;
    EXPECT_TRUE(has(said, "the same call goes on with the study ")) << call << said << errors();
    EXPECT_TRUE(has(errors(), "study were not written: the disk does not answer"))
        << call << errors();
    EXPECT_FALSE(fs::exists(root_ + "/study/report.html")) << call;
    fs::remove_all(root_);
  }
}

TEST_F(StudyDisks, ThatAreSlowGiveTheStudyBackToItsProcess) {
  if (std::string(paths::chaos_shim()).empty()) GTEST_SKIP() << kNoShim;
  strike_in("slow", "hang=2000 write 9 /store/0");
  const std::string said = output();
  EXPECT_TRUE(has(said, "the same call goes on with the study ")) << said << errors();
  EXPECT_TRUE(has(said, "\ncomplete")) << said << errors();
  EXPECT_FALSE(fs::exists(root_ + "/study/owner"));
}

}  // namespace
}  // namespace study_disk
