// Tests bulk transfer over real sockets. Objects arrive byte for byte. An altered, repeated, cut
// or slow transfer, or one under another key, ends in a typed error within its bound. No byte of
// a stranger reaches memory.
#include "troupe/runtime/net/bulk.hpp"

#include "tests/runtime/net/proxy.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <thread>

namespace troupe::net {
namespace {

using namespace std::chrono_literals;

Blob noise(std::size_t size, std::uint64_t seed = 1) {
  Random random(seed);
  Blob bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

/// Two connected sockets and one key for both ends.
struct Pair {
  Fd out, in;
  BulkKey key = fresh_bulk_key().value();
  Pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    out = Fd(fds[0]);
    in = Fd(fds[1]);
  }
  BulkSender sender() { return BulkSender(out.get(), key.copy()); }
  BulkReceiver receiver() {
    return BulkReceiver(in.get(), key.copy(), steady_now() + kBulkFirstFrame);
  }
};

Time soon() {
  return steady_now() + 5s;
}

/// Returns the bytes that a sender sends for the start and one object.
Blob captured(const BulkKey& key, ObjectId object, BlobView bytes) {
  Pair pair;
  BulkSender sender(pair.out.get(), key.copy());
  EXPECT_TRUE(sender.start(soon()));
  EXPECT_TRUE(sender.send_object(object, bytes, soon()));
  Blob wire(1 << 20);
  const ssize_t n = recv(pair.in.get(), wire.data(), wire.size(), 0);
  wire.resize(static_cast<std::size_t>(n));
  return wire;
}

constexpr std::size_t start_frame = 56;  // header and tag

TEST(Bulk, ObjectsOfEverySizeArriveByteForByte) {
  auto door = BulkDoor::open("127.0.0.1", 0).value();
  const BulkId id = BulkId::random();
  BulkKey key = fresh_bulk_key().value();
  door->expect(id, soon());
  Fd out = bulk_connect("127.0.0.1", door->port(), id, soon()).value();
  std::vector<BulkDoor::Arrived> arrived;
  while (arrived.empty() && steady_now() < soon()) {
    pollfd wait{door->fd(), POLLIN, 0};
    ::poll(&wait, 1, 1000);
    arrived = door->poll(steady_now());
  }
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived[0].id, id);
  const std::vector<std::size_t> sizes = {
      0, 1, 15, kBulkChunk - 1, kBulkChunk, kBulkChunk + 1, 5'000'000};
  std::thread sending([&] {
    BulkSender sender(out.get(), key.copy());
    ASSERT_TRUE(sender.start(soon()));
    for (std::size_t i = 0; i < sizes.size(); ++i)
      ASSERT_TRUE(sender.send_object(ObjectId{1, i}, noise(sizes[i], i), soon()));
  });
  BulkReceiver receiver(arrived[0].fd.get(), key.copy(), arrived[0].first_by);
  EXPECT_TRUE(receiver.start(soon()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Blob got(sizes[i]);
    const Result<void> result = receiver.receive_object(ObjectId{1, i}, got, soon());
    EXPECT_TRUE(result) << result.error().message();
    EXPECT_TRUE(got == noise(sizes[i], i));
  }
  sending.join();
  EXPECT_FALSE(receiver.forged());
}

TEST(Bulk, AnyAlteredByteIsFound) {
  Pair pair;
  const ObjectId object{1, 2};
  const Blob bytes = noise(1000);
  const Blob wire = captured(pair.key, object, bytes);
  ASSERT_EQ(wire.size(), start_frame + 40 + bytes.size() + 16);
  for (std::size_t at = 0; at < wire.size(); at += at < 100 ? 1 : 37) {
    Pair p;
    Blob bad = wire;
    bad[at] ^= std::byte{0x20};
    ASSERT_EQ(write(p.out.get(), bad.data(), bad.size()), static_cast<ssize_t>(bad.size()));
    p.out.reset();
    BulkReceiver receiver(p.in.get(), pair.key.copy(), soon());
    Result<void> result = receiver.start(soon());
    Blob got(bytes.size());
    if (result) result = receiver.receive_object(object, got, soon());
    EXPECT_FALSE(result) << "byte " << at;
  }
}

TEST(Bulk, ARepeatedOrLeftOutFrameIsFound) {
  const ObjectId object{1, 2};
  const BulkKey key = fresh_bulk_key().value();
  const Blob wire = captured(key, object, noise(1000));
  const auto cut = wire.begin() + static_cast<std::ptrdiff_t>(start_frame);
  const Blob start(wire.begin(), cut), frame(cut, wire.end());
  auto play = [&](const std::vector<const Blob*>& frames, std::size_t good) {
    Pair pair;
    for (const Blob* f : frames)
      EXPECT_EQ(write(pair.out.get(), f->data(), f->size()), static_cast<ssize_t>(f->size()));
    pair.out.reset();
    BulkReceiver receiver(pair.in.get(), key.copy(), soon());
    Result<void> result = receiver.start(soon());
    Blob got(1000);
    for (std::size_t i = 1; i < good; ++i) {
      EXPECT_TRUE(result);
      result = receiver.receive_object(object, got, soon());
    }
    EXPECT_EQ(static_cast<bool>(result), good > 0);
    if (result) result = receiver.receive_object(object, got, soon());
    return !result && receiver.forged();
  };
  EXPECT_TRUE(play({&start, &frame, &frame}, 2));  // a repeated frame
  EXPECT_TRUE(play({&frame}, 0));                  // without the start
}

TEST(Bulk, ATruncatedFrameIsUnavailable) {
  Pair pair;
  const Blob wire = captured(pair.key, ObjectId{1, 2}, noise(1000));
  for (std::size_t size : {std::size_t{0}, std::size_t{10}, start_frame - 1, start_frame,
                           start_frame + 20, start_frame + 500, wire.size() - 1}) {
    Pair p;
    ASSERT_EQ(write(p.out.get(), wire.data(), size), static_cast<ssize_t>(size));
    p.out.reset();
    BulkReceiver receiver(p.in.get(), pair.key.copy(), soon());
    Result<void> result = receiver.start(soon());
    Blob got(1000);
    if (result) result = receiver.receive_object(ObjectId{1, 2}, got, soon());
    ASSERT_FALSE(result) << size;
    EXPECT_EQ(result.error().code(), Code::unavailable);
    EXPECT_FALSE(receiver.forged());
  }
}

TEST(Bulk, AnotherKeyIsRefusedBeforeAnyByteIsTaken) {
  Pair pair;
  BulkSender stranger(pair.out.get(), fresh_bulk_key().value());
  ASSERT_TRUE(stranger.start(soon()));
  BulkReceiver receiver = pair.receiver();
  const Result<void> result = receiver.start(soon());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::unavailable);
  EXPECT_TRUE(receiver.forged());
}

TEST(Bulk, LyingLengthsAreRefusedBeforeAllocation) {
  Pair pair;
  BulkSender sender = pair.sender();
  ASSERT_TRUE(sender.start(soon()));
  BulkReceiver receiver = pair.receiver();
  ASSERT_TRUE(receiver.start(soon()));
  Blob header(40);
  for (std::size_t i = 24; i < 28; ++i) header[i] = std::byte{0xff};  // 2^32 - 1
  ASSERT_EQ(write(pair.out.get(), header.data(), header.size()), 40);
  EXPECT_FALSE(receiver.next(soon()));
  EXPECT_TRUE(receiver.forged());
  EXPECT_FALSE(sender.send({}, Blob(kMaxBulkChunk + 1), soon()));
}

TEST(Bulk, AnotherObjectOrSizeThanAgreedIsRefused) {
  for (std::size_t size : {999, 1001}) {
    Pair pair;
    BulkSender sender = pair.sender();
    BulkReceiver receiver = pair.receiver();
    ASSERT_TRUE(sender.start(soon()) && receiver.start(soon()));
    ASSERT_TRUE(sender.send_object(ObjectId{1, 1}, noise(1000), soon()));
    Blob got(size);
    const Result<void> result = receiver.receive_object(ObjectId{1, 1}, got, soon());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::invalid_argument);
  }
}

