// Tests that every message is read as it was written, whatever its members hold.
#include "samples.hpp"

#include <gtest/gtest.h>
#include <cstring>

namespace troupe::wire {
namespace {

using namespace samples;

template <class Message, class Decode>
void expect_round_trip(FrameWriter& writer, const Message& message, const Blob& payload,
                       Decode decode) {
  const BlobView head = writer.encode(message);
  ASSERT_EQ(head.size() % 8, 0u);
  Blob frame(head.begin(), head.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  const auto read = decode(BlobView(frame));
  ASSERT_TRUE(read.ok()) << name_of(message) << ": " << read.error().what();
  ASSERT_EQ(read->message.index(), message.index());
  ASSERT_EQ(text_of(read->message), text_of(message)) << name_of(message);
  ASSERT_EQ(read->payload.size(), payload.size());
  if (!payload.empty()) {
    ASSERT_EQ(read->payload.data(), frame.data() + head.size());
  }
}

TEST(RoundTrip, EveryCallMessageWithRandomContents) {
  FrameWriter writer;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Blob payload = random_bytes(random, random.below(300));
    expect_round_trip(writer, random_call(random, payload.size()), payload, decode_call);
    if (HasFatalFailure()) return;
  }
}

TEST(RoundTrip, EveryNodeMessageWithRandomContents) {
  FrameWriter writer;
  for (std::size_t member = 0; member < std::variant_size_v<NodeMessage>; ++member) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE("member " + std::to_string(member) + " seed " + std::to_string(seed));
      Random random(seed * 1000 + member);
      const Blob payload = random_bytes(random, random.below(9000));
      expect_round_trip(writer, random_node(random, payload.size(), member), payload, decode_node);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RoundTrip, EveryMessageBetweenAgentsWithRandomContents) {
  PeerWriter writer;
  for (std::size_t member = 0; member < std::variant_size_v<PeerMessage>; ++member) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE("member " + std::to_string(member) + " seed " + std::to_string(seed));
      Random random(seed * 1000 + member);
      const Blob payload = random_bytes(random, random.below(9000));
      const PeerMessage message = random_peer(random, payload.size(), member, seed % 2 == 0);
      const BlobView frame = writer.encode(message, payload);
      const auto read = decode_peer(frame);
      ASSERT_TRUE(read.ok()) << name_of(message) << ": " << read.error().what();
      ASSERT_EQ(text_of(read->message), text_of(message)) << name_of(message);
      ASSERT_EQ(Blob(read->payload.begin(), read->payload.end()), payload);
    }
  }
}

TEST(RoundTrip, ACreationKeepsItsArgumentsAndWhoOwnsTheRefs) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Blob payload = random_bytes(random, random.below(9000));
    const Creation creation = random_creation(random, payload.size(), seed % 2 == 0);
    const Blob bytes = encode_creation(creation, payload);
    const auto read = decode_creation(bytes);
    ASSERT_TRUE(read.ok()) << read.error().what();
    ASSERT_EQ(text_of(read->message), text_of(creation));
    ASSERT_EQ(Blob(read->payload.begin(), read->payload.end()), payload);
  }
}

TEST(RoundTrip, TheLargestCarriedFrameFitsTheLink) {
  PeerFrame frame{1, 2, std::vector<OwnedRef>(kMaxCarriedRefs, {{1, 2}, {3, 4}})};
  const Blob payload(kMaxPeerPayload, std::byte{7});
  PeerWriter writer;
  const BlobView whole = writer.encode(PeerMessage(frame), payload);
  EXPECT_LE(whole.size(), (1u << 20) - 64 - 8);  // a message of the link, without a batch's head
  const auto read = decode_peer(whole);
  ASSERT_TRUE(read.ok()) << read.error().what();
  EXPECT_EQ(std::get<PeerFrame>(read->message).refs, frame.refs);
  EXPECT_EQ(read->payload.size(), payload.size());
}

TEST(RoundTrip, AFrameAtAnyAddressReadsAlike) {
  Random random(1);
  const Blob payload = random_bytes(random, 64);
  const CallMessage message = random_call(random, payload.size(), 0);
  const Blob frame = frame_of(message, payload);
  Blob room(frame.size() + 8);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::memcpy(room.data() + shift, frame.data(), frame.size());
    const auto read = decode_call(BlobView(room.data() + shift, frame.size()));
    ASSERT_TRUE(read.ok()) << read.error().what();
    EXPECT_EQ(text_of(read->message), text_of(message));
  }
}

TEST(RoundTrip, AMessageLargerThanTheScratchIsStillOneSegment) {
  Call call;
  call.arguments.resize(kMaxArguments);
  for (Value& argument : call.arguments) {
    argument.kind = Value::Kind::forwarded;
    argument.forward = {7, 9};
  }
  FrameWriter writer;
  expect_round_trip(writer, CallMessage(call), {}, decode_call);
  // The writer's scratch memory is clean for the next message.
  expect_round_trip(writer, CallMessage(Call{}), {}, decode_call);
  expect_round_trip(writer, CallMessage(Reply{}), {}, decode_call);
}

TEST(RoundTrip, DefaultsSurvive) {
  FrameWriter writer;
  expect_round_trip(writer, CallMessage(Call{}), {}, decode_call);
  expect_round_trip(writer, CallMessage(Reply{}), {}, decode_call);
  expect_round_trip(writer, CallMessage(Recall{}), {}, decode_call);
  expect_round_trip(writer, NodeMessage(CreateActor{}), {}, decode_node);
  expect_round_trip(writer, NodeMessage(RequestLease{}), {}, decode_node);
  expect_round_trip(writer, NodeMessage(Nodes{.request = 1, .rows = {NodeRow{}}}), {}, decode_node);
}

}  // namespace
}  // namespace troupe::wire
