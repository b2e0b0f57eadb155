// Tests the messages of control. A message is read as it was written, and bytes of earlier builds
// can be read. Malformed bytes end in an Error, quickly and in little memory.
#include "tests/runtime/control/message_samples.hpp"
#include "tests/runtime/wire/golden.hpp"
#include "tests/runtime/wire/hostile.hpp"

#include <gtest/gtest.h>

namespace troupe::control {
namespace {

using namespace wire::samples;

template <class Message>
Message random_message(Random& random, std::size_t member, bool tidy) {
  return random_member<Message>(random, 0, member, tidy);
}

template <class Message, class Decode>
void expect_round_trips(Decode decode) {
  for (std::size_t member = 0; member < std::variant_size_v<Message>; ++member) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE("member " + std::to_string(member) + " seed " + std::to_string(seed));
      Random random(seed * 1000 + member);
      const auto message = random_message<Message>(random, member, seed % 2 == 0);
      const Blob bytes = encode(message);
      const auto read = decode(bytes);
      ASSERT_TRUE(read.ok()) << type_name(message) << ": " << read.error().what();
      ASSERT_EQ(read->index(), member);
      ASSERT_EQ(print_members(*read), print_members(message)) << type_name(message);
    }
  }
}

TEST(ControlMessages, WhatIsWrittenIsWhatIsRead) {
  expect_round_trips<ToControl>(decode_to_control);
  expect_round_trips<FromControl>(decode_from_control);
  expect_round_trips<BetweenAgents>(decode_between_agents);
}

template <class Message>
void expect_golden_of(Result<Message> (*decode)(BlobView)) {
  wire::samples::expect_golden(Codec<Message>{
      "control.capnp", "control", 0,
      [](Random& r, std::size_t member) { return random_message<Message>(r, member, true); },
      [](const Message& m, BlobView) { return encode(m); },
      [decode](BlobView bytes) { return decode(bytes).value(); },
      [](const Message& m) { return print_members(m); },
      [](const Message& m) { return type_name(m); }});
}

TEST(ControlMessages, ThoseOfEarlierBuildsAreRead) {
  expect_golden_of<ToControl>(decode_to_control);
  expect_golden_of<FromControl>(decode_from_control);
  expect_golden_of<BetweenAgents>(decode_between_agents);
}

TEST(ControlMessages, WhoSentOneDoesNotTravel) {
  const NodeId liar{1, 2};
  const auto sent = [](const ToControl& message) {
    return decode_to_control(encode(message)).value();
  };
  EXPECT_FALSE(std::get<Heartbeat>(sent(Heartbeat{liar, 3, 4, 5})).node);
  EXPECT_FALSE(std::get<Leaving>(sent(Leaving{liar, 3})).node);
  EXPECT_FALSE(std::get<SpawnActor>(sent(SpawnActor{liar, 1, {}, false})).from);
  EXPECT_FALSE(std::get<StartJob>(sent(StartJob{liar, 1, {}})).from);
  EXPECT_FALSE(std::get<NodeHosts>(sent(NodeHosts{liar, 1, 2, {}})).node);
  NodeReport report;
  report.view.id = liar;
  report.view.total.cpus = 1'000'000;
  const auto read = std::get<NodeReport>(sent(report));
  EXPECT_FALSE(read.view.id);
  EXPECT_EQ(read.view.total.cpus, 0);
}