TEST(Bulk, ASlowFirstFrameIsBoundedEvenWhenItDripsAndDeadlinesHold) {
  Pair pair;
  BulkReceiver receiver(pair.in.get(), pair.key.copy(), steady_now() + 200ms);
  ASSERT_EQ(write(pair.out.get(), "drip", 4), 4);
  const Time begin = steady_now();
  const Result<void> result = receiver.start(steady_now() + 1h);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::timed_out);
  EXPECT_LT(steady_now() - begin, 2s);

  Pair full;  // nothing is read, so the sender stops at its deadline
  BulkSender sender = full.sender();
  const Result<void> sent = sender.send_object(ObjectId{1, 1}, Blob(8 << 20), steady_now() + 100ms);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), Code::timed_out);
}

TEST(Bulk, TheDoorClosesStrangersAndTakesEachIdOnce) {
  auto door = BulkDoor::open("127.0.0.1", 0).value();
  const std::string port = std::to_string(door->port());
  const BulkId id = BulkId::random(), expired = BulkId::random();
  const Time now = steady_now();
  door->expect(id, now + 1h);
  door->expect(expired, now - 1s);
  Fd silent = test::connect_raw(port), http = test::connect_raw(port);
  ASSERT_GT(write(http.get(), "GET / HTTP/1.1\r\n\r\n", 18), 0);
  Fd unknown = bulk_connect("127.0.0.1", door->port(), BulkId::random(), soon()).value();
  Fd late = bulk_connect("127.0.0.1", door->port(), expired, soon()).value();
  Fd good = bulk_connect("127.0.0.1", door->port(), id, soon()).value();
  std::size_t arrived = 0;
  for (int i = 0; i < 100 && (arrived == 0 || door->refused() < 3); ++i) {
    pollfd wait{door->fd(), POLLIN, 0};
    ::poll(&wait, 1, 50);
    arrived += door->poll(now).size();
  }
  EXPECT_EQ(arrived, 1u);
  EXPECT_TRUE(test::is_closed(http.get()) && test::is_closed(unknown.get()) &&
              test::is_closed(late.get()));
  EXPECT_FALSE(test::is_closed(silent.get()));
  EXPECT_EQ(door->next_deadline(), now + kBulkFirstFrame);
  door->poll(now + kBulkFirstFrame);
  EXPECT_TRUE(test::is_closed(silent.get()));
  Fd again = bulk_connect("127.0.0.1", door->port(), id, soon()).value();
  for (int i = 0; i < 100 && door->refused() < 5; ++i) {
    pollfd wait{door->fd(), POLLIN, 0};
    ::poll(&wait, 1, 50);
    EXPECT_TRUE(door->poll(now).empty());
  }
  EXPECT_EQ(door->refused(), 5u);
}

