// Tests the store of a study: what write() has returned for survives a kill, and damage is refused
// with file and offset.
#include "tests/eventually.hpp"
#include "tests/tune/study/studies.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/storage/database.hpp"
#include "troupe/tune/study/internal/store_check.hpp"
#include "troupe/tune/study/internal/store_keys.hpp"

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <memory>

namespace troupe::tune {
namespace {

using namespace studies;

class StudyStoreTest : public studies::Test {
 protected:
  std::unique_ptr<StudyStore> open(StudyStoreOptions with = options()) const {
    auto store = StudyStore::open(study_, std::move(with));
    EXPECT_TRUE(store.ok()) << store.error().what();
    return store.ok() ? std::move(*store) : nullptr;
  }
  std::string refusal() const {
    const auto store = StudyStore::open(study_, options());
    return store.ok() ? std::string() : store.error().message();
  }
  void fill(std::uint64_t events) const {
    const auto store = open();
    for (std::uint64_t n = store->last_event() + 1; n <= events; ++n)
      ASSERT_TRUE(store->write(batch_of(n)).ok());
  }
};

TEST_F(StudyStoreTest, WhatIsWrittenIsThereAfterTheNextOpening) {
  {
    const auto store = open();
    StudyBatch batch{.first_event = 1, .events = {"a", "b"}};
    batch.meta = kMeta;
    batch.trials = {{3, "three"}, {1, "one"}, {2, "two"}};
    batch.reports = {{1, 10, "ten"}, {1, 9, "nine"}, {2, 9, "other"}};
    batch.checkpoints = {{"k1", "first"}, {"k2", "second"}};
    batch.clients = {{"me", "answer"}};
    batch.exporters = {{"csv", "cursor"}};
    ASSERT_TRUE(store->write(batch).ok());
    StudyBatch next{.first_event = 3, .events = {"c"}};
    next.checkpoints = {{"k1", std::nullopt}};
    ASSERT_TRUE(store->write(next).ok());
  }
  const auto store = open();
  const StudyRows& rows = store->rows();
  EXPECT_EQ(store->last_event(), 3u);
  EXPECT_EQ(rows.last_event().value(), 3u);
  EXPECT_EQ(rows.meta().value(), kMeta);
  std::string seen;
  const auto add = [&](std::uint64_t number, std::string_view json) {
    seen += std::to_string(number) + std::string(json) + " ";
    return true;
  };
  rows.events(2, add).value();
  rows.trials(2, add).value();
  rows.trials(0, add, StudyRows::Order::falling).value();
  rows.reports(1, add).value();
  EXPECT_EQ(seen, "2b 3c 2two 3three 3three 2two 1one 9nine 10ten ");
  std::map<std::string, std::string> checkpoints;
  rows.checkpoints([&](std::string_view key, std::string_view json) {
        checkpoints.emplace(key, json);
        return true;
      })
      .value();
  EXPECT_EQ(checkpoints, (std::map<std::string, std::string>{{"k2", "second"}}));
  EXPECT_EQ(rows.trial(2).value(), "two");
  EXPECT_EQ(rows.trial(9).value(), std::nullopt);
  EXPECT_EQ(rows.client("me").value(), "answer");
  EXPECT_EQ(rows.exporter("csv").value(), "cursor");
}

TEST_F(StudyStoreTest, EventsFollowTheLastOneAndARefusedBatchWritesNothing) {
  const auto store = open();
  ASSERT_TRUE(store->write(batch_of(1)).ok());
  for (const std::uint64_t number : {1u, 3u}) {
    const auto done = store->write(batch_of(number));
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code(), Code::invalid_argument);
  }
  EXPECT_TRUE(store->write({}).ok());
  EXPECT_TRUE(store->write(batch_of(2)).ok());
  EXPECT_EQ(fault_in(store->rows(), 2), "");
}

TEST_F(StudyStoreTest, TheFileSyncedSoonNamesTheLastEvent) {
  const auto store = open();
  ASSERT_TRUE(store->write(batch_of(1)).ok());
  EXPECT_TRUE(eventually([&] { return store->synced_event() == 1; }));
  EXPECT_EQ(internal::read_mark(study_ + "/synced"), 1u);
  ASSERT_TRUE(store->write(batch_of(2)).ok());
  ASSERT_TRUE(store->sync().ok());
  EXPECT_EQ(internal::read_mark(study_ + "/synced"), 2u);
}

TEST_F(StudyStoreTest, AKilledOwnerLosesNothingThatWriteReturnedFor) {
  Random random(1);
  std::uint64_t acknowledged = 0;
  for (int life = 0; life < 20; ++life) {
    int channel[2];
    ASSERT_EQ(::pipe(channel), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      StudyStoreOptions with = options();
      if (life % 4 == 3) with.durability = StudyDurability::power;
      const auto store = StudyStore::open(study_, with);
      if (!store.ok()) ::_exit(1);
      for (std::uint64_t n = (*store)->last_event() + 1;; ++n) {
        if (!(*store)->write(batch_of(n)).ok()) ::_exit(2);
        if (::write(channel[1], &n, sizeof n) != sizeof n) ::_exit(3);
      }
    }
    ::close(channel[1]);
    std::uint64_t number = 0;
    for (auto left = 1 + random.below(300); left > 0; --left)
      if (::read(channel[0], &number, sizeof number) == sizeof number) acknowledged = number;
    ::kill(pid, SIGKILL);
    while (::read(channel[0], &number, sizeof number) == sizeof number) acknowledged = number;
    ::close(channel[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << WEXITSTATUS(status);
    const auto reader = StudyReader::open(study_);
    ASSERT_TRUE(reader.ok()) << reader.error().what();
    ASSERT_GE(reader->last_event(), acknowledged);
    ASSERT_LE(reader->last_event(), acknowledged + 1);
    ASSERT_EQ(fault_in(reader->rows(), reader->last_event()), "");
  }
  EXPECT_GT(acknowledged, 100u);
}

/// A folder as it was while its owner wrote: some events synced, others in the log alone.
class DamagedStudies : public StudyStoreTest {
 protected:
  static constexpr std::uint64_t kSynced = 900, kLast = 1000;

  void make() {
    fill(200);  // leaves a table
    StudyStoreOptions with = options();
    with.sync_after = std::chrono::hours(1);
    const auto store = open(with);
    for (std::uint64_t n = store->last_event() + 1; n <= kSynced; ++n)
      ASSERT_TRUE(store->write(batch_of(n)).ok());
    ASSERT_TRUE(store->sync().ok());
    for (std::uint64_t n = kSynced + 1; n <= kLast; ++n)
      ASSERT_TRUE(store->write(batch_of(n)).ok());
    original_ = root_ + "/original";
    fs::create_directory(original_);
    fs::copy(study_ + "/store", original_ + "/store");
    fs::copy(study_ + "/synced", original_ + "/synced");
  }
  std::string copy() const {
    const std::string to = root_ + "/copy";
    fs::remove_all(to);
    fs::copy(original_, to, fs::copy_options::recursive);
    return to;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(original_))
      if (entry.is_regular_file() && entry.file_size() > 0)
        found.push_back(fs::relative(entry.path(), original_));
    std::sort(found.begin(), found.end());
    return found;
  }
  /// Opens a copy. Counts it as refused or opened, and checks that either is right.
  void check(const std::string& folder, const std::string& what) {
    const auto store = StudyStore::open(folder, options());
    if (!store.ok()) {
      ++refused_;
      EXPECT_EQ(store.error().code(), Code::invalid_argument) << what;
      const std::string& text = store.error().message();
      EXPECT_NE(text.find(", offset "), std::string::npos) << what << ": " << text;
      EXPECT_NE(text.find("troupe tune doctor"), std::string::npos) << text;
      return;
    }
    const std::uint64_t last = (*store)->last_event();
    ++(last == kLast ? whole_ : shorter_);
    EXPECT_GE(last, kSynced) << what;
    EXPECT_EQ(fault_in((*store)->rows(), last), "") << what;
    // The store takes up where it ends.
    EXPECT_TRUE((*store)->write(batch_of(last + 1)).ok()) << what;
  }

  std::string original_;
  int refused_ = 0, shorter_ = 0, whole_ = 0;
};

TEST_F(DamagedStudies, ALogCutAnywhereOpensOrEndsBeforeSynced) {
  make();
  fs::path log;
  for (const fs::path& file : files())
    if (file.extension() == ".log") log = file;
  const std::string bytes = slurp(original_ + "/" + log.string());
  ASSERT_GT(bytes.size(), 64u << 10);
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    const std::size_t at = bytes.size() - random.below(64 << 10);
    const std::string folder = copy();
    spill(folder + "/" + log.string(), bytes.substr(0, at));
    check(folder, "cut at " + std::to_string(at));
    if (HasFailure()) return;
  }
  EXPECT_GT(refused_, 50);
  EXPECT_GT(shorter_, 10);
}

TEST_F(DamagedStudies, AFlippedBitIsRefusedOrDropsUnsyncedEventsAlone) {
  make();
  Random random(11);
  const std::vector<fs::path> all = files();
  for (int i = 0; i < 200; ++i) {
    const std::string folder = copy();
    const std::string path = folder + "/" + all[random.below(all.size())].string();
    std::string bytes = slurp(path);
    const std::size_t at = random.below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    spill(path, bytes);
    check(folder, path + " at " + std::to_string(at));
    if (HasFailure()) return;
  }
  std::printf("200 flips: %d refused, %d without their end, %d whole\n", refused_, shorter_,
              whole_);
  EXPECT_GT(refused_, 50);
}

TEST_F(StudyStoreTest, AMissingPartIsNamed) {
  fill(3);
  fs::rename(study_ + "/synced", study_ + "/kept");
  EXPECT_NE(refusal().find(study_ + "/synced, offset 0"), std::string::npos) << refusal();
  fs::rename(study_ + "/kept", study_ + "/synced");
  EXPECT_EQ(refusal(), "");
  fs::remove_all(study_ + "/store");
  EXPECT_NE(refusal().find(study_ + "/store, offset 0"), std::string::npos) << refusal();
}

TEST_F(StudyStoreTest, AGapInTheEventsIsNamed) {
  fill(5);
  {
    std::unique_ptr<storage::Database> db;
    ASSERT_TRUE((*storage::door().value())
                    .open(study_ + "/store", internal::database_options(false), db)
                    .ok());
    const storage::Write drop{internal::event_key(3), std::nullopt};
    ASSERT_TRUE(db->write({&drop, 1}, storage::Durability::synced).ok());
  }
  EXPECT_NE(refusal().find("event 4 follows event 2"), std::string::npos) << refusal();
}

TEST_F(StudyStoreTest, AFirstStartThatWasKilledIsMadeAgain) {
  fs::create_directories(study_ + "/store");
  spill(study_ + "/store/000001.dbtmp", "half");
  ASSERT_TRUE(internal::write_mark(study_ + "/synced", 0).ok());
  fill(2);
  EXPECT_EQ(open()->last_event(), 2u);
}

TEST_F(StudyStoreTest, AnotherSchemaIsRefusedWithBothNumbers) {
  StudyBatch batch;
  batch.meta = R"({"schema":4})";
  ASSERT_TRUE(open()->write(batch).ok());
  EXPECT_NE(refusal().find("is of schema 4, and this version reads schema 3"), std::string::npos)
      << refusal();
  fs::remove_all(study_);
  batch.meta = R"({"version":3})";
  ASSERT_TRUE(open()->write(batch).ok());
  EXPECT_EQ(refusal(), "");
}

TEST_F(StudyStoreTest, ShortSpaceRefusesABatchThatSucceedsLater) {
  Bytes free{1ull << 30};
  StudyStoreOptions with = options();
  with.free_space = [&free] { return free; };
  const auto store = open(with);
  free = Bytes{8192};
  const auto done = store->write(batch_of(1));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), Code::out_of_disk);
  EXPECT_NE(done.error().message().find("only 8192 bytes are free"), std::string::npos)
      << done.error().what();
  free = Bytes{1ull << 30};
  EXPECT_TRUE(store->write(batch_of(1)).ok());
  EXPECT_EQ(fault_in(store->rows(), 1), "");
}

