// Bytes that an earlier build wrote are read as what they meant then: one file per message in
// tests/golden/wire, with a frame in hexadecimal and its members. Members that were added later do
// not stand there. TROUPE_WRITE_GOLDEN=1 writes the files that are missing.
#include "samples.hpp"

#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace troupe::wire {
namespace {

using namespace samples;
constexpr std::size_t kColumns = 64;

std::string to_hex(BlobView bytes) {
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

Golden read_golden(const std::filesystem::path& path) {
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

/// A small message with something in every member, and with as many kinds of values as it can hold.
template <class Message, class Make>
Message sample(Make make, std::size_t member, std::size_t payload_size) {
  Message best;
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Message m = make(random, payload_size, member);
    const std::size_t size = frame_of(m, {}).size();
    std::size_t score = size;
    for (int kind = 0; kind < 5; ++kind)
      if (text_of(m).find("kind = " + std::to_string(kind)) != std::string::npos) score += 1000;
    if (score >= most && size <= 800) {
      most = score;
      best = std::move(m);
    }
  }
  return best;
}

template <class Message, class Make>
void write_missing(const std::filesystem::path& folder, Make make, const char* schema) {
  Random random(7);
  const Blob payload = random_bytes(random, 48);
  for (std::size_t member = 0; member < std::variant_size_v<Message>; ++member) {
    const auto message = sample<Message>(make, member, payload.size());
    const auto path = folder / (std::string(name_of(message)) + ".txt");
    if (std::filesystem::exists(path)) continue;
    std::ofstream out(path);
    out << "# " << name_of(message) << " of " << schema << ", layout 1: a frame, and its members\n"
        << to_hex(frame_of(message, payload)) << text_of(message);
  }
}

template <class Message, class Make, class Decode>
void expect_golden(Make make, Decode decode, const char* schema) {
  const std::filesystem::path folder = std::filesystem::path(TROUPE_GOLDEN) / "wire";
  if (std::getenv("TROUPE_WRITE_GOLDEN") != nullptr) write_missing<Message>(folder, make, schema);
  for (std::size_t member = 0; member < std::variant_size_v<Message>; ++member) {
    Random random(0);
    const Message kind = make(random, 0, member);
    const auto path = folder / (std::string(name_of(kind)) + ".txt");
    ASSERT_TRUE(std::filesystem::exists(path)) << path << ": every message has golden bytes";
    const Golden golden = read_golden(path);
    const auto read = decode(BlobView(golden.frame));
    ASSERT_TRUE(read.ok()) << path << ": " << read.error().what();
    ASSERT_EQ(read->message.index(), member) << path;
    std::istringstream text(text_of(read->message));
    std::set<std::string> have;
    for (std::string line; std::getline(text, line);) have.insert(line);
    for (const std::string& line : golden.members)
      EXPECT_TRUE(have.count(line)) << path << ": no longer reads " << line;
  }
}

TEST(Golden, CallMessagesOfEarlierBuildsAreRead) {
  expect_golden<CallMessage>(
      [](Random& r, std::size_t p, std::size_t i) { return random_call(r, p, i, true); },
      decode_call, "call.capnp");
}

TEST(Golden, NodeMessagesOfEarlierBuildsAreRead) {
  expect_golden<NodeMessage>(
      [](Random& r, std::size_t p, std::size_t i) { return random_node(r, p, i, true); },
      decode_node, "node.capnp");
}

}  // namespace
}  // namespace troupe::wire
