// Tests the database behind a data folder: unsynced writes, scans in order, opening to read, and
// the place of damage.
#include "troupe/runtime/storage/database.hpp"
#include "troupe/runtime/storage/damage.hpp"
#include "troupe/runtime/storage/disk_space.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace troupe::storage {
namespace {

namespace fs = std::filesystem;

class DatabaseTest : public testing::Test {
 protected:
  DatabaseTest() {
    std::string path = (fs::temp_directory_path() / "troupe-storage-XXXXXX").string();
    root_ = ::mkdtemp(path.data());
    path_ = root_ + "/db";
  }
  ~DatabaseTest() override { fs::remove_all(root_); }

  std::unique_ptr<Database> open(bool create) const {
    std::unique_ptr<Database> db;
    const Status status = (*door().value()).open(path_, {.create = create}, db);
    EXPECT_TRUE(status.ok()) << status.text;
    return db;
  }
  static void put(Database& db, const std::string& key, const std::string& value) {
    const Write write{key, value};
    ASSERT_TRUE(db.write({&write, 1}, Durability::kernel).ok());
  }
  static std::vector<std::string> keys(Database& db, std::string_view first, std::string_view end,
                                       Direction direction, std::size_t most = 100) {
    std::vector<std::string> found;
    const Status status = db.scan_range(first, end, direction, [&](auto key, auto) {
      found.emplace_back(key);
      return found.size() < most;
    });
    EXPECT_TRUE(status.ok()) << status.text;
    return found;
  }

  std::string root_, path_;
};

using Keys = std::vector<std::string>;

TEST_F(DatabaseTest, ScansAreInOrderBothWaysAndEndWhenTold) {
  const auto db = open(true);
  for (const char* key : {"e/3", "e/1", "d/9", "e/2", "f/1", "e/4"}) put(*db, key, "v");
  EXPECT_EQ(keys(*db, "e/2", "e0", Direction::up), (Keys{"e/2", "e/3", "e/4"}));
  EXPECT_EQ(keys(*db, "e/", "e0", Direction::down), (Keys{"e/4", "e/3", "e/2", "e/1"}));
  EXPECT_EQ(keys(*db, "e/", "e0", Direction::down, 1), Keys{"e/4"});
  EXPECT_EQ(keys(*db, "g", "h", Direction::up), Keys{});
}

TEST_F(DatabaseTest, AnUnsyncedWriteSurvivesTheKillOfItsProcess) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto db = open(true);
    put(*db, "k", "kept");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto db = open(false);
  std::optional<std::string> value;
  ASSERT_TRUE(db->get("k", value).ok());
  EXPECT_EQ(value, "kept");
  EXPECT_TRUE(db->sync().ok());
}

TEST_F(DatabaseTest, OpeningToReadChangesNoFile) {
  {
    const auto db = open(true);
    put(*db, "k", "v");
  }
  const auto files = [&] {
    std::vector<std::pair<std::string, std::uintmax_t>> found;
    for (const auto& entry : fs::directory_iterator(path_))
      found.emplace_back(entry.path().filename().string(), entry.file_size());
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto before = files();
  {
    std::unique_ptr<Database> db;
    const Status status = (*door().value()).open_to_read(path_, {}, db);
    ASSERT_TRUE(status.ok()) << status.text;
    EXPECT_EQ(keys(*db, "a", "z", Direction::up), Keys{"k"});
    const Write write{"k", "w"};
    EXPECT_FALSE(db->write({&write, 1}, Durability::kernel).ok());
  }
  EXPECT_EQ(files(), before);
}

TEST_F(DatabaseTest, AFlushedLogIsShort) {
  const auto db = open(true);
  for (int i = 0; i < 100; ++i) put(*db, std::to_string(i), std::string(1000, 'x'));
  ASSERT_TRUE(db->flush().ok());
  std::uintmax_t log = 0;
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.path().extension() == ".log") log += entry.file_size();
  EXPECT_EQ(log, 0u);
}

TEST_F(DatabaseTest, DamageIsFoundWithFileAndOffset) {
  {
    const auto db = open(true);
    for (int i = 0; i < 20; ++i) put(*db, std::to_string(i), std::string(100, 'x'));
  }
  EXPECT_EQ(find_damage(path_), "");
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.path().extension() != ".log") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(500);
    file.put('\x7f');
    file.close();
    EXPECT_EQ(find_damage(path_).rfind(entry.path().string() + ", offset ", 0), 0u);
    ++damaged;
  }
  EXPECT_EQ(damaged, 1);
}

TEST_F(DatabaseTest, TheReserveIsAllocatedOnceAndGivenUp) {
  DiskSpace disk(root_, Bytes{1 << 20});
  EXPECT_GT(disk.free().count, 0u);
  disk.use_reserve(false);
  disk.use_reserve(false);
  EXPECT_EQ(fs::file_size(root_ + "/reserve"), 1u << 20);
  disk.use_reserve(true);
  EXPECT_FALSE(fs::exists(root_ + "/reserve"));
}

}  // namespace
}  // namespace troupe::storage