TEST_F(StudyStoreTest, AnEndThatIsSlowGivesTheFolderBackOnceItIsOver) {
  struct Disk {
    std::promise<void> gate;
    std::atomic<bool> hangs = false;
  };
  const auto disk = std::make_shared<Disk>();
  StudyStoreOptions with = options();
  with.free_space = [disk] {
    if (disk->hangs) disk->gate.get_future().wait();
    return Bytes{1ull << 40};
  };
  auto store = open(with);
  ASSERT_TRUE(store->write(batch_of(1)).ok());
  disk->hangs = true;
  store->end_soon();
  store.reset();
  EXPECT_NE(refusal().find("is in use by this process"), std::string::npos) << refusal();
  EXPECT_TRUE(fs::exists(study_ + "/owner"));
  disk->gate.set_value();
  EXPECT_TRUE(eventually([this] { return !fs::exists(study_ + "/owner"); }));
  EXPECT_TRUE(eventually([this] { return refusal().empty(); })) << refusal();
  EXPECT_EQ(fault_in(open()->rows(), 1), "");
  EXPECT_FALSE(fs::exists(study_ + "/owner"));
}

TEST_F(StudyStoreTest, CopiesOfItsRowsKeepTheFolder) {
  auto store = open();
  ASSERT_TRUE(store->write(batch_of(1)).ok());
  StudyRows rows = store->rows();
  store.reset();
  EXPECT_EQ(rows.last_event().value(), 1u);
  EXPECT_NE(refusal().find("is in use by this process"), std::string::npos) << refusal();
  rows = {};
  EXPECT_EQ(refusal(), "");
}

