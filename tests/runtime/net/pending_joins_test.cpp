// Tests who may wait at a door for the answer to a join, how many, and for how long.
#include "troupe/runtime/net/internal/pending_joins.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe::net::internal {
namespace {

using namespace std::chrono_literals;

PublicKey key_of(int n) {
  PublicKey key;
  key.bytes[0] = static_cast<std::byte>(n);
  return key;
}

struct PendingJoinsTest : testing::Test {
  PendingJoins joins;
  Time now = Time{} + 1000s;
  const Blob caller = Blob(5, std::byte{7});

  std::string refused(const PublicKey& key, Role role = Role::join) {
    const char* why = joins.refusal(key, role, now);
    return why != nullptr ? why : "";
  }
};

TEST_F(PendingJoinsTest, AJoinIsTakenOnce) {
  ASSERT_EQ(refused(key_of(1)), "");
  const std::uint64_t id = joins.add(caller, key_of(1), now);
  EXPECT_NE(id, 0U);
  EXPECT_FALSE(joins.take(id + 1));
  const auto join = joins.take(id);
  ASSERT_TRUE(join);
  EXPECT_EQ(join->routing_id, caller);
  EXPECT_EQ(join->key, key_of(1));
  EXPECT_FALSE(joins.take(id));
}

TEST_F(PendingJoinsTest, OneKeyHasOneJoinAtATime) {
  const std::uint64_t id = joins.add(caller, key_of(1), now);
  EXPECT_EQ(refused(key_of(1)), "this token is in use");
  EXPECT_EQ(refused(key_of(2)), "");
  joins.take(id);
  EXPECT_EQ(refused(key_of(1)), "");
}

TEST_F(PendingJoinsTest, OnlyAOneTimeKeyJoins) {
  EXPECT_EQ(refused(key_of(1), Role::node), "a member needs no token to join");
  EXPECT_EQ(refused(key_of(1), Role::observer), "a member needs no token to join");
}

TEST_F(PendingJoinsTest, TheirNumberIsBoundedAndTheirTimeEnds) {
  for (std::size_t i = 0; i < PendingJoins::kMost; ++i)
    joins.add(caller, key_of(static_cast<int>(i)), now);
  EXPECT_EQ(refused(key_of(200)), "too many nodes join at once");
  now += PendingJoins::kAnswerWithin - 1ns;
  EXPECT_EQ(refused(key_of(200)), "too many nodes join at once");
  now += 1ns;
  EXPECT_EQ(refused(key_of(200)), "");
  EXPECT_FALSE(joins.take(1)) << "its time is over";
}

}  // namespace
}  // namespace troupe::net::internal
