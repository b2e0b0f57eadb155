// Tests that a node's list of actors counts only when all of its pages have come, and that its
// memory is bounded.
#include "troupe/runtime/control/hosts_pages.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace troupe::control {
namespace {

const NodeId kHost{0, 1};

NodeHosts page_of(std::uint32_t number, bool more, const std::vector<std::uint64_t>& actors) {
  NodeHosts page;
  page.node = kHost;
  page.epoch = 5;
  page.control_epoch = 6;
  page.page = number;
  page.more = more;
  page.number = 7;
  for (const std::uint64_t n : actors) {
    HostedActor actor;
    actor.spec.id = ActorId{7, n};
    page.actors.push_back(actor);
  }
  return page;
}

struct HostsPagesTest : testing::Test {
  using State = HostsPages::State;
  HostsPages pages;
  State add(NodeHosts page) { return pages.add(page); }
};

TEST_F(HostsPagesTest, APageAloneIsTheWholeList) {
  NodeHosts page = page_of(0, false, {1, 2});
  EXPECT_EQ(pages.add(page), State::whole);
  EXPECT_EQ(page.actors.size(), 2U);
}

TEST_F(HostsPagesTest, PagesAreOneListInTheirOrder) {
  EXPECT_EQ(add(page_of(0, true, {1})), State::open);
  EXPECT_EQ(add(page_of(1, true, {2})), State::open);
  NodeHosts last = page_of(2, false, {3});
  ASSERT_EQ(pages.add(last), State::whole);
  ASSERT_EQ(last.actors.size(), 3U);
  for (std::uint64_t n = 0; n < 3; ++n) EXPECT_EQ(last.actors[n].spec.id, (ActorId{7, n + 1}));
  EXPECT_EQ(last.node, kHost);
  EXPECT_EQ(last.epoch, 5U);
  EXPECT_EQ(last.control_epoch, 6U);
  EXPECT_EQ(last.number, 7U);
}

TEST_F(HostsPagesTest, AListWithoutOneOfItsPagesSaysNothing) {
  EXPECT_EQ(add(page_of(1, false, {2})), State::open) << "page 0 was lost";
  EXPECT_EQ(add(page_of(0, true, {1})), State::open);
  EXPECT_EQ(add(page_of(2, false, {3})), State::open) << "page 1 was lost";
  EXPECT_EQ(add(page_of(1, false, {2})), State::open) << "the list is dropped";
  EXPECT_EQ(add(page_of(0, true, {1})), State::open);
  pages.forget(kHost);
  EXPECT_EQ(add(page_of(1, false, {2})), State::open);
}

TEST_F(HostsPagesTest, PagesOfTwoRegistrationsAreTwoLists) {
  EXPECT_EQ(add(page_of(0, true, {1})), State::open);
  NodeHosts other = page_of(1, false, {2});
  other.number = 8;
  EXPECT_EQ(add(other), State::open);
  EXPECT_EQ(add(page_of(0, true, {1})), State::open);
  other = page_of(1, false, {2});
  other.epoch = 9;
  EXPECT_EQ(add(other), State::open);
  EXPECT_EQ(add(page_of(0, true, {1})), State::open);
  NodeHosts elsewhere = page_of(1, false, {2});
  elsewhere.node = NodeId{0, 2};
  EXPECT_EQ(add(elsewhere), State::open) << "another node's";
  EXPECT_EQ(add(page_of(1, false, {2})), State::whole);
}

TEST_F(HostsPagesTest, AListIsBoundedInActorsAndInBytes) {
  pages = HostsPages({2, 1u << 20});
  EXPECT_EQ(add(page_of(0, true, {1, 2})), State::open);
  EXPECT_EQ(add(page_of(1, true, {3})), State::too_long);
  NodeHosts big = page_of(0, true, {1});
  big.actors[0].spec.creation.assign(2u << 20, 'x');
  EXPECT_EQ(add(big), State::too_long);
  EXPECT_EQ(add(page_of(1, false, {2})), State::open) << "it is dropped";
}

}  // namespace
}  // namespace troupe::control
