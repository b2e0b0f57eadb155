#include "troupe/runtime/base/random_bytes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace troupe {
namespace {

TEST(RandomBytes, FillAllBytes) {
  std::vector<std::byte> bytes(10'000);
  fill_random(bytes);
  for (std::size_t first = 0; first < bytes.size(); first += 100)
    EXPECT_TRUE(std::any_of(bytes.begin() + static_cast<long>(first),
                            bytes.begin() + static_cast<long>(first) + 100,
                            [](std::byte b) { return b != std::byte{0}; }))
        << first;
  EXPECT_TRUE(try_fill_random({}));
}

TEST(RandomBytes, AnIdHas32DigitsAndIsNew) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(random_id());
  EXPECT_EQ(ids.size(), 100U);
  for (const std::string& id : ids) {
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  }
}

}  // namespace
}  // namespace troupe
