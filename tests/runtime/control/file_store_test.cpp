// Tests the store in a file without a name. Compactions lose nothing, a killed process loses
// nothing that it acknowledged, and only one process at a time holds the file.
#include "troupe/runtime/control/file_store.hpp"

#include "tests/runtime/control/contents.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::control {
namespace {

struct FileStore : testing::Test {
  Fd file{::memfd_create("troupe-control", MFD_CLOEXEC)};
  std::string path = "/proc/self/fd/" + std::to_string(file.get());

  std::unique_ptr<Store> open() { return open_file_store(path, {}).value(); }
  static void put(Store& store, const std::string& key, std::string value) {
    Batch batch;
    batch.put(key, std::move(value));
    ASSERT_TRUE(store.commit({&batch, 1}).ok());
  }
};

TEST_F(FileStore, CompactionsLoseNothingAndGiveSpaceBack) {
  Map model;
  auto store = open();
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 150; ++i) {
      const std::string key = "k" + std::to_string(i % 7);
      model[key] = std::string(16 * 1024, static_cast<char>('a' + (round + i) % 26));
      put(*store, key, model[key]);
    }
    store.reset();
    store = open();
    EXPECT_EQ(contents(*store), model) << round;
    EXPECT_EQ(store->epoch(), static_cast<Epoch>(round + 2));
  }
  struct stat info{};
  ASSERT_EQ(fstat(file.get(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 4 << 20);  // 14 MiB were written
}

TEST_F(FileStore, AKilledProcessLosesNothingThatItAcknowledged) {
  std::uint64_t acknowledged = 0;
  for (int kill = 0; kill < 8; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = open_file_store(path, {});
      for (std::uint64_t n = acknowledged + 1; store.ok(); ++n) {
        Batch batch;
        batch.put("last", std::to_string(n));
        batch.put("fill" + std::to_string(n % 50), std::string(2000 + n % 3000, 'x'));
        if (!(*store)->commit({&batch, 1}).ok()) break;
        if (::write(ends[1], &n, sizeof n) != sizeof n) break;
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    std::uint64_t n = 0;
    for (int seen = 0; seen < 100 + 37 * kill && ::read(ends[0], &n, sizeof n) == sizeof n; ++seen)
      acknowledged = n;
    ::kill(child, SIGKILL);
    while (::read(ends[0], &n, sizeof n) == sizeof n) acknowledged = n;
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    const auto store = open();
    const auto last = store->get("last").value();
    ASSERT_TRUE(last.has_value());
    EXPECT_GE(std::stoull(*last), acknowledged);
    EXPECT_LE(std::stoull(*last), acknowledged + 1);
    acknowledged = std::stoull(*last);
  }
  EXPECT_GT(acknowledged, 1000u);
}

TEST_F(FileStore, OneAtATimeAndNothingElse) {
  auto store = open();
  const auto second = open_file_store(path, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::unavailable);
  store.reset();
  ASSERT_EQ(::pwrite(file.get(), "something else", 14, 0), 14);
  const auto foreign = open_file_store(path, {});
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code(), Code::invalid_argument);
  EXPECT_EQ(open_file_store("/proc/self/fd", {}).error().code(), Code::unavailable);
}

TEST_F(FileStore, DamageIsRefused) {
  auto store = open();
  for (int i = 0; i < 20; ++i) put(*store, "k" + std::to_string(i), std::string(100, 'v'));
  store.reset();
  char byte = 0;
  const off_t at = 16 * 1024 + 1500;  // in the middle of the journal
  ASSERT_EQ(::pread(file.get(), &byte, 1, at), 1);
  byte = static_cast<char>(byte ^ 4);
  ASSERT_EQ(::pwrite(file.get(), &byte, 1, at), 1);
  const auto damaged = open_file_store(path, {});
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace troupe::control
