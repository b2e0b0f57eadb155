// Tests the writer and reader of plain frames. Their bytes never change, they give the same
// values as the schema's messages, and no other frame is taken for a plain one.
#include "troupe/runtime/wire/plain.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <string>

namespace troupe::wire {
namespace {

PlainCall sample_call(std::uint32_t count) {
  PlainCall call;
  call.sequence = 0x0123456789ABCDEF;
  call.function = {0xFEDCBA9876543210, 0x1111222233334444};
  call.actor_low = 0x5555666677778888;
  call.attempt = 3;
  call.results = 0;
  call.count = count;
  for (std::uint32_t i = 0; i < count; ++i) call.arguments[i] = {16 * i, 8 + i};
  return call;
}
Call general(const PlainCall& call) {
  Call m;
  m.sequence = call.sequence;
  m.function = call.function;
  m.actor_low = call.actor_low;
  m.attempt = call.attempt;
  m.results = call.results;
  for (std::uint32_t i = 0; i < call.count; ++i) {
    Value& value = m.arguments.emplace_back();
    value.kind = Value::Kind::inline_bytes;
    value.payload_offset = call.arguments[i].offset;
    value.payload_size = call.arguments[i].size;
  }
  return m;
}
Reply general(const PlainReply& reply) {
  Reply m;
  m.sequence = reply.sequence;
  m.index = reply.index;
  m.ran_ns = reply.ran_ns;
  if (reply.has_value) m.value.kind = Value::Kind::inline_bytes;
  m.value.payload_offset = reply.value.offset;
  m.value.payload_size = reply.value.size;
  return m;
}
/// Returns the frame as it lies in a ring: head and payload in one piece.
Blob whole(BlobView head, std::size_t payload) {
  Blob frame(head.begin(), head.end());
  frame.resize(frame.size() + payload);
  return frame;
}

std::string hex(BlobView bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0 && i != 0) text += ' ';
    text += "0123456789abcdef"[std::to_integer<int>(bytes[i]) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(bytes[i]) & 15];
  }
  return text;
}

// A peer of another build reads these bytes, so they never change under one protocol version.
TEST(Plain, TheBytesOfACallAreTheProtocols) {
  PlainFrame frame;
  EXPECT_EQ(hex(write_plain(sample_call(3), frame)),
            "0103030054720002 efcdab8967452301 1032547698badcfe 4444333322221111 8888777766665555 "
            "0000080010000900 20000a0000000000");
}