TEST(ControlMessages, ARowsViewIsCompletedFromItsDescription) {
  ClusterRow row;
  row.description = {{7, 8}, "east", "a", std::string(32, 'k'), {}, {{"zone", "1"}}, false};
  row.description.resources.cpus = 80'000;
  row.report.view.free.cpus = -5'000;  // more tasks run than there is room for
  const auto read = decode_from_control(encode(FromControl(ClusterNodes{1, {row}}))).value();
  const scheduling::NodeView& view = std::get<ClusterNodes>(read).rows.at(0).report.view;
  EXPECT_EQ(view.id, row.description.id);
  EXPECT_EQ(view.name, "east");
  EXPECT_EQ(view.labels, row.description.labels);
  EXPECT_EQ(view.total.cpus, 80'000);
  EXPECT_EQ(view.free.cpus, -5'000);
}

TEST(ControlMessages, AnEmptyValueIsNotNone) {
  const auto sent = [](KvReply reply) {
    return std::get<KvReply>(decode_from_control(encode(FromControl(reply))).value()).value;
  };
  KvReply reply;
  EXPECT_FALSE(sent(reply).has_value());
  reply.value = "";
  EXPECT_EQ(sent(reply), std::optional<std::string>(""));
  reply.value = std::string("a\0b", 3);
  EXPECT_EQ(sent(reply), reply.value);
}

TEST(ControlMessages, AnotherConversationOrKindIsRefused) {
  const Blob to = encode(ToControl(HandlesGone{{1, 2}}));
  EXPECT_EQ(decode_from_control(to).error().code(), Code::invalid_argument);
  EXPECT_EQ(decode_between_agents(to).error().code(), Code::invalid_argument);
  Blob unknown = to;
  unknown[16] = std::byte{99};  // the member follows the root pointer
  EXPECT_EQ(decode_to_control(unknown).error().code(), Code::unavailable);
  EXPECT_EQ(decode_to_control(unknown).error().message(), "unsupported message 99");
  Blob longer = to;
  longer.resize(longer.size() + 8);
  EXPECT_EQ(decode_to_control(longer).error().code(), Code::invalid_argument);
}

TEST(ControlMessages, AmountsThatWouldOverflowAreCutAndRefused) {
  NodeReport report;
  report.view.free.cpus = std::numeric_limits<std::int64_t>::min();
  const Blob bytes = encode(ToControl(report));
  const auto read = decode_to_control(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<NodeReport>(*read).view.free.cpus, -(std::int64_t{1} << 61));
  const std::int64_t least = std::get<NodeReport>(*read).view.free.cpus;
  Blob patched = bytes;
  for (std::size_t at = 0; at + 8 <= patched.size(); at += 8)
    if (std::memcmp(patched.data() + at, &least, 8) == 0) patched[at + 7] = std::byte{0x80};
  ASSERT_NE(patched, bytes);
  EXPECT_EQ(decode_to_control(patched).error().code(), Code::invalid_argument);
}

// --- malformed bytes

/// Decodes mutated frames, frames with each bit flipped, and frames cut at each length. Each must
/// be read or refused.
template <class Message, class Decode>
void expect_survives(Decode decode) {
  constexpr int kMutations = 30'000;
  Random random(99);
  std::vector<Blob> good;
  for (std::size_t i = 0; i < 3 * std::variant_size_v<Message>; ++i)
    good.push_back(encode(random_message<Message>(random, i % std::variant_size_v<Message>, true)));
  int accepted = 0;
  std::size_t most = 0;
  const auto attack = [&](const Blob& frame) {
    const std::size_t before = allocated_bytes();
    const auto read = decode(BlobView(frame));
    most = std::max(most, allocated_bytes() - before);
    if (!read.ok()) return;
    ++accepted;
    encode(*read);  // a message that was read respects the writer's bounds too
  };
  for (int i = 0; i < kMutations; ++i) {
    Blob frame = good[random.below(good.size())];
    mutate(random, frame);
    frame.shrink_to_fit();  // so that ASan sees a read beyond the end
    attack(frame);
  }
  EXPECT_GT(accepted, kMutations / 50);
  EXPECT_LT(accepted, kMutations - kMutations / 50);
  for (std::size_t i = 0; i < std::variant_size_v<Message>; ++i) {
    Blob frame = good[i];
    for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
      frame[bit / 8] ^= std::byte(1U << bit % 8);
      attack(frame);
      frame[bit / 8] ^= std::byte(1U << bit % 8);
    }
    for (std::size_t size = 0; size < frame.size(); ++size)
      EXPECT_FALSE(decode(BlobView(frame).first(size)).ok()) << "member " << i << " at " << size;
  }
  EXPECT_LE(most, 2U << 20);
}

TEST(ControlMessages, HostileBytesEndInAnError) {
  expect_survives<ToControl>(decode_to_control);
  expect_survives<FromControl>(decode_from_control);
  expect_survives<BetweenAgents>(decode_between_agents);
}

TEST(ControlMessages, HugeCountsAreRefusedBeforeTheyAreBelieved) {
  const Blob good = encode(FromControl(ListReply{}));
  // Sets the pointers of an empty ListReply's lists to 2^29 - 1 structs of no size.
  int refused = 0;
  for (std::size_t at = 24; at + 8 <= good.size(); at += 8) {
    for (const std::uint64_t count : {1ULL << 12, 1ULL << 20, (1ULL << 29) - 1})
      for (std::uint64_t element = 0; element < 8; ++element) {
        Blob frame = good;
        const std::uint64_t pointer = 1 | element << 32 | count << 35;
        std::memcpy(frame.data() + at, &pointer, 8);
        const std::size_t before = allocated_bytes();
        refused += !decode_from_control(frame).ok();
        EXPECT_LE(allocated_bytes() - before, 2U << 20);
      }
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace troupe::control