TEST(Bulk, TheDoorRestsWhileNoDescriptorIsLeft) {
  auto door = BulkDoor::open("127.0.0.1", 0).value();
  const BulkId id = BulkId::random();
  const Time now = steady_now();
  door->expect(id, now + 1h);
  const auto readable = [&](int ms) {
    pollfd wait{door->fd(), POLLIN, 0};
    return ::poll(&wait, 1, ms) == 1;
  };
  Fd good;
  {
    const test::Descriptors taken(1);
    good = bulk_connect("127.0.0.1", door->port(), id, soon()).value();
    ASSERT_TRUE(readable(1000));
    EXPECT_TRUE(door->poll(now).empty());
    EXPECT_FALSE(readable(0)) << "a loop would turn for nothing";
    EXPECT_EQ(door->next_deadline(), now + kBulkDoorRest);
    EXPECT_TRUE(door->poll(now + kBulkDoorRest).empty());
  }
  std::size_t arrived = 0;
  for (int i = 0; i < 100 && arrived == 0; ++i) {
    arrived += door->poll(now + 3 * kBulkDoorRest).size();
    readable(50);
  }
  EXPECT_EQ(arrived, 1u);
  EXPECT_EQ(door->next_deadline(), Time::max());
}

TEST(Bulk, ABusyPortIsNamedAndAnUnreachableOneIsUnavailable) {
  auto door = BulkDoor::open("127.0.0.1", 0).value();
  const auto second = BulkDoor::open("127.0.0.1", door->port());
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find(std::to_string(door->port())), std::string::npos);
  const std::uint16_t port = door->port();
  door.reset();
  const auto refused = bulk_connect("127.0.0.1", port, BulkId::random(), soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::unavailable);
  EXPECT_FALSE(BulkDoor::open("localhost", 0));
}

}  // namespace
}  // namespace troupe::net
