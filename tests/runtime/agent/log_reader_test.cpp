// Tests how bytes of workers become lines.
#include "troupe/runtime/agent/log_reader.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

namespace troupe::agent {
namespace {

struct Lines {
  LogReader reader;
  std::map<std::uint64_t, std::vector<std::string>> of;
  void feed(std::uint64_t source, std::string_view bytes) {
    reader.feed(source, bytes, [&](std::string_view line) { of[source].emplace_back(line); });
  }
  void end(std::uint64_t source) {
    reader.end(source, [&](std::string_view line) { of[source].emplace_back(line); });
  }
};

using Texts = std::vector<std::string>;

TEST(LogReader, JoinsPartsOfALineAndKeepsSourcesApart) {
  Lines lines;
  lines.feed(1, "one\ntw");
  lines.feed(2, "other\n");
  EXPECT_EQ(lines.of[1], Texts{"one"});
  lines.feed(1, "o\n\nthree");
  EXPECT_EQ(lines.of[1], (Texts{"one", "two", ""}));
  lines.end(1);
  lines.end(1);
  EXPECT_EQ(lines.of[1], (Texts{"one", "two", "", "three"}));
  EXPECT_EQ(lines.of[2], Texts{"other"});
  EXPECT_EQ(lines.reader.open_bytes(), 0U);
}

TEST(LogReader, CutsALongLineIntoPieces) {
  Lines lines;
  const std::string whole(3 * LogReader::kPiece + 17, 'x');
  lines.feed(1, whole.substr(0, 100));
  lines.feed(1, whole.substr(100) + "\nnext\n");
  ASSERT_EQ(lines.of[1].size(), 5U);
  std::string joined;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_LE(lines.of[1][i].size(), LogReader::kPiece);
    joined += lines.of[1][i];
  }
  EXPECT_EQ(joined, whole);
  EXPECT_EQ(lines.of[1].back(), "next");
}

TEST(LogReader, BoundsTheOpenLinesOfAllSources) {
  Lines lines;
  const std::string half(LogReader::kPiece / 2, 'x');
  const std::size_t sources = 2 * LogReader::kMostOpen / half.size();
  for (std::uint64_t source = 0; source < sources; ++source) {
    lines.feed(source, half);
    ASSERT_LE(lines.reader.open_bytes(), LogReader::kMostOpen);
  }
  std::size_t bytes = 0;
  for (std::uint64_t source = 0; source < sources; ++source) {
    lines.end(source);
    for (const std::string& line : lines.of[source]) bytes += line.size();
  }
  EXPECT_EQ(bytes, sources * half.size()) << "no byte is lost";
}

TEST(LogReader, GivesTheSameLinesForAnyParts) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    std::string bytes;
    for (int i = 0; i < 50; ++i)
      bytes += std::string(random.below(30), static_cast<char>('a' + i % 26)) + "\n";
    Lines whole, parts;
    whole.feed(1, bytes);
    for (std::size_t at = 0, size = 0; at < bytes.size(); at += size) {
      size = 1 + random.below(40);
      parts.feed(1, std::string_view(bytes).substr(at, size));
    }
    ASSERT_EQ(whole.of[1].size(), 50U);
    EXPECT_EQ(whole.of[1], parts.of[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::agent
