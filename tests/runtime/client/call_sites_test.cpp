// Tests CallSites: SITE-1 to SITE-3.
#include "troupe/runtime/client/call_sites.hpp"

#include <gtest/gtest.h>
#include <thread>

namespace troupe::client::call_sites_test {
namespace {

constexpr detail::CallSite kLine{"src/main.cpp", 12}, kFunction{"load", 0};

TEST(CallSites, SiteKeepsItsNumberAndIsToldOnce) {
  CallSites sites(1);
  const CallSites::Found line = sites.find(kLine);
  ASSERT_TRUE(line.fresh);
  EXPECT_EQ(line.fresh->number, line.number);
  EXPECT_EQ(line.fresh->text, "main.cpp:12");
  const CallSites::Found function = sites.find(kFunction);
  EXPECT_NE(function.number, line.number);
  ASSERT_TRUE(function.fresh);
  EXPECT_EQ(function.fresh->text, "load");
  const CallSites::Found again = sites.find(kLine);
  EXPECT_EQ(again.number, line.number);
  EXPECT_FALSE(again.fresh);
  EXPECT_EQ(sites.texts().at(line.number), "main.cpp:12");
  EXPECT_EQ(sites.texts().size(), 2u);
}

TEST(CallSites, SitesAfterTheLastNumberHaveNone) {
  CallSites sites(1);
  for (std::uint32_t i = 1; i <= wire::kMaxCallSites; ++i)
    ASSERT_EQ(sites.find({"f.cpp", i}).number, i);
  const CallSites::Found late = sites.find(kLine);
  EXPECT_EQ(late.number, 0u);
  EXPECT_FALSE(late.fresh);
  EXPECT_EQ(sites.texts().size(), wire::kMaxCallSites);
}

TEST(CallSites, ThreadRemembersItsLastSiteOfOneEngine) {
  CallSites sites(11), next(12);
  EXPECT_FALSE(sites.lately(kLine));
  const std::uint32_t number = sites.find(kLine).number;
  EXPECT_EQ(sites.lately(kLine), number);
  EXPECT_FALSE(sites.lately(kFunction));
  EXPECT_FALSE(next.lately(kLine)) << "the number is another engine's";
  std::thread([&] { EXPECT_FALSE(sites.lately(kLine)); }).join();
  sites.find(kFunction);
  EXPECT_FALSE(sites.lately(kLine));
}

}  // namespace
}  // namespace troupe::client::call_sites_test
