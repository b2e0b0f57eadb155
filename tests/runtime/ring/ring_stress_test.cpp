// Tests threads that write and sleep at the worst moments. It is made for ThreadSanitizer, which
// sees that only the counters hand the rings' bytes over.
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/ring/channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <cstring>
#include <thread>

namespace troupe::ring::ring_stress_test {
namespace {

using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kFrames = 20'000;
#else
constexpr std::uint64_t kFrames = 100'000;
#endif
constexpr int kWriters = 3;
constexpr auto kPatience = 20s;  // a lost wake-up ends here, as a failure

/// Makes a frame that can be checked: its number, then bytes that follow from it.
std::size_t make_frame(std::uint64_t n, std::size_t size, std::byte* out) {
  size = std::max<std::size_t>(size, sizeof n);
  std::memcpy(out, &n, sizeof n);
  for (std::size_t i = sizeof n; i < size; ++i) out[i] = static_cast<std::byte>(n + i);
  return size;
}
bool is_frame(std::uint64_t n, const std::byte* at, std::size_t size) {
  std::uint64_t have = 0;
  if (size < sizeof n) return false;
  std::memcpy(&have, at, sizeof have);
  if (have != n) return false;
  for (std::size_t i = sizeof n; i < size; ++i)
    if (at[i] != static_cast<std::byte>(n + i)) return false;
  return true;
}

/// A writer: it pushes frames, and sleeps on a doorbell of its own when the ring is full.
struct Writer {
  ChannelMemory memory = ChannelMemory::create().value();
  Doorbell bell = Doorbell::create().value();
  Producer out = memory.producer(0);

  bool run(Doorbell& reader, std::uint32_t slot, std::uint64_t seed) {
    Random random(seed);
    Blob frame(kMaxFrame);
    std::vector<std::uint32_t> slots;
    for (std::uint64_t n = 0; n < kFrames; ++n) {
      const std::size_t size = make_frame(
          n, random.chance(0.01) ? random.below(kMaxFrame) : random.below(64), frame.data());
      while (!out.push(BlobView(frame).first(size))) {
        const auto start = std::chrono::steady_clock::now();
        if (!bell.take(slots)) bell.sleep(kPatience);
        if (std::chrono::steady_clock::now() - start >= kPatience) return false;
      }
      reader.ring(slot);
      if (random.chance(0.001)) std::this_thread::yield();
    }
    return true;
  }
};

TEST(RingStress, WritersAndASleepingReaderLoseNothing) {
  Doorbell reader = Doorbell::create().value();
  Writer writers[kWriters];
  constexpr std::uint32_t kSlots[kWriters] = {0, 1, 200};  // two in one word, one in another
  std::vector<std::thread> threads;
  bool wrote[kWriters] = {};
  for (int i = 0; i < kWriters; ++i)
    threads.emplace_back(
        [&, i] { wrote[i] = writers[i].run(reader, kSlots[i], static_cast<std::uint64_t>(i)); });

  std::vector<Consumer> rings;
  for (Writer& writer : writers) rings.push_back(writer.memory.consumer(1));
  std::uint64_t received[kWriters] = {};
  Blob buffer(kMaxFrame);
  std::vector<std::uint32_t> slots;
  bool good = true, late = false;
  const auto drain = [&](int i) {
    std::size_t size = 0;
    while (rings[i].pop(buffer.data(), size) == Pop::frame) {
      good &= is_frame(received[i]++, buffer.data(), size);
      if (rings[i].take_starved()) writers[i].bell.ring(0);
    }
  };
  while (good && !late && received[0] + received[1] + received[2] < kWriters * kFrames) {
    if (!reader.take(slots)) {
      const auto start = std::chrono::steady_clock::now();
      reader.sleep(kPatience);
      late = std::chrono::steady_clock::now() - start >= kPatience;
      continue;
    }
    for (const std::uint32_t slot : slots) drain(slot == 200 ? 2 : static_cast<int>(slot));
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(good) << "a frame was torn or out of order";
  EXPECT_FALSE(late) << "a wake-up was lost";
  for (const bool w : wrote) EXPECT_TRUE(w) << "a producer was not woken when there was room";
}

/// Two ends of channels answer each other, and each sleeps between messages.
TEST(RingStress, PingPongAcrossTwoSleepers) {
  ChannelMemory one = ChannelMemory::create().value();
  auto two = ChannelMemory::attach(Fd(fcntl(one.fd(), F_DUPFD_CLOEXEC, 0))).value();
  auto make_bell = [] { return std::make_shared<Doorbell>(Doorbell::create().value()); };
  const auto bell_a = make_bell(), bell_b = make_bell();
  Channel a(std::move(one), 0, bell_b, 7);
  Channel b(std::move(two), 1, bell_a, 9);

  constexpr std::uint64_t kRounds = 3'000;
  const auto receive = [](Channel& channel, Doorbell& bell, std::uint64_t n) {
    alignas(8) std::byte buffer[kMaxFrame];
    std::size_t size = 0;
    std::vector<std::uint32_t> slots;
    const auto start = std::chrono::steady_clock::now();
    while (channel.receive(buffer, size) != Pop::frame) {
      if (!bell.take(slots)) bell.sleep(kPatience);
      if (std::chrono::steady_clock::now() - start >= kPatience) return false;
    }
    return is_frame(n, buffer, size);
  };
  bool answered = true;
  std::thread other([&] {
    std::byte frame[64];
    for (std::uint64_t n = 0; n < kRounds && answered; ++n) {
      answered = receive(b, *bell_b, n);
      b.send(BlobView(frame, make_frame(n, 24, frame)));
    }
  });
  bool good = true;
  std::byte frame[64];
  for (std::uint64_t n = 0; n < kRounds && good; ++n) {
    a.send(BlobView(frame, make_frame(n, 40, frame)));
    good = receive(a, *bell_a, n);
  }
  other.join();
  EXPECT_TRUE(good);
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace troupe::ring::ring_stress_test
