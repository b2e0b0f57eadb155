// Tests that the files of modules are read on a thread, and that a disk which hangs delays nobody.
#include "troupe/runtime/os/module_files.hpp"

#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::os {
namespace module_files_test {
namespace {

using namespace std::chrono_literals;

/// A disk that hangs on files whose path begins with "slow", until it is mended.
class HangingDisk {
 public:
  ModuleFile read(const MappedFile& file) {
    std::unique_lock lock(mutex_);
    ++reads_[file.path];
    changed_.wait(lock, [&] { return is_mended_ || !file.path.starts_with("slow"); });
    ModuleFile module;
    if (!file.path.starts_with("none")) module.build_id = "id of " + file.path;
    return module;
  }
  void mend() {
    const std::lock_guard lock(mutex_);
    is_mended_ = true;
    changed_.notify_all();
  }
  int reads(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return reads_[path];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> reads_;
  bool is_mended_ = false;
};

std::function<ModuleFile(const MappedFile&)> reads_of(std::shared_ptr<HangingDisk> disk) {
  return [disk = std::move(disk)](const MappedFile& file) { return disk->read(file); };
}

std::string id_of(ModuleReader& reader, const std::string& path) {
  const MappedFile file{path, 7};
  return reader.look_up({&file, 1}).at(0).build_id;
}

TEST(ModuleFiles, AreReadOnceAndInOrder) {
  const auto disk = std::make_shared<HangingDisk>();
  ModuleReader reader(reads_of(disk), 20s);
  const std::vector<MappedFile> files{{"b", 1}, {"a", 2}, {"b", 1}};
  for (int i = 0; i < 3; ++i) {
    const std::vector<ModuleFile> modules = reader.look_up(files);
    ASSERT_EQ(modules.size(), 3u);
    EXPECT_EQ(modules[0].build_id, "id of b");
    EXPECT_EQ(modules[1].build_id, "id of a");
    EXPECT_EQ(modules[2].build_id, "id of b");
  }
  EXPECT_EQ(disk->reads("a"), 1);
  EXPECT_EQ(disk->reads("b"), 1);
}

TEST(ModuleFiles, WithoutABuildIdAreLookedForAgain) {
  const auto disk = std::make_shared<HangingDisk>();
  ModuleReader reader(reads_of(disk), 20s);
  EXPECT_EQ(id_of(reader, "none"), "");
  EXPECT_EQ(id_of(reader, "none"), "");
  EXPECT_EQ(disk->reads("none"), 2);
}

TEST(ModuleFiles, OfADiskThatHangsAreWaitedForOnceAndKnownLater) {
  const auto disk = std::make_shared<HangingDisk>();
  ModuleReader reader(reads_of(disk), 100ms);
  EXPECT_EQ(id_of(reader, "slow"), "");
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(id_of(reader, "fast"), "") << "it waits behind the slow one";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 50s) << "no call waits its 100 ms";
  disk->mend();
  EXPECT_TRUE(eventually([&] { return id_of(reader, "slow") == "id of slow"; }));
  EXPECT_TRUE(eventually([&] { return id_of(reader, "fast") == "id of fast"; }));
  EXPECT_EQ(disk->reads("slow"), 1);
  EXPECT_EQ(disk->reads("fast"), 1);
}

TEST(ModuleFiles, OfADiskThatHangsForEverDelayNoEnd) {
  const auto disk = std::make_shared<HangingDisk>();
  {
    ModuleReader reader(reads_of(disk), 10ms);
    EXPECT_EQ(id_of(reader, "slow"), "");
  }
  disk->mend();  // the thread that was left ends
}

TEST(ModuleFiles, OfAnotherInodeGiveNothing) {
  struct stat self{};
  ASSERT_EQ(stat("/proc/self/exe", &self), 0);
  const MappedFile own{std::string("/proc/self/exe"), self.st_ino};
  const ModuleFile module = read_module(own);
  EXPECT_FALSE(module.build_id.empty());
  EXPECT_FALSE(module.segments.empty());
  EXPECT_TRUE(read_module({own.path, own.inode + 1}).build_id.empty());
  EXPECT_TRUE(read_module({"relative", own.inode}).segments.empty());
  EXPECT_TRUE(read_module({"/dev/null", own.inode}).segments.empty());
}

}  // namespace
}  // namespace module_files_test
}  // namespace troupe::os
