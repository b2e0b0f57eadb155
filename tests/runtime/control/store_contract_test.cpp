// Runs one suite of contracts on all stores. An acknowledged commit is there after a restart, in
// order and whole; a refused one changed nothing.
#include "tests/runtime/control/contents.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/file_store.hpp"
#include "troupe/runtime/control/memory_store.hpp"
#include "troupe/runtime/control/rocks_store.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <filesystem>

namespace troupe::control {
namespace {

namespace fs = std::filesystem;

/// Makes, closes and reopens one kind of store.
class Harness {
 public:
  virtual ~Harness() = default;
  virtual Result<std::unique_ptr<Store>> open() = 0;
  virtual void set_free_space(Bytes free) = 0;
};

class MemoryHarness : public Harness {
 public:
  Result<std::unique_ptr<Store>> open() override { return open_memory_store(disk_, {}); }
  void set_free_space(Bytes free) override { disk_->set_free_space(free); }

 private:
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>(1);
};

class RocksHarness : public Harness {
 public:
  RocksHarness() {
    std::string path = (fs::temp_directory_path() / "troupe-store-XXXXXX").string();
    root_ = ::mkdtemp(path.data());
  }
  ~RocksHarness() override { fs::remove_all(root_); }
  Result<std::unique_ptr<Store>> open() override {
    RocksStoreOptions options;
    options.reserve = Bytes{1 << 20};
    options.free_space = [this] { return free_; };
    return open_rocks_store(root_ + "/data", options);
  }
  void set_free_space(Bytes free) override { free_ = free; }

 private:
  std::string root_;
  Bytes free_{1ull << 40};
};

/// A store in a file without a name, as a launcher holds it.
class FileHarness : public Harness {
 public:
  Result<std::unique_ptr<Store>> open() override {
    FileStoreOptions options;
    options.free_space = [this] { return free_; };
    return open_file_store("/proc/self/fd/" + std::to_string(file_.get()), options);
  }
  void set_free_space(Bytes free) override { free_ = free; }

 private:
  Fd file_{::memfd_create("troupe-control", MFD_CLOEXEC)};
  Bytes free_{1ull << 40};
};

class StoreContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "memory")
      harness_ = std::make_unique<MemoryHarness>();
    else if (std::string(GetParam()) == "file")
      harness_ = std::make_unique<FileHarness>();
    else
      harness_ = std::make_unique<RocksHarness>();
    reopen();
  }
  void reopen() {
    store_.reset();
    auto opened = harness_->open();
    ASSERT_TRUE(opened.ok()) << opened.error().what();
    store_ = std::move(*opened);
  }
  void put(const std::string& key, const std::string& value) {
    Batch batch;
    batch.put(key, value);
    ASSERT_TRUE(store_->commit({&batch, 1}).ok());
  }
  Map all(std::string_view prefix = "") { return contents(*store_, prefix); }
  std::unique_ptr<Harness> harness_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, AcknowledgedWritesSurviveARestart) {
  put("a/1", "one");
  put("a/2", std::string(100000, 'x'));
  put("b/1", "");
  Batch change;
  change.put("a/1", "uno");
  change.del("a/2");
  ASSERT_TRUE(store_->commit({&change, 1}).ok());
  const Map expected{{"a/1", "uno"}, {"b/1", ""}};
  EXPECT_EQ(all(), expected);
  reopen();
  EXPECT_EQ(all(), expected);
  EXPECT_EQ(all("a/"), (Map{{"a/1", "uno"}}));
  EXPECT_EQ(**store_->get("a/1"), "uno");
  EXPECT_FALSE(store_->get("a/2")->has_value());
}

TEST_P(StoreContract, AGroupIsOneCommitAndItsLastWriteWins) {
  Batch first, second;
  first.put("k", "1");
  first.put("gone", "1");
  second.put("k", "2");
  second.del("gone");
  const auto before = store_->commits();
  const std::vector<Batch> group{first, second};
  ASSERT_TRUE(store_->commit(group).ok());
  EXPECT_EQ(store_->commits(), before + 1);
  EXPECT_EQ(all(), (Map{{"k", "2"}}));
  reopen();
  EXPECT_EQ(all(), (Map{{"k", "2"}}));
}

TEST_P(StoreContract, EveryStartIsANewEpoch) {
  EXPECT_EQ(store_->epoch(), 1u);
  EXPECT_TRUE(store_->recovery().created);
  for (Epoch epoch = 2; epoch < 5; ++epoch) {
    reopen();
    EXPECT_EQ(store_->epoch(), epoch);
    EXPECT_FALSE(store_->recovery().created);
    EXPECT_EQ(store_->recovery().unacknowledged, 0u);
  }
}

TEST_P(StoreContract, ScanIsInByteOrderAndHidesInternalKeys) {
  for (const char* key : {"n/b", "n/a", "n/c", "m", "o"}) put(key, "v");
  std::vector<std::string> keys;
  ASSERT_TRUE(store_->scan("n/", [&](auto k, auto) { keys.emplace_back(k); }).ok());
  EXPECT_EQ(keys, (std::vector<std::string>{"n/a", "n/b", "n/c"}));
  EXPECT_EQ(all().size(), 5u);
}

TEST_P(StoreContract, BadCommitsAreRefusedAndChangeNothing) {
  for (const char* key : {"", "chain/0", "meta/epoch"}) {
    Batch batch;
    batch.put("good", "1");
    batch.put(key, "x");
    const auto refused = store_->commit({&batch, 1});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::invalid_argument);
  }
  Batch large;
  large.put("big", std::string((32u << 20) + 1, 'x'));
  EXPECT_EQ(store_->commit({&large, 1}).error().code(), Code::invalid_argument);
  EXPECT_TRUE(all().empty());
  put("good", "1");  // the store still serves
}

TEST_P(StoreContract, LowSpaceStopsOrdinaryWritesAndRecoversByItself) {
  put("k", "before");
  harness_->set_free_space(Bytes{63ull << 20});
  EXPECT_FALSE(store_->accepts_writes());
  Batch batch;
  batch.put("k", "during");
  EXPECT_EQ(store_->commit({&batch, 1}).error().code(), Code::no_space);
  EXPECT_EQ(all(), (Map{{"k", "before"}}));  // reads still work
  Batch fence;
  fence.put("fence", "1");
  EXPECT_TRUE(store_->commit({&fence, 1}, Need::essential).ok());
  harness_->set_free_space(Bytes{15ull << 20});
  EXPECT_EQ(store_->commit({&fence, 1}, Need::essential).error().code(), Code::no_space);
  store_.reset();
  EXPECT_EQ(harness_->open().error().code(), Code::no_space);
  harness_->set_free_space(Bytes{1ull << 30});
  reopen();
  EXPECT_TRUE(store_->accepts_writes());
  put("k", "after");
  EXPECT_EQ(all(), (Map{{"fence", "1"}, {"k", "after"}}));
}

TEST_P(StoreContract, ChainLinksDoNotAccumulate) {
  for (int i = 0; i < 40; ++i) put("k", std::to_string(i));
  int links = 0;
  ASSERT_TRUE(store_->medium().scan("chain/", [&](auto, auto) { ++links; }).ok());
  EXPECT_LE(links, 8);
}

INSTANTIATE_TEST_SUITE_P(Media, StoreContract, testing::Values("memory", "file", "rocks"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace troupe::control
