// Tests the store in a folder. A damaged log is reported with its offset, a second control is
// refused with the first one's pid, and a killed control loses nothing that it acknowledged.
// damaged_folders_test.cpp tests all other damage.
#include "troupe/runtime/control/rocks_store.hpp"
#include "tests/runtime/control/folders.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>

namespace troupe::control {
namespace {

using namespace folders;

class RocksStoreTest : public folders::Test {
 protected:
  /// Writes in three lives, so that logs, tables and manifests all have contents.
  Map fill() {
    Map model;
    for (int life = 0; life < 3; ++life) {
      auto store = open_rocks_store(data_, options()).value();
      for (int i = 0; i < 25; ++i) {
        Batch batch;
        const std::string key = "k/" + std::to_string(life * 20 + i);
        model[key] = std::string(40, static_cast<char>('a' + i)) + std::to_string(life);
        batch.put(key, model[key]);
        EXPECT_TRUE(store->commit({&batch, 1}).ok());
      }
    }
    return model;
  }
};

TEST_F(RocksStoreTest, ADamagedLogIsNamedWithItsOffset) {
  fill();
  const fs::path log = log_of(data_, 1000);
  ASSERT_FALSE(log.empty());
  flip(log);
  auto store = open_rocks_store(data_, options());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), Code::invalid_argument);
  const std::string& text = store.error().message();
  EXPECT_NE(text.find(log.filename().string() + ", offset "), std::string::npos) << text;
  EXPECT_NE(text.find("troupe doctor --salvage"), std::string::npos) << text;
}

TEST_F(RocksStoreTest, ASecondControlIsRefusedAtOnceAndNamesTheFirst) {
  auto first = open_rocks_store(data_, options());
  ASSERT_TRUE(first.ok());
  const Time before = steady_now();
  auto second = open_rocks_store(data_, options());
  EXPECT_LT(steady_now() - before, std::chrono::seconds(1));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::unavailable);
  EXPECT_NE(second.error().message().find("pid " + std::to_string(::getpid())), std::string::npos);
  first = Error(Code::cancelled, "closed");
  EXPECT_TRUE(open_rocks_store(data_, options()).ok());
}

TEST_F(RocksStoreTest, OfTwentyRacersOneServes) {
  for (int round = 0; round < 5; ++round) {
    int ready[2], go[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(go), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        auto store = open_rocks_store(data_, options());
        const char answer = store.ok() ? 'y' : 'n';
        char byte = 0;
        (void)!::write(ready[1], &answer, 1);
        (void)!::read(go[0], &byte, 1);  // keeps the lock until all have tried
        ::_exit(0);
      }
      children.push_back(pid);
    }
    int served = 0;
    for (int i = 0; i < 4; ++i) {
      char answer = 0;
      ASSERT_EQ(::read(ready[0], &answer, 1), 1);
      served += answer == 'y' ? 1 : 0;
    }
    EXPECT_EQ(served, 1);
    ASSERT_EQ(::write(go[1], "gggg", 4), 4);
    for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
    for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
  }
}

TEST_F(RocksStoreTest, KillLosesNothingAcknowledged) {
  int kills = 0, acknowledged = 0;
  Map model;
  for (int round = 0; round < 12; ++round) {
    int acks[2];
    ASSERT_EQ(::pipe(acks), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      auto store = open_rocks_store(data_, options());
      for (int i = 0; store.ok() && i < 10000; ++i) {
        Batch batch;
        batch.put("r" + std::to_string(round) + "/" + std::to_string(i), std::to_string(i));
        if (!(*store)->commit({&batch, 1}).ok()) break;
        if (::write(acks[1], &i, sizeof i) != sizeof i) break;
      }
      ::_exit(1);
    }
    ::close(acks[1]);
    int last = -1, number = 0;
    while (last < 20 + round * 3 && ::read(acks[0], &number, sizeof number) == sizeof number)
      last = number;
    ::kill(pid, SIGKILL);
    ++kills;
    while (::read(acks[0], &number, sizeof number) == sizeof number) last = number;
    ::waitpid(pid, nullptr, 0);
    ::close(acks[0]);
    auto store = open_rocks_store(data_, options());
    ASSERT_TRUE(store.ok()) << store.error().what();
    const Map found = contents(**store);
    for (int i = 0; i <= last; ++i)
      ASSERT_TRUE(found.count("r" + std::to_string(round) + "/" + std::to_string(i)) == 1) << i;
    acknowledged += last + 1;
  }
  EXPECT_EQ(kills, 12);
  EXPECT_GT(acknowledged, 12 * 20);
}

TEST_F(RocksStoreTest, ForeignFoldersAreRefusedUntouched) {
  fs::create_directory(data_);
  fs::permissions(data_, fs::perms::owner_all);
  spill(data_ + "/letter.txt", "dear");
  auto store = open_rocks_store(data_, options());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), Code::invalid_argument);
  EXPECT_EQ(slurp(data_ + "/letter.txt"), "dear");
  EXPECT_EQ(std::distance(fs::directory_iterator(data_), fs::directory_iterator()), 1);
  fs::remove(data_ + "/letter.txt");
  fs::permissions(data_, fs::perms::owner_all | fs::perms::group_write);
  EXPECT_FALSE(open_rocks_store(data_, options()).ok());
}

TEST_F(RocksStoreTest, AFirstStartThatWasKilledIsRepeated) {
  fs::create_directory(data_);
  fs::permissions(data_, fs::perms::owner_all);
  for (const char* name : {"/lock", "/creating", "/mark"}) spill(data_ + name, "half");
  fs::create_directory(data_ + "/db");
  spill(data_ + "/db/CURRENT", "half");
  auto store = open_rocks_store(data_, options());
  ASSERT_TRUE(store.ok()) << store.error().what();
  EXPECT_TRUE((*store)->recovery().created);
}

}  // namespace
}  // namespace troupe::control
