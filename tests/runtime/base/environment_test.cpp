/// Tests which texts a variable of the environment may have, and the sentence that refuses every
/// other text.
#include "troupe/runtime/base/environment.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>
#include <cstdlib>

namespace troupe {
namespace {

Environment with(const char* text) {
  return Environment(
      [text](const char* name) { return std::string(name) == "X" ? text : nullptr; });
}

template <class Read>
std::string refusal(const char* text, Read&& read) {
  try {
    read(with(text));
    return "taken";
  } catch (const InvalidArgument& error) {
    return error.message();
  }
}

TEST(Environment, reads_the_variables_of_this_process) {
  ::setenv("TROUPE_OF_A_TEST", "64M", 1);
  EXPECT_EQ(Environment().size("TROUPE_OF_A_TEST"), Bytes{64 << 20});
  ::unsetenv("TROUPE_OF_A_TEST");
  EXPECT_FALSE(Environment().text("TROUPE_OF_A_TEST"));
}

TEST(Environment, tells_an_empty_text_from_none) {
  EXPECT_EQ(with("").text("X"), "");
  EXPECT_FALSE(with("").text("Y"));
  EXPECT_EQ(with("a:b").text("X"), "a:b");
}

TEST(Environment, splits_a_list_at_colons_and_leaves_out_what_is_empty) {
  EXPECT_EQ(with("/a:/b/c").list("X"), (std::vector<std::string>{"/a", "/b/c"}));
  EXPECT_EQ(with(":/a::").list("X"), std::vector<std::string>{"/a"});
  EXPECT_TRUE(with("").list("X").empty());
  EXPECT_TRUE(with("/a").list("Y").empty());
}

TEST(Environment, takes_an_empty_size_number_or_choice_for_none) {
  EXPECT_FALSE(with("").size("X"));
  EXPECT_FALSE(with("").number("X", 0, 9, "things"));
  EXPECT_FALSE(with("").choice("X", {"a"}));
  EXPECT_FALSE(with("1").size("Y"));
}

TEST(Environment, refuses_a_size_that_is_none_with_an_example) {
  EXPECT_EQ(with("1.5GiB").size("X"), Bytes{std::uint64_t{3} << 29});
  for (const char* text : {"lots", "-1", "1MB", "nan"})
    EXPECT_EQ(refusal(text, [](const Environment& e) { (void)e.size("X"); }),
              "X is '" + std::string(text) + "': give a size such as 512MiB or 2GiB");
}

TEST(Environment, refuses_a_number_out_of_its_range_with_the_range) {
  EXPECT_EQ(with("0").number("X", 0, 9, "things"), 0);
  EXPECT_EQ(with("9").number("X", 0, 9, "things"), 9);
  for (const char* text : {"10", "-1", "soon", "1x", " 1", "1.5", "99999999999999999999"})
    EXPECT_EQ(refusal(text, [](const Environment& e) { (void)e.number("X", 0, 9, "things"); }),
              "X is '" + std::string(text) + "': give a number of things from 0 to 9");
}

TEST(Environment, refuses_a_word_that_is_not_offered_and_names_those_that_are) {
  EXPECT_EQ(with("b").choice("X", {"a", "b", "c"}), 1u);
  EXPECT_EQ(refusal("d", [](const Environment& e) { (void)e.choice("X", {"a", "b", "c"}); }),
            "X is 'd': give a, b or c");
  EXPECT_EQ(refusal("A", [](const Environment& e) { (void)e.choice("X", {"a"}); }),
            "X is 'A': give a");
}

}  // namespace
}  // namespace troupe
