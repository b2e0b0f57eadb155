// Tests the extents of an arena: its limit and who holds most, ids that are used once, and that
// only confirmed memory goes to readers.
#include "troupe/objectstore/internal/extents.hpp"

#include <gtest/gtest.h>
#include <optional>
#include <string>

namespace troupe::objectstore::internal {
namespace {

constexpr std::uint64_t kUsual = 1 << 20;

ExtentsOptions small_arena() {
  return {.usual = kUsual, .arena = 4 * kUsual, .ahead = 0, .processes = 3, .most = 3};
}

struct ExtentsTest : testing::Test {
  std::optional<Extents> extents;
  void SetUp() override { extents.emplace(small_arena()); }
  ExtentId grant(std::uint32_t process, std::uint64_t bytes = 1) {
    auto given = extents->grant(process, bytes, Limit::arena);
    EXPECT_TRUE(given.ok());
    return given.ok() ? given->id : ExtentId();
  }
  Code refused(std::uint32_t process, std::uint64_t bytes, Limit limit = Limit::arena) {
    auto given = extents->grant(process, bytes, limit);
    EXPECT_FALSE(given.ok());
    return given.ok() ? Code::internal : given.error().code();
  }
};

TEST_F(ExtentsTest, AnExtentIsItsProcesses) {
  const ExtentId id = grant(1);
  ASSERT_NE(extents->find(1, id), nullptr);
  EXPECT_EQ(extents->find(1, id)->bytes, kUsual);
  EXPECT_EQ(extents->find(2, id), nullptr);
  EXPECT_EQ(extents->find(1, ExtentId()), nullptr);
  EXPECT_EQ(extents->of(1).size(), 1U);
  EXPECT_TRUE(extents->of(2).empty());
}

TEST_F(ExtentsTest, AnIdIsUsedOnce) {
  const ExtentId first = grant(1);
  EXPECT_EQ(extents->drop(first.index()).id, first);
  EXPECT_EQ(extents->granted(), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_NE(grant(1), first);
  EXPECT_EQ(extents->find(1, first), nullptr);
}

TEST_F(ExtentsTest, TheArenaIsTheLimitAndTheErrorNamesWhoHoldsMost) {
  grant(1, 3 * kUsual);
  grant(2);
  auto given = extents->grant(2, 1, Limit::arena);
  ASSERT_FALSE(given.ok());
  EXPECT_EQ(given.error().code(), Code::out_of_memory);
  EXPECT_NE(given.error().message().find("process 1 holds most, 3145728"), std::string::npos);
  EXPECT_EQ(extents->granted(), 4 * kUsual);
  EXPECT_EQ(extents->bytes_of(1), 3 * kUsual);
}

TEST_F(ExtentsTest, OneExtentMayExceedTheArenaIfItIsAllowedTo) {
  grant(1, 3 * kUsual);
  EXPECT_EQ(refused(1, 2 * kUsual), Code::out_of_memory);
  ASSERT_TRUE(extents->grant(1, 2 * kUsual, Limit::one_beyond).ok());
  EXPECT_TRUE(extents->exceed_arena());
  EXPECT_EQ(refused(1, kUsual, Limit::one_beyond), Code::out_of_memory);
}

TEST_F(ExtentsTest, TheirNumberIsBounded) {
  extents.emplace(
      ExtentsOptions{.usual = kUsual, .arena = 9 * kUsual, .ahead = 0, .processes = 2, .most = 2});
  grant(0);
  grant(1);
  EXPECT_EQ(refused(1, 1), Code::out_of_memory);
}

TEST_F(ExtentsTest, ReadersGetConfirmedMemoryOnly) {
  const ExtentId id = grant(1);
  EXPECT_EQ(extents->for_reader(id).error().code(), Code::unavailable);
  EXPECT_FALSE(extents->confirm(2, id).ok());
  ASSERT_TRUE(extents->confirm(1, id).ok());
  EXPECT_TRUE(extents->confirm(1, id).ok()) << "again";
  const auto reader = extents->for_reader(id);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->bytes, kUsual);
  extents->drop(id.index());
  EXPECT_EQ(extents->for_reader(id).error().code(), Code::object_lost);
}

TEST_F(ExtentsTest, PrefaultedMemoryGivesWayToWhatIsAskedFor) {
  ExtentsOptions options = small_arena();
  options.arena = 8 * kUsual;
  options.ahead = 8 * kUsual;
  extents.emplace(options);
  while (extents->prefault(Bytes{kUsual})) {
  }
  EXPECT_EQ(extents->prefaulted(), kUsual) << "an eighth of the arena";
  EXPECT_EQ(extents->granted(), 0U);
  grant(1, 8 * kUsual);
  EXPECT_EQ(extents->prefaulted(), 0U);
  EXPECT_FALSE(extents->prefault(Bytes{kUsual})) << "the arena is full";
}

}  // namespace
}  // namespace troupe::objectstore::internal
