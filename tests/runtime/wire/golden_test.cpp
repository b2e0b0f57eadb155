// Tests that frames of earlier builds are read, for every message between processes and between
// agents.
#include "tests/runtime/wire/golden.hpp"

namespace troupe::wire {
namespace {

using namespace samples;
constexpr std::size_t kPayload = 48;

template <class Message, class Make, class Decode>
Codec<Message> codec(const char* schema, const char* folder, Make make, Decode decode) {
  return {schema,
          folder,
          kPayload,
          [make](Random& r, std::size_t i) { return make(r, kPayload, i, true); },
          [](const Message& m, BlobView payload) { return frame_of(m, payload); },
          [decode](BlobView bytes) { return std::move(decode(bytes).value().message); },
          [](const Message& m) { return text_of(m); },
          [](const Message& m) { return name_of(m); }};
}

TEST(Golden, CallMessagesOfEarlierBuildsAreRead) {
  expect_golden(codec<CallMessage>(
      "call.capnp", "wire",
      [](Random& r, std::size_t p, std::size_t i, bool t) { return random_call(r, p, i, t); },
      decode_call));
}

TEST(Golden, NodeMessagesOfEarlierBuildsAreRead) {
  expect_golden(codec<NodeMessage>(
      "node.capnp", "wire",
      [](Random& r, std::size_t p, std::size_t i, bool t) { return random_node(r, p, i, t); },
      decode_node));
}

TEST(Golden, MessagesBetweenAgentsOfEarlierBuildsAreRead) {
  expect_golden(codec<PeerMessage>("peer.capnp", "peer", random_peer, decode_peer));
}

// Detached actors outlive the builds that made them, since control keeps these bytes on its disk.
TEST(Golden, CreationsOfEarlierBuildsAreRead) {
  using Kept = std::variant<Creation>;
  expect_golden(Codec<Kept>{
      "peer.capnp", "peer", kPayload,
      [](Random& r, std::size_t) { return Kept(random_creation(r, kPayload, true)); },
      [](const Kept& m, BlobView payload) { return encode_creation(std::get<0>(m), payload); },
      [](BlobView bytes) { return Kept(decode_creation(bytes).value().message); },
      [](const Kept& m) { return text_of(std::get<0>(m)); },
      [](const Kept&) { return std::string_view("Creation"); }});
}

}  // namespace
}  // namespace troupe::wire
