// Tests which addresses a node may be told to listen at.
#include "troupe/runtime/os/listen_address.hpp"

#include <gtest/gtest.h>

namespace troupe::os {
namespace {

TEST(ListenAddress, ANameIsResolvedAndAnAddressStays) {
  EXPECT_EQ(resolve_listen("localhost").value(), "127.0.0.1");
  EXPECT_EQ(resolve_listen("10.0.0.1").value(), "10.0.0.1");
  EXPECT_EQ(resolve_listen("lo").value(), "lo") << "the name of an interface";
}

TEST(ListenAddress, Ipv6IsRefusedByThatWord) {
  for (const char* host : {"::1", "[::1]", "fe80::1", "[2001:db8::1]"}) {
    const auto refused = resolve_listen(host);
    ASSERT_FALSE(refused.ok()) << host;
    EXPECT_EQ(refused.error().code(), Code::invalid_argument);
    EXPECT_NE(refused.error().message().find("IPv6"), std::string::npos);
  }
}

TEST(ListenAddress, AnUnknownNameIsNamed) {
  const auto refused = resolve_listen("a..b");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("'a..b' has no IPv4 address"), std::string::npos);
}

}  // namespace
}  // namespace troupe::os
