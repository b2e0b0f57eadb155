// Tests what salvage_store() saves of a damaged data folder. The folder stays as it is. All that
// can be read is in a store that opens, and the new epochs are above all old ones.
#include "troupe/runtime/control/salvage.hpp"
#include "tests/runtime/control/folders.hpp"
#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/rocks_store.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <iterator>

namespace troupe::control {
namespace {

using namespace folders;

class SalvageTest : public folders::Test {
 protected:
  /// Makes thirty commits by three controls; returns the last epoch.
  Epoch fill() {
    Epoch epoch = 0;
    for (int life = 0; life < 3; ++life) {
      auto store = open_rocks_store(data_, options()).value();
      epoch = store->epoch();
      for (int i = 0; i < 10; ++i) {
        Batch batch;
        const std::string number = std::to_string(10 * life + i);
        batch.put("kv/" + number, "value " + number);
        batch.put("node/" + number, "a node");
        batch.put("epoch/node", RecordWriter(1).u64(100 + 10u * life + i).take());
        EXPECT_TRUE(store->commit({&batch, 1}).ok());
      }
    }
    return epoch;
  }
  Map everything() const {
    Map files;
    for (const auto& entry : fs::recursive_directory_iterator(data_))
      if (entry.is_regular_file()) files[entry.path().string()] = slurp(entry.path());
    return files;
  }
  /// Flips a bit in the middle of the log that holds the last commits.
  void damage() {
    const fs::path log = log_of(data_, 500);
    ASSERT_FALSE(log.empty());
    flip(log);
    ASSERT_FALSE(open_rocks_store(data_, options()).ok());
  }
};

TEST_F(SalvageTest, WhatCanBeReadOfADamagedFolderIsInANewOne) {
  const Epoch last = fill();
  damage();
  const Map before = everything();
  const std::string to = root_ + "/saved";
  const auto seen = salvage_store(data_ + "/db", to);  // the path in the error of a start
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_TRUE(seen->damaged);
  EXPECT_NE(seen->why.find(data_ + "/db"), std::string::npos) << seen->why;
  EXPECT_NE(seen->why.find("offset"), std::string::npos) << seen->why;
  EXPECT_EQ(everything(), before) << "the damaged folder is evidence";
  EXPECT_GE(seen->records.at("values"), 20u) << "two of three logs are whole";
  EXPECT_EQ(seen->records.count("nodes"), 0u);
  auto store = open_rocks_store(to, options());
  ASSERT_TRUE(store.ok()) << store.error().what();
  EXPECT_GT((*store)->epoch(), last + 1000);
  std::uint64_t values = 0;
  EXPECT_TRUE((*store)
                  ->scan("",
                         [&](auto key, auto value) {
                           EXPECT_NE(key.substr(0, 5), "node/");
                           if (key.substr(0, 3) != "kv/") return;
                           EXPECT_EQ(value, "value " + std::string(key.substr(3)));
                           ++values;
                         })
                  .ok());
  EXPECT_EQ(values, seen->records.at("values"));
  const auto epochs = (*store)->get("epoch/node").value();
  ASSERT_TRUE(epochs);
  RecordReader in{std::string_view(*epochs)};
  EXPECT_GT(in.u64(), 130u) << "an epoch is given once";
  for (const auto& entry : fs::directory_iterator(root_))
    EXPECT_TRUE(entry.path() == data_ || entry.path() == to) << entry.path() << " is left over";
}

TEST_F(SalvageTest, LookingWritesNothing) {
  fill();
  damage();
  const auto seen = salvage_store(data_, "");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_TRUE(seen->damaged);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
}

TEST_F(SalvageTest, WithoutItsMarkEverythingIsStillThere) {
  fill();
  fs::remove(data_ + "/mark");
  const auto seen = salvage_store(data_, root_ + "/saved");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_TRUE(seen->damaged);
  EXPECT_EQ(seen->records.at("values"), 30u);
  EXPECT_EQ(seen->marked_commit, 0u);
  EXPECT_TRUE(open_rocks_store(root_ + "/saved", options()).ok());
}

TEST_F(SalvageTest, WithoutAManifestTheTablesAreReadAllTheSame) {
  fill();
  for (const auto& entry : fs::directory_iterator(data_ + "/db"))
    if (entry.path().filename().string().rfind("MANIFEST-", 0) == 0) fs::remove(entry.path());
  const auto seen = salvage_store(data_, root_ + "/saved");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_EQ(seen->records.at("values"), 30u);
  EXPECT_FALSE(seen->notes.empty());
}

TEST_F(SalvageTest, WithoutATableTheOthersAreReadAllTheSame) {
  fill();
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(data_ + "/db"))
    if (entry.path().extension() == ".sst") tables.push_back(entry.path());
  ASSERT_GE(tables.size(), 2u) << "one of each control before the last";
  std::sort(tables.begin(), tables.end());
  fs::remove(tables.back());
  const auto seen = salvage_store(data_, root_ + "/saved");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_TRUE(seen->damaged);
  ASSERT_EQ(seen->records.count("values"), 1u);
  EXPECT_EQ(seen->records.at("values"), 20u) << "all but those of that table";
  EXPECT_FALSE(seen->notes.empty());
}

TEST_F(SalvageTest, AFileThatCannotBeReadIsLeftOutAndSaid) {
  fill();
  fs::create_symlink("nowhere", data_ + "/db/999999.sst");
  const auto seen = salvage_store(data_, root_ + "/saved");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_TRUE(seen->damaged);
  EXPECT_NE(seen->why.find("999999.sst"), std::string::npos) << seen->why;
  EXPECT_EQ(seen->records.at("values"), 30u);
  EXPECT_TRUE(open_rocks_store(root_ + "/saved", options()).ok());
}

TEST_F(SalvageTest, EpochsOfNodesAreAboveThoseInTheirRecords) {
  {
    auto store = open_rocks_store(data_, options()).value();
    Batch batch;  // the count of the epochs that were given is lost
    batch.put("node/1", RecordWriter(1).id(NodeId{0, 1}).id(SessionId{1, 1}).u64(5000).take());
    batch.put("buried/2", RecordWriter(1).id(NodeId{0, 2}).id(SessionId{2, 1}).u64(8000).take());
    EXPECT_TRUE(store->commit({&batch, 1}).ok());
  }
  ASSERT_TRUE(salvage_store(data_, root_ + "/saved").ok());
  const auto saved = open_rocks_store(root_ + "/saved", options()).value();
  const auto epochs = saved->get("epoch/node").value();
  RecordReader in{std::string_view(epochs.value())};
  EXPECT_GT(in.u64(), 8000u) << "an epoch is given once";
  EXPECT_TRUE(saved->get("buried/2").value()) << "the dead stay dead";
}

TEST_F(SalvageTest, AFolderThatCannotBeLockedIsNotTakenForOneInUse) {
  fill();
  fs::remove(data_ + "/lock");
  fs::create_symlink("elsewhere", data_ + "/lock");  // a store does not follow a symbolic link
  const auto seen = salvage_store(data_, "");
  ASSERT_FALSE(seen.ok());
  EXPECT_EQ(seen.error().message().find("a control runs"), std::string::npos);
}

TEST_F(SalvageTest, AWholeFolderIsSaidToBeWhole) {
  fill();
  const auto seen = salvage_store(data_, "");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_FALSE(seen->damaged);
  EXPECT_EQ(seen->records.at("values"), 30u);
  EXPECT_GE(seen->last_commit, seen->marked_commit);
}

TEST_F(SalvageTest, WhatIsInUseOrNoStoreOrThereAlreadyIsRefused) {
  EXPECT_EQ(salvage_store(root_, "").error().code(), Code::invalid_argument);
  fill();
  EXPECT_EQ(salvage_store(data_, root_).error().code(), Code::invalid_argument);
  const auto control = open_rocks_store(data_, options());
  EXPECT_EQ(salvage_store(data_, "").error().code(), Code::unavailable);
}

}  // namespace
}  // namespace troupe::control
