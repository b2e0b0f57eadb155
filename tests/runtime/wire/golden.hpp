/// Tests that bytes of an earlier build are read with the meaning that they had then.
/// tests/golden has a file for each message: a frame in hexadecimal, and its members. Members
/// that were added later are missing from it; Name-2.txt, Name-3.txt … are frames with them.
#pragma once

#include "tests/paths.hpp"
#include "tests/runtime/wire/samples.hpp"

#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

namespace troupe::wire::samples {

inline constexpr std::size_t kColumns = 64;

inline std::string to_hex(BlobView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % (kColumns / 2) == 0) text += i == 0 ? "" : "\n";
    text += kDigits[static_cast<unsigned>(bytes[i]) >> 4];
    text += kDigits[static_cast<unsigned>(bytes[i]) & 15];
  }
  return text + "\n";
}

struct Golden {
  Blob frame;
  std::vector<std::string> members;
};

inline Golden read_golden(const std::filesystem::path& path) {
  Golden golden;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.find(" = ") != std::string::npos) {
      golden.members.push_back(line);
      continue;
    }
    for (std::size_t i = 0; i + 1 < line.size(); i += 2)
      golden.frame.push_back(static_cast<std::byte>(std::stoi(line.substr(i, 2), nullptr, 16)));
  }
  return golden;
}

/// The functions for the golden files of one conversation.
template <class Message>
struct Codec {
  const char* schema;
  const char* folder;  ///< in tests/golden
  std::size_t payload;
  std::function<Message(Random&, std::size_t member)> make;
  std::function<Blob(const Message&, BlobView payload)> frame;
  std::function<Message(BlobView)> decode;  ///< throws
  std::function<std::string(const Message&)> text;
  std::function<std::string_view(const Message&)> name;
};

/// Returns a small message with a value in every member, and as many kinds of values as it can
/// hold. A member that is 0 has no value: a reader that skips it is not found out.
template <class Message>
Message sample(const Codec<Message>& codec, std::size_t member, BlobView payload) {
  Message best;
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Message m = codec.make(random, member);
    const std::size_t size = codec.frame(m, payload).size();
    const std::string text = codec.text(m);
    std::size_t score = size + (text.find(" = 0\n") == std::string::npos ? 500 : 0);
    for (int kind = 0; kind < 6; ++kind)
      if (text.find("kind = " + std::to_string(kind)) != std::string::npos) score += 1000;
    if (score >= most && (size <= 900 || most == 0)) {
      most = score;
      best = std::move(m);
    }
  }
  return best;
}

/// Writes golden files that are missing. TROUPE_WRITE_GOLDEN=1 writes Name.txt where there is
/// none, =2 Name-2.txt for members that were added later.
template <class Message>
void write_missing(const Codec<Message>& codec, const std::filesystem::path& folder,
                   const std::string& version) {
  Random random(7);
  const Blob payload = random_bytes(random, codec.payload);
  std::filesystem::create_directories(folder);
  for (std::size_t member = 0; member < std::variant_size_v<Message>; ++member) {
    const Message message = sample(codec, member, payload);
    const std::string name(codec.name(message));
    std::string file = name;
    if (version != "1") file.append("-").append(version);
    const auto path = folder / file.append(".txt");
    if (std::filesystem::exists(path)) continue;
    std::ofstream out(path);
    out << "# " << name << " of " << codec.schema << ", layout 1: a frame, and its members\n"
        << to_hex(codec.frame(message, payload)) << codec.text(message);
  }
}

template <class Message>
void expect_reads(const Codec<Message>& codec, const std::filesystem::path& path,
                  std::size_t member) {
  const Golden golden = read_golden(path);
  ASSERT_FALSE(golden.frame.empty()) << path;
  const Message read = codec.decode(BlobView(golden.frame));
  ASSERT_EQ(read.index(), member) << path;
  std::istringstream text(codec.text(read));
  std::set<std::string> have;
  for (std::string line; std::getline(text, line);) have.insert(line);
  for (const std::string& line : golden.members)
    EXPECT_TRUE(have.count(line)) << path << ": no longer reads " << line;
}

template <class Message>
void expect_golden(const Codec<Message>& codec) {
  const std::filesystem::path folder = std::filesystem::path(paths::golden()) / codec.folder;
  if (const char* version = std::getenv("TROUPE_WRITE_GOLDEN"))
    write_missing(codec, folder, version);
  for (std::size_t member = 0; member < std::variant_size_v<Message>; ++member) {
    Random random(0);
    const std::string name(codec.name(codec.make(random, member)));
    ASSERT_TRUE(std::filesystem::exists(folder / (name + ".txt")))
        << name << ": every message has golden bytes";
    expect_reads(codec, folder / (name + ".txt"), member);
    for (int version = 2;
         std::filesystem::exists(folder / (name + "-" + std::to_string(version) + ".txt"));
         ++version)
      expect_reads(codec, folder / (name + "-" + std::to_string(version) + ".txt"), member);
  }
}

}  // namespace troupe::wire::samples
