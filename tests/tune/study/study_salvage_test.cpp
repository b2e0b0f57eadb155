// Tests what is saved of a study that does not open.
#include "troupe/tune/study/study_salvage.hpp"
#include "tests/tune/study/studies.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/tune/study/internal/store_check.hpp"

#include <gtest/gtest.h>
#include <set>
#include <string>

namespace troupe::tune {
namespace {

using namespace studies;

class StudySalvageTest : public studies::Test {
 protected:
  static constexpr std::uint64_t kEvents = 500;

  void make(const std::string& folder) const {
    const auto store = StudyStore::open(folder, options()).value();
    StudyBatch first;
    first.meta = kMeta;
    first.reports = {{3, 7, "0.5"}};
    first.checkpoints = {{"k", "{}"}};
    first.clients = {{"me", "no json"}};
    ASSERT_TRUE(store->write(first).ok());
    for (std::uint64_t n = 1; n <= kEvents; ++n) ASSERT_TRUE(store->write(batch_of(n)).ok());
    ASSERT_TRUE(store->sync().ok());
    fs::copy(folder, folder + "-copy", fs::copy_options::recursive);
    fs::remove(folder + "-copy/owner");
  }
  std::vector<Json> saved() const {
    std::ifstream in(root_ + "/saved.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line).value());
    return lines;
  }
};

TEST_F(StudySalvageTest, AWholeStudyIsSavedRecordByRecord) {
  make(study_);
  const auto seen = salvage_study(study_, root_ + "/saved.jsonl");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_FALSE(seen->damaged);
  EXPECT_EQ(seen->last_event, kEvents);
  EXPECT_EQ(seen->missing_events, 0u);
  EXPECT_EQ(seen->records, (std::map<std::string, std::uint64_t>{{"checkpoint", 1},
                                                                 {"client", 1},
                                                                 {"event", kEvents},
                                                                 {"meta", 1},
                                                                 {"report", 1},
                                                                 {"trial", 50}}));
  std::set<std::string> lines;
  for (const Json& line : saved()) lines.insert(line.dump(-1, Json::Order::as_added));
  EXPECT_EQ(lines.count(R"({"kind":"report","trial":3,"step":7,"value":0.5})"), 1u);
  EXPECT_EQ(lines.count(R"({"kind":"client","name":"me","value":"no json"})"), 1u);
  EXPECT_EQ(lines.count(R"({"kind":"event","number":2,"value":{"event":2,"text":"xx"}})"), 1u);
  EXPECT_FALSE(salvage_study(study_, root_ + "/saved.jsonl").ok());  // it is there already
}

TEST_F(StudySalvageTest, ADamagedLogLeavesTheOtherRecordsAndTheFolderAsItWas) {
  make(study_);
  study_ += "-copy";
  fs::path log;
  for (const auto& entry : fs::directory_iterator(study_ + "/store"))
    if (entry.path().extension() == ".log" && entry.file_size() > 10'000) log = entry.path();
  ASSERT_FALSE(log.empty());
  std::string bytes = slurp(log);
  bytes[bytes.size() / 2] ^= 1;
  spill(log, bytes);
  ASSERT_FALSE(StudyStore::open(study_, options()).ok());
  const auto seen = salvage_study(study_, root_ + "/saved.jsonl");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_TRUE(seen->damaged);
  EXPECT_NE(seen->why.find(log.filename().string() + ", offset "), std::string::npos) << seen->why;
  EXPECT_EQ(seen->synced_event, kEvents);
  EXPECT_GT(seen->records.at("event"), kEvents / 4);
  EXPECT_GT(seen->missing_events, 0u);
  EXPECT_EQ(seen->records.at("event") + seen->missing_events, kEvents);
  EXPECT_EQ(slurp(log), bytes);
  EXPECT_EQ(saved().size(), [&] {
    std::size_t count = 0;
    for (const auto& [kind, records] : seen->records) count += records;
    return count;
  }());
}

TEST_F(StudySalvageTest, WithoutTheFileSyncedAllIsSaved) {
  make(study_);
  fs::remove(study_ + "/synced");
  const auto seen = salvage_study(study_, "");
  ASSERT_TRUE(seen.ok()) << seen.error().what();
  EXPECT_NE(seen->why.find("/synced, offset 0"), std::string::npos) << seen->why;
  EXPECT_EQ(seen->records.at("event"), kEvents);
}

}  // namespace
}  // namespace troupe::tune