TEST_F(StudyStoreTest, ABatchThatGetsNoThreadIsRefusedAndSucceedsLater) {
  const auto user = static_cast<uid_t>(700'000 + ::getpid());
  ASSERT_TRUE(::geteuid() != 0 || ::chown(root_.c_str(), user, user) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Root has no limit of processes.
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0))
      ::_exit(1);
    const auto store = StudyStore::open(study_, options());
    if (!store.ok()) ::_exit(2);
    rlimit before{};
    ::getrlimit(RLIMIT_NPROC, &before);
    const rlimit none{1, before.rlim_max};
    ::setrlimit(RLIMIT_NPROC, &none);
    const auto never = [] { return false; };
    const auto refused = (*store)->write(batch_of(1), never);
    if (refused.ok() || refused.error().code() != Code::out_of_memory) ::_exit(3);
    ::setrlimit(RLIMIT_NPROC, &before);
    ::_exit((*store)->write(batch_of(1), never).ok() ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(StudyStoreTest, AFullDiskIsOutOfDiskAndNoCrash) {
  constexpr int kSkip = 77;
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", root_.c_str(), "tmpfs", 0, "size=8k") != 0)
      ::_exit(kSkip);
    for (int i = 0; i < 2; ++i) {
      const auto store = StudyStore::open(study_, {});
      if (store.ok() || store.error().code() != Code::out_of_disk) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kSkip) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(StudyStoreTest, BatchesOfOneEventAndOneRow) {
  constexpr std::uint64_t kEvents = 10'000;
  const auto store = open();
  const Time before = steady_now();
  for (std::uint64_t n = 1; n <= kEvents; ++n) ASSERT_TRUE(store->write(batch_of(n)).ok());
  const double seconds = std::chrono::duration<double>(steady_now() - before).count();
  std::printf("%.0f batches a second\n", static_cast<double>(kEvents) / seconds);
  EXPECT_EQ(store->last_event(), kEvents);
}

}  // namespace
}  // namespace troupe::tune
