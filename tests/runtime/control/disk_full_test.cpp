// Tests a disk that is really full: a small tmpfs in a mount namespace of its own, filled and
// freed fifty times while control writes. Writes answer no_space and work again by themselves.
// Restarts on the full disk refuse or work, but never abort. No acknowledged record is lost. The
// test is skipped where the system does not allow mount namespaces.
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/control/rocks_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <map>

namespace troupe::control {
namespace {

namespace fs = std::filesystem;
constexpr int kSkip = 77, kCycles = 50;

struct Cycles {
  std::string root;
  std::map<std::string, std::string> acknowledged;
  std::unique_ptr<Store> store;
  Random random{1};
  int refused = 0, accepted = 0, refused_starts = 0;

  RocksStoreOptions options() const {
    RocksStoreOptions options;
    options.store.low_water = Bytes{12ull << 20};
    options.store.floor = Bytes{6ull << 20};
    options.reserve = Bytes{8ull << 20};
    return options;
  }
  void fill() const {
    const int fd = ::open((root + "/filler").c_str(), O_WRONLY | O_CREAT, 0600);
    for (int tries = 0; tries < 100; ++tries) {  // the store may take some meanwhile
      struct statvfs vfs{};
      ::statvfs(root.c_str(), &vfs);
      if (::posix_fallocate(fd, 0, static_cast<off_t>(vfs.f_bavail * vfs.f_frsize)) == 0) break;
    }
    ::close(fd);
  }
  bool write(int cycle, int i) {
    Batch batch;
    const std::string key = "k" + std::to_string(random.below(200));
    const std::string value(random.below(4000), static_cast<char>('a' + (cycle + i) % 26));
    batch.put(key, value);
    const auto done = store->commit({&batch, 1});
    if (done.ok()) {
      acknowledged[key] = value;
      ++accepted;
      return true;
    }
    if (done.error().code() != Code::no_space) ::_exit(10);
    ++refused;
    return false;
  }
  void reopen_while_full() {
    store.reset();
    auto opened = open_rocks_store(root + "/data", options());
    if (opened.ok()) {
      store = std::move(*opened);
    } else {
      if (opened.error().code() != Code::no_space) ::_exit(11);
      ++refused_starts;
    }
  }
  void reopen_and_check() {
    store.reset();
    auto opened = open_rocks_store(root + "/data", options());
    if (!opened.ok()) ::_exit(12);
    store = std::move(*opened);
    std::map<std::string, std::string> found;
    if (!store->scan("", [&](auto k, auto v) { found.emplace(k, v); }).ok()) ::_exit(13);
    if (found != acknowledged) ::_exit(14);
  }
  int run() {
    reopen_and_check();
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      for (int i = 0; i < 5; ++i)
        if (!write(cycle, i)) return 15;  // with space, every write is accepted at once
      fill();
      for (int i = 0; i < 5; ++i)
        if (write(cycle, i)) return 16;
      if (cycle % 5 == 0) reopen_while_full();
      fs::remove(root + "/filler");
      if (!store || cycle % 7 == 0) reopen_and_check();
    }
    reopen_and_check();
    store.reset();
    std::printf("%d cycles: %d writes acknowledged, %d refused, %d starts refused, 0 lost\n",
                kCycles, accepted, refused, refused_starts);
    return 0;
  }
};

TEST(DiskFull, FiftyCyclesLoseNothingAndNeverAbort) {
  std::string root = (fs::temp_directory_path() / "troupe-full-XXXXXX").string();
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", root.c_str(), "tmpfs", 0, "size=64m") != 0)
      ::_exit(kSkip);
    Cycles cycles;
    cycles.root = root;
    const int code = cycles.run();
    std::fflush(stdout);
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  fs::remove_all(root);
  ASSERT_TRUE(WIFEXITED(status)) << "control was killed by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kSkip) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace troupe::control
