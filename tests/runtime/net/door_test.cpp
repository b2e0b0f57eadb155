// Tests the messages at the door, before a peer is trusted: only whole, small, printable messages
// pass.
#include "troupe/runtime/net/internal/door.hpp"

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

namespace troupe::net::internal {
namespace {

DoorMessage sample() {
  return {DoorKind::knock, 7, "build-1234", Blob(20, std::byte{9})};
}

TEST(Door, MessagesSurviveTheTrip) {
  const Result<DoorMessage> back = decode_door(encode(sample()));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->kind, DoorKind::knock);
  EXPECT_EQ(back->protocol, 7u);
  EXPECT_EQ(back->build, "build-1234");
  EXPECT_EQ(back->body, sample().body);
}

TEST(Door, GoldenBytes) {
  // The layout never changes, so that any two versions can refuse each other in words.
  const Blob bytes = encode({DoorKind::refuse, 0x01020304, "b", {std::byte{'n'}, std::byte{'o'}}});
  const unsigned char golden[] = {'t', 'D', 3, 4, 3, 2, 1, 1, 'b', 'n', 'o'};
  ASSERT_EQ(bytes.size(), sizeof golden);
  for (std::size_t i = 0; i < sizeof golden; ++i)
    EXPECT_EQ(static_cast<unsigned char>(bytes[i]), golden[i]) << i;
}

TEST(Door, CutOversizedAndForeignMessagesAreRefused) {
  const Blob good = encode(sample());
  for (std::size_t size = 0; size < 18; ++size)
    EXPECT_FALSE(decode_door(BlobView(good).first(size))) << size;
  EXPECT_FALSE(decode_door(Blob(kMaxDoorMessage + 1)));
  for (std::size_t at : {0, 1, 2}) {
    Blob bad = good;
    bad[at] = std::byte{0xee};
    EXPECT_FALSE(decode_door(bad)) << at;
  }
  Blob lie = good;
  lie[7] = std::byte{0xff};  // a build id longer than the limit
  EXPECT_FALSE(decode_door(lie));
}

TEST(Door, ControlCharactersNeverReachAPersonsTerminal) {
  DoorMessage message = sample();
  message.build = "\x1b[31mred\n";
  EXPECT_EQ(decode_door(encode(message))->build, "?[31mred?");
}

TEST(Door, AWelcomeNamesAPortLowByteFirst) {
  DoorMessage message = sample();
  message.body = body_of_port("tcp://127.0.0.1:6500");
  EXPECT_EQ(message.body, (Blob{std::byte{0x64}, std::byte{0x19}}));
  EXPECT_FALSE(port_of(message)) << "it is a knock";
  message.kind = DoorKind::welcome;
  EXPECT_EQ(port_of(message), 6500);
  message.body.push_back({});
  EXPECT_FALSE(port_of(message));
}

TEST(Door, AReasonIsShownPrintableAndShort) {
  Blob body(2000, std::byte{'x'});
  body[0] = std::byte{7};
  EXPECT_EQ(printable(body), "?" + std::string(1023, 'x'));
  EXPECT_EQ(printable({}), "");
}

TEST(Door, RandomBytesAreRefusedOrWhole) {
  Random random(11);
  const Blob good = encode(sample());
  for (int i = 0; i < 20000; ++i) {
    Blob bytes = good;
    bytes.resize(random.below(2 * good.size()));
    for (std::uint64_t n = random.below(4); n > 0 && !bytes.empty(); --n)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random());
    const Result<DoorMessage> message = decode_door(bytes);
    if (message) {
      EXPECT_LE(message->build.size() + message->body.size(), bytes.size());
    }
  }
}

}  // namespace
}  // namespace troupe::net::internal
