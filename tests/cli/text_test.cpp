#include "troupe/runtime/cli/verbs.hpp"

#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

TEST(CliText, SizesAreReadWithTheirUnitsAndNothingElse) {
  EXPECT_EQ(bytes_of("--memory", "512MiB"), 512u << 20);
  EXPECT_EQ(bytes_of("--memory", "1.5G"), 3ull << 29);
  EXPECT_EQ(bytes_of("--memory", "4096"), 4096u);
  for (const char* bad : {"", "MiB", "-1", "0", "1e30", "12 MiB", "3TB", "nan", "0x10"}) {
    try {
      bytes_of("--memory", bad);
      ADD_FAILURE() << bad;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.message().find("--memory"), std::string::npos);
    }
  }
}

TEST(CliText, PairsNeedBothSides) {
  EXPECT_EQ(pair_of("--label", "zone=eu=1"), (std::pair<std::string, std::string>{"zone", "eu=1"}));
  for (const char* bad : {"", "zone", "=eu", "zone="})
    EXPECT_THROW(pair_of("--label", bad), InvalidArgument) << bad;
}

TEST(CliText, SizesAreShownInThreeDigits) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(64u << 20), "64 MiB");
  EXPECT_EQ(size_text(5ull << 40), "5.0 TiB");
}

TEST(CliText, TablesAlignAndShowNoControlCharacters) {
  EXPECT_EQ(table_text({{"A", "LONG", "C"}, {"wide one", "x", ""}, {"\x1b[31m", "y\n", "z"}}),
            "A         LONG  C\n"
            "wide one  x\n"
            "?[31m     y?    z\n");
  EXPECT_EQ(table_text({}), "");
}

}  // namespace
}  // namespace troupe::cli