TEST(Plain, TheBytesOfAReplyAreTheProtocols) {
  PlainFrame frame;
  EXPECT_EQ(hex(write_plain(PlainReply{7, 2, true, 1'000'000'007, {32, 64}}, frame)),
            "0200000054720002 0700000000000000 07ca9a3b00000000 0200000020004000");
  EXPECT_EQ(hex(write_plain(PlainReply{~std::uint64_t{0}, 0, false, 5, {}}, frame)),
            "0300000054720002 ffffffffffffffff 0500000000000000 0000000000000000");
}

TEST(Plain, ACallWithASmallArgumentAndASmallResultFitACacheLineEach) {
  PlainFrame frame;
  constexpr std::size_t kLengthWord = 8;
  EXPECT_LE(kLengthWord + write_plain(sample_call(1), frame).size() + 8, 64u);
  EXPECT_LE(kLengthWord + write_plain(PlainReply{}, frame).size() + 16, 64u);
}

TEST(Plain, WhatDoesNotFitIsNotWritten) {
  PlainFrame frame;
  PlainCall call = sample_call(1);
  call.attempt = call.results = 255;
  EXPECT_FALSE(write_plain(call, frame).empty());
  call.attempt = 256;
  EXPECT_TRUE(write_plain(call, frame).empty());
  call.attempt = 1;
  call.results = 256;
  EXPECT_TRUE(write_plain(call, frame).empty());
  for (const PlainRange range : {PlainRange{0x10000, 0}, PlainRange{0, 0x10000}}) {
    call = sample_call(1);
    call.arguments[0] = range;
    EXPECT_TRUE(write_plain(call, frame).empty());
    EXPECT_TRUE(write_plain(PlainReply{1, 0, true, 0, range}, frame).empty());
  }
}

TEST(Plain, TheGeneralReaderReadsTheSameValues) {
  for (std::uint32_t count = 0; count <= kPlainArguments; ++count) {
    PlainFrame frame;
    const Blob bytes = whole(write_plain(sample_call(count), frame), 128);
    const auto decoded = decode_call(bytes);
    ASSERT_TRUE(static_cast<bool>(decoded)) << count;
    EXPECT_EQ(decoded->payload.size(), 128u);
    FrameWriter ours, schemas;
    const BlobView one = ours.encode(decoded->message);
    const BlobView other = schemas.encode(CallMessage(general(sample_call(count))));
    EXPECT_EQ(hex(one), hex(other)) << count;
  }
  for (const PlainReply& reply : {PlainReply{}, PlainReply{7, 2, true, 1'000'000'007, {32, 64}},
                                  PlainReply{~std::uint64_t{0}, 0, false, 5, {}}}) {
    PlainFrame frame;
    const Blob bytes = whole(write_plain(reply, frame), 96);
    const auto decoded = decode_call(bytes);
    ASSERT_TRUE(static_cast<bool>(decoded));
    FrameWriter ours, schemas;
    const BlobView one = ours.encode(decoded->message);
    const BlobView other = schemas.encode(CallMessage(general(reply)));
    EXPECT_EQ(hex(one), hex(other));
  }
}

TEST(Plain, WhatIsWrittenIsRead) {
  for (std::uint32_t count = 0; count <= kPlainArguments; ++count) {
    const PlainCall call = sample_call(count);
    PlainFrame frame;
    const Blob bytes = whole(write_plain(call, frame), 128);
    PlainCall read;
    BlobView payload;
    ASSERT_TRUE(read_plain(bytes, read, payload));
    EXPECT_EQ(payload.size(), 128u);
    EXPECT_EQ(read.sequence, call.sequence);
    EXPECT_EQ(read.function, call.function);
    EXPECT_EQ(read.actor_low, call.actor_low);
    EXPECT_EQ(read.attempt, 3u);
    EXPECT_EQ(read.results, 0u);
    ASSERT_EQ(read.count, count);
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(read.arguments[i].offset, 16 * i);
      EXPECT_EQ(read.arguments[i].size, 8 + i);
    }
    PlainReply reply;
    EXPECT_FALSE(read_plain(bytes, reply, payload));
  }
  PlainFrame frame;
  const Blob bytes = whole(write_plain(PlainReply{9, 1, true, 77, {16, 4}}, frame), 20);
  PlainReply reply;
  BlobView payload;
  ASSERT_TRUE(read_plain(bytes, reply, payload));
  EXPECT_EQ(reply.sequence, 9u);
  EXPECT_EQ(reply.index, 1u);
  EXPECT_EQ(reply.ran_ns, 77u);
  EXPECT_TRUE(reply.has_value);
  EXPECT_EQ(reply.value.offset, 16u);
  EXPECT_EQ(reply.value.size, 4u);
  PlainCall call;
  EXPECT_FALSE(read_plain(bytes, call, payload));
}

TEST(Plain, RangesBeyondThePayloadAreRefused) {
  for (const PlainRange range : {PlainRange{0, 129}, PlainRange{129, 0}, PlainRange{128, 1},
                                 PlainRange{0xFFFF, 0xFFFF}, PlainRange{0, 4097}}) {
    PlainFrame frame;
    PlainCall call = sample_call(1);
    call.arguments[0] = range;
    const Blob bytes = whole(write_plain(call, frame), 128);
    BlobView payload;
    EXPECT_FALSE(read_plain(bytes, call, payload)) << range.offset << ' ' << range.size;
    EXPECT_FALSE(decode_call(bytes));
    const Blob answer = whole(write_plain(PlainReply{1, 0, true, 0, range}, frame), 128);
    PlainReply reply;
    EXPECT_FALSE(read_plain(answer, reply, payload));
    EXPECT_FALSE(decode_call(answer));
  }
}

TEST(Plain, MessagesOfTheSchemaAreNotPlain) {
  const auto refused = [](const CallMessage& message, const char* what) {
    FrameWriter writer;
    const Blob bytes = whole(writer.encode(message), 64);
    PlainCall call;
    PlainReply reply;
    BlobView payload;
    EXPECT_FALSE(read_plain(bytes, call, payload)) << what;
    EXPECT_FALSE(read_plain(bytes, reply, payload)) << what;
  };
  refused(CallMessage(general(sample_call(1))), "a call in the schema's layout");
  refused(CallMessage(general(PlainReply{})), "a reply in the schema's layout");
  Call call = general(sample_call(1));
  call.arguments[0].refs = {ObjectId{1, 2}};
  refused(CallMessage(call), "an argument with a ref");
  call.arguments[0] = Value{};
  call.arguments[0].kind = Value::Kind::forwarded;
  call.arguments[0].forward = {1, 2};
  refused(CallMessage(call), "a forwarded argument");
  refused(CallMessage(HandBack{1, 2}), "a hand-back");
  refused(CallMessage(Recall{}), "a recall");
  Reply reply;
  reply.last = false;
  refused(CallMessage(reply), "a reply that is not the last");
  reply.last = true;
  reply.value.kind = Value::Kind::shared;
  refused(CallMessage(reply), "a value in shared memory");
}

/// Flips single bits of good frames. A damaged frame that is still plain must read as the general
/// reader reads it.
TEST(Plain, EveryDamagedFrameReadsAsTheGeneralReaderReadsIt) {
  PlainFrame frame;
  const Blob good = whole(write_plain(sample_call(2), frame), 64);
  std::size_t plain = 0;
  for (std::size_t bit = 0; bit < 8 * (good.size() - 64); ++bit) {
    Blob bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    PlainCall call;
    BlobView payload;
    if (!read_plain(bytes, call, payload)) continue;
    ++plain;
    const auto decoded = decode_call(bytes);
    ASSERT_TRUE(static_cast<bool>(decoded)) << "bit " << bit;
    const Call* same_call = std::get_if<Call>(&decoded->message);
    ASSERT_NE(same_call, nullptr);
    EXPECT_EQ(same_call->sequence, call.sequence);
    EXPECT_EQ(same_call->function, call.function);
    EXPECT_EQ(same_call->actor_low, call.actor_low);
    EXPECT_EQ(same_call->attempt, call.attempt);
    EXPECT_EQ(same_call->results, call.results);
    ASSERT_EQ(same_call->arguments.size(), call.count);
    for (std::uint32_t i = 0; i < call.count; ++i) {
      EXPECT_EQ(same_call->arguments[i].payload_offset, call.arguments[i].offset);
      EXPECT_EQ(same_call->arguments[i].payload_size, call.arguments[i].size);
    }
  }
  EXPECT_GT(plain, 200u);  // bits of the numbers, which stay plain
}

TEST(Plain, AFrameThatIsCutShortIsNotPlain) {
  PlainFrame frame;
  const Blob good = whole(write_plain(sample_call(1), frame), 0);
  for (std::size_t size = 0; size < good.size(); ++size) {
    PlainCall call;
    PlainReply reply;
    BlobView payload;
    EXPECT_FALSE(read_plain(BlobView(good).first(size), call, payload));
    EXPECT_FALSE(read_plain(BlobView(good).first(size), reply, payload));
  }
}

}  // namespace
}  // namespace troupe::wire
