// Tests which texts are sizes in bytes, and how many bytes each unit has.
#include "troupe/runtime/base/size_text.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "troupe/runtime/base/error.hpp"

namespace troupe {
namespace {

TEST(SizeText, EveryUnitIsAPowerOf1024) {
  EXPECT_EQ(parse_size("0"), Bytes{0});
  EXPECT_EQ(parse_size("4096"), Bytes{4096});
  EXPECT_EQ(parse_size("7B"), Bytes{7});
  EXPECT_EQ(parse_size("3K"), Bytes{3 << 10});
  EXPECT_EQ(parse_size("3KiB"), Bytes{3 << 10});
  EXPECT_EQ(parse_size("1.5M"), Bytes{3 << 19});
  EXPECT_EQ(parse_size("512MiB"), Bytes{512 << 20});
  EXPECT_EQ(parse_size("2G"), Bytes{std::uint64_t{2} << 30});
  EXPECT_EQ(parse_size("2TiB"), Bytes{std::uint64_t{2} << 40});
}

TEST(SizeText, NothingElseIsASize) {
  for (const char* text : {"", "x", "MiB", "-1", "-0.5G", "nan", "inf", "1e300", "1 MiB", "1ZB",
                           "1MB", "512MiBs", "1e16", "9999T"})
    EXPECT_FALSE(parse_size(text)) << text;
}

TEST(SizeText, ADurationNeedsItsUnit) {
  using namespace std::chrono_literals;
  EXPECT_EQ(parse_duration("60s"), Duration(60s));
  EXPECT_EQ(parse_duration("0s"), Duration(0s));
  EXPECT_EQ(parse_duration("250ms"), Duration(250ms));
  EXPECT_EQ(parse_duration("1.5m"), Duration(90s));
  EXPECT_EQ(parse_duration("2h"), Duration(2h));
  for (const char* text :
       {"", "60", "s", "-1s", "nan s", "nans", "infs", "1 s", "1sec", "1e9h", "2e9s", "60s ", "1d"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

}  // namespace
}  // namespace troupe
