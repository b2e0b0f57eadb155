// Tests the ring and the doorbell in one thread: which frames fit, wrap or are refused.
#include "troupe/runtime/ring/ring.hpp"

#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/ring/doorbell.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <cstring>
#include <deque>

namespace troupe::ring {
namespace {

using namespace std::chrono_literals;

Blob numbered(std::size_t size, std::uint64_t n) {
  Blob bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(n * 31 + i);
  return bytes;
}

struct RingTest : ::testing::Test {
  ChannelMemory memory = ChannelMemory::create().value();
  Producer out = memory.producer(0);
  // Side 1 reads what side 0 writes.
  Consumer in = memory.consumer(1);
  Blob buffer = Blob(kMaxFrame);

  Blob pop() {
    std::size_t size = 0;
    if (in.pop(buffer.data(), size) != Pop::frame) return {};
    return Blob(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size));
  }
};

TEST_F(RingTest, TheTwoDirectionsAreApart) {
  Producer back = memory.producer(1);
  Consumer front = memory.consumer(0);
  EXPECT_TRUE(out.push(numbered(10, 1)));
  EXPECT_TRUE(back.push(numbered(20, 2)));
  EXPECT_EQ(pop(), numbered(10, 1));
  std::size_t size = 0;
  ASSERT_EQ(front.pop(buffer.data(), size), Pop::frame);
  EXPECT_EQ(size, 20u);
  EXPECT_EQ(front.pop(buffer.data(), size), Pop::empty);
}

TEST_F(RingTest, HeadAndBodyAreOneFrame) {
  EXPECT_TRUE(in.empty());
  EXPECT_TRUE(out.push(numbered(16, 1), numbered(5, 2)));
  EXPECT_FALSE(in.empty());
  Blob both = numbered(16, 1);
  const Blob body = numbered(5, 2);
  both.insert(both.end(), body.begin(), body.end());
  EXPECT_EQ(pop(), both);
  EXPECT_TRUE(in.empty());
}

TEST_F(RingTest, FramesOfEverySizeWrapAtEveryPlace) {
  Random random(3);
  std::deque<Blob> expected;
  for (std::uint64_t n = 0; n < 20'000; ++n) {
    const std::size_t size = random.chance(0.05) ? random.below(kMaxFrame + 1) : random.below(300);
    Blob frame = numbered(size, n);
    const std::size_t cut = random.below(size + 1);
    const BlobView view(frame);
    if (out.push(view.first(cut), view.subspan(cut))) {
      expected.push_back(std::move(frame));
    } else {
      ASSERT_FALSE(expected.empty());
    }
    while (!expected.empty() && (in.empty() ? ADD_FAILURE(), true : random.chance(0.5))) {
      ASSERT_EQ(pop(), expected.front());
      expected.pop_front();
    }
  }
}

TEST_F(RingTest, AFullRingRefusesAndRemembersThatItsProducerWaits) {
  const Blob frame = numbered(1000, 1);
  std::size_t pushed = 0;
  while (out.push(frame)) ++pushed;
  EXPECT_EQ(pushed, kRingBytes / 1024);  // whole cache lines
  EXPECT_TRUE(out.sane());
  // The producer is not woken for each frame, but once half of the ring is free.
  std::size_t popped = 0;
  do {
    ASSERT_EQ(pop(), frame);
    ++popped;
  } while (!in.take_starved());
  EXPECT_EQ(popped, (pushed + 1) / 2);
  EXPECT_FALSE(in.take_starved());
  EXPECT_TRUE(out.push(Blob(kMaxFrame)));  // now any frame fits
}

TEST_F(RingTest, ProgressIsSeenByTheOtherSide) {
  in.count_started(7);
  in.count_completed(5);
  EXPECT_EQ(out.progress().started, 7u);
  EXPECT_EQ(out.progress().completed, 5u);
}

/// Maps the pages as a hostile peer sees them.
RingPage* pages_of(const ChannelMemory& memory) {
  void* at =
      mmap(nullptr, 2 * sizeof(RingPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  EXPECT_NE(at, MAP_FAILED);
  return static_cast<RingPage*>(at);
}

/// Returns a length word of this lap around the ring (from 1 on), for `n` - 1 bytes.
constexpr std::uint64_t length(std::uint64_t lap, std::uint64_t n) {
  return lap << 32 | n;
}

TEST_F(RingTest, ImpossibleLengthsCloseTheChannel) {
  RingPage* page = pages_of(memory);
  const auto attack = [&](std::uint64_t word) {
    Consumer victim(page);
    std::memcpy(page->data, &word, sizeof word);
    std::size_t size = 0;
    const Pop result = victim.pop(buffer.data(), size);
    if (result == Pop::corrupt) {  // for good, even when the word is cleared
      std::memset(page->data, 0, sizeof word);
      EXPECT_EQ(victim.pop(buffer.data(), size), Pop::corrupt);
    }
    return result;
  };
  EXPECT_EQ(attack(0), Pop::empty);
  EXPECT_EQ(attack(length(1, 0)), Pop::empty);
  EXPECT_EQ(attack(length(1, 1)), Pop::frame);
  EXPECT_EQ(attack(length(1, kMaxFrame + 1)), Pop::frame);
  for (const std::uint64_t n : {std::uint64_t{kMaxFrame + 2}, std::uint64_t{kRingBytes},
                                std::uint64_t{1} << 31, (std::uint64_t{1} << 32) - 1})
    EXPECT_EQ(attack(length(1, n)), Pop::corrupt) << n;
  munmap(page, 2 * sizeof(RingPage));
}

TEST_F(RingTest, WordsOfOtherLapsAreNoFrames) {
  RingPage* page = pages_of(memory);
  for (const std::uint64_t lap :
       {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{0xFFFFFFFF}}) {
    Consumer victim(page);
    const std::uint64_t word = length(lap, 9);
    std::memcpy(page->data, &word, sizeof word);
    std::size_t size = 0;
    EXPECT_EQ(victim.pop(buffer.data(), size), Pop::empty) << lap;
    EXPECT_TRUE(victim.empty());
  }
  munmap(page, 2 * sizeof(RingPage));
}

TEST_F(RingTest, OldBytesAreNoLengths) {
  // Writes frames full of words that would be lengths on the next lap, again and again. The
  // reader is as fast as the writer, so each of these words is once at the place of the next
  // length.
  Random random(9);
  std::uint64_t written = 0;
  std::size_t long_ones = 0;
  for (int n = 0; n < 6'000; ++n) {
    Blob frame(random.chance(0.5) ? random.below(50) : 64 * random.below(12) + random.below(64));
    const std::uint64_t word = length(written / kRingBytes + 2, 9);
    for (std::size_t i = 0; i < frame.size(); ++i)
      frame[i] = static_cast<std::byte>(word >> 8 * (i % 8));
    ASSERT_TRUE(out.push(frame));
    ASSERT_EQ(pop(), frame);
    ASSERT_TRUE(in.empty());
    written += (8 + frame.size() + 63) / 64 * 64;
    long_ones += frame.size() > 64 ? 1 : 0;
  }
  EXPECT_GT(written / kRingBytes, 10u);  // laps
  EXPECT_GT(long_ones, 1'000u);
}

TEST_F(RingTest, AFullRingKeepsTheLengthOfItsOldestFrame) {
  for (int lap = 0; lap < 3; ++lap) {
    std::size_t n = 0;
    while (out.push(numbered(56, n))) ++n;
    ASSERT_EQ(n, kRingBytes / 64);
    for (n = 0; n < kRingBytes / 64; ++n) {
      ASSERT_EQ(pop(), numbered(56, n));
      in.take_starved();
    }
    ASSERT_TRUE(in.empty());
  }
}

TEST_F(RingTest, SmallFramesWriteNoLineButTheirOwn) {
  // The word where the next frame will begin is of an earlier lap, so it stays.
  RingPage* page = pages_of(memory);
  for (std::size_t n = 0; n < kRingBytes / 64; ++n) {
    ASSERT_TRUE(out.push(numbered(56, n)));
    ASSERT_EQ(pop(), numbered(56, n));
  }
  const Blob before(page->data, page->data + kRingBytes);
  ASSERT_TRUE(out.push(numbered(56, 1)));
  EXPECT_TRUE(std::equal(before.begin() + 64, before.end(), page->data + 64));
  munmap(page, 2 * sizeof(RingPage));
}

TEST_F(RingTest, AnOldCryIsForgotten) {
  const Blob frame = numbered(1000, 1);
  while (out.push(frame)) {
  }
  // The producer looks again by itself, and finds room before it is woken.
  for (int i = 0; i < 20; ++i) pop();
  ASSERT_TRUE(out.push(frame));
  while (!pop().empty()) {
  }
  EXPECT_TRUE(in.take_starved());  // one wake-up too many
  EXPECT_FALSE(in.take_starved());
}

TEST_F(RingTest, AConsumerCannotMakeAProducerOverwrite) {
  RingPage* page = pages_of(memory);
  const Blob frame = numbered(kMaxFrame, 1);
  while (out.push(frame)) {
  }
  page->head = 1'000'000;  // more than was ever in the ring
  EXPECT_FALSE(out.push(frame));
  EXPECT_FALSE(out.sane());
  page->head = kRingBytes;
  EXPECT_FALSE(out.push(frame));  // for good
  munmap(page, 2 * sizeof(RingPage));
}

TEST_F(RingTest, AConsumerThatGoesBackIsBroken) {
  RingPage* page = pages_of(memory);
  const Blob frame = numbered(kMaxFrame, 1);
  while (out.push(frame)) {
  }
  page->head = kMaxFrame + 8;
  EXPECT_TRUE(out.push(frame));
  page->head = 8;
  EXPECT_FALSE(out.push(frame));
  EXPECT_FALSE(out.sane());
  munmap(page, 2 * sizeof(RingPage));
}

Fd memory_of(std::size_t size, unsigned flags, int seals) {
  Fd fd(memfd_create("troupe-test", MFD_CLOEXEC | flags));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}
/// A file on a file system without seals.
Fd plain_file(std::size_t size) {
  Fd fd(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

TEST(Attach, ChannelMemoryMustBeUnableToShrink) {
  constexpr std::size_t kSize = 2 * sizeof(RingPage);
  EXPECT_TRUE(ChannelMemory::attach(memory_of(kSize, MFD_ALLOW_SEALING, F_SEAL_SHRINK)).ok());
  EXPECT_FALSE(ChannelMemory::attach(memory_of(kSize, MFD_ALLOW_SEALING, 0)).ok());
  EXPECT_FALSE(ChannelMemory::attach(memory_of(kSize, MFD_ALLOW_SEALING, F_SEAL_GROW)).ok());
  EXPECT_FALSE(ChannelMemory::attach(memory_of(kSize, 0, 0)).ok());
  EXPECT_FALSE(ChannelMemory::attach(memory_of(kSize + 8, MFD_ALLOW_SEALING, F_SEAL_SHRINK)).ok());
  EXPECT_FALSE(ChannelMemory::attach(memory_of(0, MFD_ALLOW_SEALING, F_SEAL_SHRINK)).ok());
  EXPECT_FALSE(ChannelMemory::attach(plain_file(kSize)).ok());
  EXPECT_FALSE(ChannelMemory::attach(Fd()).ok());
  EXPECT_FALSE(ChannelMemory::attach(Fd(eventfd(0, EFD_CLOEXEC))).ok());
}

TEST(Attach, ADoorbellMustBeUnableToShrinkOrToBlockItsWriter) {
  constexpr std::size_t kSize = sizeof(DoorbellPage);
  const auto event = [](int flags) { return Fd(eventfd(0, EFD_CLOEXEC | flags)); };
  const auto good = [] { return memory_of(kSize, MFD_ALLOW_SEALING, F_SEAL_SHRINK); };
  EXPECT_TRUE(Doorbell::attach(good(), event(EFD_NONBLOCK)).ok());
  EXPECT_FALSE(Doorbell::attach(good(), event(0)).ok());
  EXPECT_FALSE(Doorbell::attach(good(), Fd()).ok());
  EXPECT_FALSE(Doorbell::attach(memory_of(kSize, MFD_ALLOW_SEALING, 0), event(EFD_NONBLOCK)).ok());
  EXPECT_FALSE(Doorbell::attach(plain_file(kSize), event(EFD_NONBLOCK)).ok());
  EXPECT_FALSE(
      Doorbell::attach(memory_of(kSize + 1, MFD_ALLOW_SEALING, F_SEAL_SHRINK), event(EFD_NONBLOCK))
          .ok());
  EXPECT_FALSE(Doorbell::attach(Fd(), event(EFD_NONBLOCK)).ok());
}

TEST(DoorbellTest, TakesEverySlotOnce) {
  Doorbell bell = Doorbell::create().value();
  std::vector<std::uint32_t> slots;
  EXPECT_FALSE(bell.take(slots));
  for (const std::uint32_t slot : {4095U, 0U, 63U, 64U, 64U, 1000U}) bell.ring(slot);
  EXPECT_TRUE(bell.pending());
  EXPECT_TRUE(bell.take(slots));
  EXPECT_EQ(slots, (std::vector<std::uint32_t>{0, 63, 64, 1000, 4095}));
  EXPECT_FALSE(bell.take(slots));
}

bool readable(const Doorbell& bell) {
  std::uint64_t count = 0;
  return read(bell.event_fd(), &count, sizeof count) == sizeof count;
}

TEST(DoorbellTest, WritesTheEventOnlyForASleeper) {
  Doorbell bell = Doorbell::create().value();
  bell.ring(3);
  EXPECT_FALSE(readable(bell));
  EXPECT_FALSE(bell.prepare_sleep());  // a slot is ready
  std::vector<std::uint32_t> slots;
  bell.take(slots);
  ASSERT_TRUE(bell.prepare_sleep());
  bell.ring(3);
  EXPECT_TRUE(readable(bell));
  bell.ring(3);
  EXPECT_FALSE(readable(bell));  // woken once only
  bell.finish_sleep();
  bell.take(slots);
  ASSERT_TRUE(bell.prepare_sleep());
  bell.wake_sleeper();
  EXPECT_TRUE(readable(bell));
  bell.finish_sleep();
  EXPECT_FALSE(bell.pending());
}

TEST(DoorbellTest, WakesWhoSleepsOnEdgesAfterTheEventWasFilled) {
  Doorbell bell = Doorbell::create().value();
  const Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, bell.event_fd(), &event), 0);
  const auto is_woken = [&] { return epoll_wait(set.get(), &event, 1, 0) == 1; };
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  ASSERT_EQ(write(bell.event_fd(), &most, sizeof most), static_cast<ssize_t>(sizeof most));
  EXPECT_TRUE(is_woken());
  EXPECT_FALSE(is_woken());
  ASSERT_TRUE(bell.prepare_sleep());
  bell.wake_sleeper();
  EXPECT_TRUE(is_woken());
}

TEST(DoorbellTest, NothingIsWrittenForAFrameInTheWatchedRing) {
  Doorbell bell = Doorbell::create().value();
  ChannelMemory memory = ChannelMemory::create().value();
  Producer out = memory.producer(0);
  Consumer in = memory.consumer(1);
  std::vector<std::uint32_t> slots;
  alignas(8) std::byte buffer[kMaxFrame];
  std::size_t size = 0;
  const std::byte frame[8] = {};
  bell.watch(5, in);
  EXPECT_FALSE(bell.pending());
  EXPECT_FALSE(bell.take(slots));
  for (int i = 0; i < 3; ++i) {  // no mark: the ring alone makes the slot ready
    ASSERT_TRUE(out.push(frame));
    EXPECT_TRUE(bell.pending());
    EXPECT_TRUE(bell.only_watched());
    EXPECT_TRUE(bell.take(slots));
    EXPECT_EQ(slots, (std::vector<std::uint32_t>{5}));
    ASSERT_EQ(in.pop(buffer, size), Pop::frame);
    EXPECT_FALSE(bell.pending());
    EXPECT_FALSE(bell.only_watched());
  }
  bell.ring(5);  // its slot is marked already
  EXPECT_FALSE(bell.pending());
  bell.ring(6);  // in the same word
  bell.ring(100);
  ASSERT_TRUE(out.push(frame));
  EXPECT_FALSE(bell.only_watched());
  EXPECT_TRUE(bell.take(slots));
  EXPECT_EQ(slots, (std::vector<std::uint32_t>{6, 100, 5}));
  ASSERT_EQ(in.pop(buffer, size), Pop::frame);
  EXPECT_FALSE(bell.take(slots));
  // Before it sleeps the owner clears the watched mark, so that a later write wakes it.
  EXPECT_FALSE(bell.prepare_sleep());
  EXPECT_EQ(bell.watched(), nullptr);
  EXPECT_TRUE(bell.take(slots));
  EXPECT_EQ(slots, (std::vector<std::uint32_t>{5}));
  ASSERT_TRUE(bell.prepare_sleep());
  bell.ring(5);
  EXPECT_TRUE(readable(bell));
  bell.finish_sleep();
}

TEST(DoorbellTest, SleepEndsAtItsTimeout) {
  Doorbell bell = Doorbell::create().value();
  const auto start = std::chrono::steady_clock::now();
  bell.sleep(2ms);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 2ms);
  bell.sleep(-1ms);
  bell.ring(9);
  bell.sleep(1h);  // returns at once: a slot is ready
}

}  // namespace
}  // namespace troupe::ring
