// Tests which files the lines of jobs go to, and which files go.
#include "troupe/runtime/agent/log_store.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace troupe::agent {
namespace {

using File = LogStore::File;

/// A disk that obeys the store and remembers each byte's offset.
struct Disk {
  explicit Disk(LogStore::Limits limits) : store(limits) {}
  LogStore store;
  std::map<File, std::string> files;
  std::map<std::string, std::string> all;  ///< every byte of each job

  void add(const std::string& job, const std::string& bytes) {
    const LogStore::Plan plan = store.plan(job, bytes.size());
    for (const File& file : plan.remove) ASSERT_EQ(files.erase(file), 1U) << file.name();
    std::string& file = files[plan.file];
    ASSERT_EQ(plan.at, file.size());
    file += bytes;
    store.written(plan.file, bytes.size());
    all[job] += bytes;
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [file, text] : files) sum += text.size();
    return sum;
  }
  /// Reads the job from the offset on, as a subscriber does. Returns the offset of the first byte.
  std::uint64_t read(const std::string& job, std::uint64_t from, std::uint64_t most,
                     std::string& text) const {
    std::uint64_t first = from, at = from;
    while (const auto place = store.find(job, at, most)) {
      if (text.empty()) first = place->offset;
      EXPECT_TRUE(text.empty() || place->offset == at) << "no gap between two files";
      text += files.at(place->file).substr(place->at, place->bytes);
      at = place->offset + place->bytes;
    }
    return first;
  }
};

TEST(LogStore, FewJobsWithoutFilesAreRemembered) {
  Disk disk({.file = 100, .files_of_job = 4, .total = 10'000, .files = 10});
  for (int i = 0; i < 1000; ++i) {
    disk.add(std::to_string(i), "x\n");
    EXPECT_LE(disk.store.jobs(), 20U);
  }
  EXPECT_EQ(disk.files.size(), 10U);
  EXPECT_EQ(disk.store.end("985"), 2U) << "its file is gone";
  EXPECT_EQ(disk.store.end("900"), 0U) << "it is forgotten";
  disk.add("985", "y\n");
  EXPECT_EQ(disk.store.end("985"), 4U);
}

TEST(LogStore, FillsFilesInTurnAndReadsByOffset) {
  Disk disk({.file = 100, .files_of_job = 4, .total = 10'000, .files = 100});
  for (int i = 0; i < 40; ++i) disk.add("a", std::string(10, static_cast<char>('a' + i % 26)));
  EXPECT_EQ(disk.files.size(), 4U);
  EXPECT_EQ(disk.store.end("a"), 400U);
  std::string text;
  EXPECT_EQ(disk.read("a", 95, 7, text), 95U);
  EXPECT_EQ(text, disk.all["a"].substr(95));
  EXPECT_FALSE(disk.store.find("a", 400, 7));
  EXPECT_FALSE(disk.store.find("b", 0, 7));
}

TEST(LogStore, KeepsTheNewestFilesOfAJob) {
  Disk disk({.file = 100, .files_of_job = 4, .total = 10'000, .files = 100});
  for (int i = 0; i < 100; ++i) disk.add("a", std::string(10, static_cast<char>('a' + i % 26)));
  EXPECT_EQ(disk.files.size(), 4U);
  EXPECT_TRUE(disk.files.count({"a", 10}) == 1 && disk.files.count({"a", 7}) == 1);
  std::string text;
  EXPECT_EQ(disk.read("a", 0, 64, text), 600U) << "the first byte that is left";
  EXPECT_EQ(text, disk.all["a"].substr(600));
}

TEST(LogStore, RemovesWhatWasWrittenLongestAgoWhenAllIsFull) {
  Disk disk({.file = 100, .files_of_job = 4, .total = 1000, .files = 100});
  for (const char* job : {"a", "b", "c"})
    for (int i = 0; i < 30; ++i) disk.add(job, std::string(10, '.'));
  disk.add("b", std::string(10, '.'));  // its newest file is young again
  for (int i = 0; i < 30; ++i) disk.add("d", std::string(10, '.'));
  EXPECT_LE(disk.store.total(), 1000U);
  EXPECT_EQ(disk.store.total(), disk.bytes());
  EXPECT_EQ(disk.files.count({"a", 1}), 0U);
  EXPECT_EQ(disk.files.count({"b", 4}), 1U);
}

TEST(LogStore, AFileIsAtMostAQuarterOfAll) {
  Disk disk({.file = 1 << 20, .files_of_job = 4, .total = 400, .files = 100});
  for (int i = 0; i < 1000; ++i) disk.add("a", std::string(10, '.'));
  EXPECT_LE(disk.bytes(), 400U);
  EXPECT_GE(disk.bytes(), 300U) << "most of the room is used";
}

TEST(LogStore, AFailedWriteHasTheSamePlaceAgain) {
  LogStore store({.file = 100, .files_of_job = 4, .total = 1000, .files = 100});
  const LogStore::Plan first = store.plan("a", 10);
  const LogStore::Plan again = store.plan("a", 20);
  EXPECT_EQ(first.file, again.file);
  EXPECT_EQ(again.at, 0U);
  EXPECT_EQ(store.end("a"), 0U);
}

TEST(LogStore, BoundsTheNumberOfFiles) {
  Disk disk({.file = 100, .files_of_job = 4, .total = 1 << 20, .files = 8});
  for (int i = 0; i < 100; ++i) disk.add("job" + std::to_string(i), "line\n");
  EXPECT_LE(disk.files.size(), 8U);
}

/// Random jobs, sizes, failures and reads, against the bytes themselves.
TEST(LogStore, HoldsItsBoundsForRandomJobs) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const LogStore::Limits limits{.file = 200, .files_of_job = 3, .total = 1500, .files = 12};
    Disk disk(limits);
    for (int i = 0; i < 500; ++i) {
      const std::string job(1, static_cast<char>('a' + random.below(5)));
      if (random.below(10) == 0) {
        const LogStore::Plan plan = disk.store.plan(job, 30);  // a write that fails
        for (const File& file : plan.remove) disk.files.erase(file);
      }
      disk.add(job, std::string(1 + random.below(60), static_cast<char>('a' + i % 26)));
      ASSERT_LE(disk.store.total(), limits.total) << "seed " << seed;
      ASSERT_EQ(disk.store.total(), disk.bytes());
      std::string text;
      const std::uint64_t from = random.below(disk.all[job].size());
      const std::uint64_t first = disk.read(job, from, 1 + random.below(100), text);
      ASSERT_EQ(text, disk.all[job].substr(first)) << "seed " << seed << ", offset " << from;
      std::size_t of_job = 0;
      for (const auto& [file, bytes] : disk.files) of_job += file.job == job ? 1 : 0;
      ASSERT_LE(of_job, limits.files_of_job);
    }
  }
}

}  // namespace
}  // namespace troupe::agent
