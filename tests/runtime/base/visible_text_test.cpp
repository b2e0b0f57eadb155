// Tests that no text reaches a terminal with a character that steers it.
#include "troupe/runtime/base/visible_text.hpp"

#include <gtest/gtest.h>

#include <string>

#include "troupe/runtime/base/random.hpp"

namespace troupe {
namespace {

TEST(VisibleText, WhatPeopleReadStays) {
  for (const char* text : {"", "mix(int, float)", "Größe 1 µs", "日本", "\xf0\x9f\x98\x80"})
    EXPECT_EQ(visible_text(text), text);
}

TEST(VisibleText, EachCharacterThatSteersBecomesAQuestionMark) {
  using namespace std::string_literals;
  EXPECT_EQ(visible_text("a\x1b]0;title\x07"), "a?]0;title?");
  EXPECT_EQ(visible_text("a\0b\r\n\tc\x7f"s), "a?b???c?");
  EXPECT_EQ(visible_text("\xc2\x9b"), "?") << "CSI as one character of C1";
  EXPECT_EQ(visible_text("\xe2\x80\xae"), "?") << "U+202E turns the text round";
  EXPECT_EQ(visible_text("\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf"), "???");
}

TEST(VisibleText, BytesThatAreNotUtf8BecomeQuestionMarks) {
  for (const char* bytes :
       {"\x80", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    for (const char c : visible_text(bytes)) EXPECT_EQ(c, '?') << bytes;
}

TEST(VisibleText, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(visible_text("Größen", 6), "Größen");
  EXPECT_EQ(visible_text("Größenordnung", 6), "Grö...");
  EXPECT_EQ(visible_text("abcdef", 2), "..");
  EXPECT_EQ(columns_of(visible_text(std::string(1 << 20, '\x1b'), 20)), 20u);
}

TEST(VisibleText, RandomBytesNeverPass) {
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random.below(12), '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string text = visible_text(bytes);
    for (const char c : text) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    ASSERT_EQ(visible_text(text), text);
    ASSERT_LE(columns_of(visible_text(bytes, 5)), 5u);
  }
}

}  // namespace
}  // namespace troupe
