/// More lines than a doorbell has marks.
#include "troupe/runtime/agent/lines.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::lines_test {
namespace {

TEST(LinesTest, AMarkMeansEachLineThatIsRungByIt) {
  ring::Doorbell bell = ring::Doorbell::create().value();
  constexpr std::uint32_t kLine = 2 * ring::kMaxLines + 7;
  bell.ring(kLine);
  std::vector<std::uint32_t> marks, lines;
  ASSERT_TRUE(bell.take(marks));
  for (const std::uint32_t mark : marks)
    each_line_of_mark(mark, kLine + 1, [&](std::uint32_t line) { lines.push_back(line); });
  EXPECT_EQ(lines, (std::vector<std::uint32_t>{7, ring::kMaxLines + 7, kLine}));
  lines.clear();
  each_line_of_mark(7, ring::kMaxLines + 7, [&](std::uint32_t line) { lines.push_back(line); });
  EXPECT_EQ(lines, std::vector<std::uint32_t>{7});
}

}  // namespace
}  // namespace troupe::agent::lines_test
