// Tests PlainCalls: PLAIN-1 and PLAIN-2.
#include "troupe/runtime/client/plain_calls.hpp"

#include "troupe/runtime/client/objects.hpp"

#include <gtest/gtest.h>
#include <array>

namespace troupe::client::plain_calls_test {
namespace {

void one(detail::Invocation&) {}
void two(detail::Invocation&) {}

/// More functions than the cache has places, of two thunks.
std::array<detail::Callable, 64>& functions() {
  static std::array<detail::Callable, 64> all = [] {
    std::array<detail::Callable, 64> made;
    for (std::size_t i = 0; i < made.size(); ++i) made[i].thunk = i % 2 == 0 ? &one : &two;
    return made;
  }();
  return all;
}

struct PlainCallsTest : testing::Test {
  /// A call with this many arguments of one byte.
  static detail::Call call(std::uint32_t arguments) {
    detail::Call made;
    made.callable = &functions()[0];
    const Blob bytes(std::size_t{arguments});
    made.bytes.assign(bytes.begin(), bytes.end());
    for (std::uint32_t i = 0; i < arguments; ++i) made.arguments.push_back({i, 1, 0, 0, {}});
    return made;
  }
  PlainCalls plain;
};

TEST_F(PlainCallsTest, CallIsReadAsItWasWritten) {
  const detail::Call made = call(2);
  const BlobView head = plain.encode(made, {7, 3, 2, 1});
  ASSERT_FALSE(head.empty());
  Blob frame(head.begin(), head.end());
  frame.insert(frame.end(), std::size_t{2}, std::byte{});
  wire::PlainCall read;
  BlobView payload;
  ASSERT_TRUE(wire::read_plain(frame, read, payload));
  EXPECT_EQ(read.sequence, 7u);
  EXPECT_EQ(read.actor_low, 3u);
  EXPECT_EQ(read.attempt, 2u);
  EXPECT_EQ(read.count, 2u);
  EXPECT_EQ(read.arguments[1].offset, 1u);
  EXPECT_EQ(read.function.offset, engine::Registry::instance().key_of(made.callable).offset);
}

TEST_F(PlainCallsTest, CallWithAnObjectARefOrTooManyArgumentsIsNotPlain) {
  EXPECT_TRUE(plain.encode(call(wire::kPlainArguments + 1), {}).empty());
  EXPECT_FALSE(plain.encode(call(wire::kPlainArguments), {}).empty());
  ObjectTable objects(1);
  detail::Call with_object = call(1);
  with_object.arguments[0].object = objects.create();
  EXPECT_TRUE(plain.encode(with_object, {}).empty());
  detail::Call with_ref = call(1);
  with_ref.refs.push_back(objects.create());
  EXPECT_TRUE(plain.encode(with_ref, {}).empty());
  EXPECT_TRUE(plain.encode(call(1), {1, 0, 1000, 1}).empty()) << "its numbers do not fit";
}

TEST_F(PlainCallsTest, FunctionsThatShareAPlaceOfTheCacheKeepTheirNames) {
  for (int round = 0; round < 2; ++round)
    for (const detail::Callable& function : functions()) {
      detail::Call made = call(0);
      made.callable = &function;
      const BlobView head = plain.encode(made, {1, 0, 1, 1});
      const Blob frame(head.begin(), head.end());
      wire::PlainCall read;
      BlobView payload;
      ASSERT_TRUE(wire::read_plain(frame, read, payload));
      EXPECT_EQ(read.function.offset, engine::Registry::instance().key_of(&function).offset);
    }
}

TEST_F(PlainCallsTest, ReplyWithoutAValueBecomesAResultOfTypeVoid) {
  wire::PlainReply reply;
  reply.sequence = 4;
  reply.value = {8, 16};
  EXPECT_EQ(plain.general(reply).value.kind, wire::Value::Kind::inline_bytes);
  EXPECT_EQ(plain.general(reply).value.payload_size, 16u);
  EXPECT_EQ(plain.general(reply).sequence, 4u);
  EXPECT_TRUE(plain.general(reply).last);
  reply.has_value = false;
  EXPECT_EQ(plain.general(reply).value.kind, wire::Value::Kind::pending);
}

}  // namespace
}  // namespace troupe::client::plain_calls_test
