// Tests the ring between two processes. One reads what the other writes, whole, whatever happens
// to the writer. A hostile writer cannot make its reader leave the ring's memory.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/ring/doorbell.hpp"
#include "troupe/runtime/ring/ring.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <cstring>
#include <functional>

namespace troupe::ring {
namespace {

using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kFrames = 100'000;
constexpr int kKills = 20;
#else
constexpr std::uint64_t kFrames = 1'000'000;
constexpr int kKills = 60;
#endif
constexpr auto kPatience = 20s;

Fd copy_of(int fd) {
  return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/// A process that runs `body` and ends. It is killed when this object goes.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
    EXPECT_GT(pid_, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill_now();
  }
  void kill_now() {
    kill(pid_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

/// Returns the hash that ends a frame (FNV-1a over the words before it). A torn frame has another
/// hash.
std::uint64_t hash_of(const std::byte* at, std::size_t size) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0x100000001b3ULL;
  }
  for (; size > 0; ++at, --size) hash = (hash ^ static_cast<std::uint64_t>(*at)) * 0x100000001b3ULL;
  return hash;
}

/// The sequence of frames that a seed gives; both sides compute it.
struct Frames {
  explicit Frames(std::uint64_t seed) : random(seed) {
    for (std::byte& b : noise) b = static_cast<std::byte>(random());
  }
  std::size_t next_size() { return 16 + random.below(random.chance(0.1) ? kMaxFrame - 15 : 240); }
  /// Writes frame `n` into `out` and returns its size.
  std::size_t make(std::uint64_t n, std::byte* out) {
    const std::size_t size = next_size();
    std::memcpy(out, noise, size);
    std::memcpy(out, &n, sizeof n);
    const std::uint64_t hash = hash_of(out, size - 8);
    std::memcpy(out + size - 8, &hash, sizeof hash);
    return size;
  }
  bool check(std::uint64_t n, const std::byte* at, std::size_t size) {
    std::uint64_t number = 0, hash = 0;
    if (size != next_size()) return false;
    std::memcpy(&number, at, sizeof number);
    std::memcpy(&hash, at + size - 8, sizeof hash);
    return number == n && hash == hash_of(at, size - 8);
  }
  Random random;
  std::byte noise[kMaxFrame];
};

struct Pair {
  ChannelMemory memory = ChannelMemory::create().value();
  Doorbell reader = Doorbell::create().value();
  Doorbell writer = Doorbell::create().value();

  /// Writes `count` frames of the seed, in the child. Returns 0 when all were taken.
  int write(std::uint64_t seed, std::uint64_t count) {
    // A channel is not inherited by fork: the child attaches, like any peer.
    auto mine = ChannelMemory::attach(copy_of(memory.fd())).value();
    Producer out = mine.producer(0);
    static Frames frames(seed);
    alignas(8) static std::byte frame[kMaxFrame];
    std::vector<std::uint32_t> slots;
    for (std::uint64_t n = 0; n < count; ++n) {
      const std::size_t size = frames.make(n, frame);
      while (!out.push(BlobView(frame, size))) {
        if (!out.sane()) return 2;
        const Time start = steady_now();
        if (!writer.take(slots)) writer.sleep(kPatience);
        if (steady_now() - start >= kPatience) return 3;
      }
      reader.ring(5);
    }
    return 0;
  }
};

TEST(RingProcess, AMillionFramesArriveInOrder) {
  Pair pair;
  Child child([&] { return pair.write(11, kFrames); });
  static Frames frames(11);
  Consumer in = pair.memory.consumer(1);
  Blob buffer(kMaxFrame);
  std::vector<std::uint32_t> slots;
  std::uint64_t received = 0;
  bool good = true, late = false;
  while (good && !late && received < kFrames) {
    std::size_t size = 0;
    while (good && in.pop(buffer.data(), size) == Pop::frame) {
      good = frames.check(received++, buffer.data(), size);
      if (in.take_starved()) pair.writer.ring(0);
    }
    if (pair.reader.take(slots)) continue;
    const Time start = steady_now();
    pair.reader.sleep(kPatience);
    late = steady_now() - start >= kPatience;
  }
  EXPECT_TRUE(good) << "frame " << received - 1;
  EXPECT_FALSE(late) << "a wake-up was lost after " << received;
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RingProcess, AKilledWriterLeavesWholeFramesOnly) {
  Random random(5);
  std::uint64_t total = 0;
  static Frames frames(0);
  for (int round = 0; round < kKills; ++round) {
    const auto seed = 100 + static_cast<std::uint64_t>(round);
    Pair pair;
    Child child([&] { return pair.write(seed, ~std::uint64_t{0}); });
    frames = Frames(seed);
    Consumer in = pair.memory.consumer(1);
    Blob buffer(kMaxFrame);
    std::uint64_t received = 0;
    std::size_t size = 0;
    const auto drain = [&](std::uint64_t limit) {
      Pop pop = Pop::frame;
      while (received < limit && (pop = in.pop(buffer.data(), size)) == Pop::frame) {
        ASSERT_TRUE(frames.check(received++, buffer.data(), size)) << "frame " << received - 1;
        if (in.take_starved()) pair.writer.ring(0);
      }
      ASSERT_NE(pop, Pop::corrupt);
    };
    const std::uint64_t until = 1 + random.below(2'000);
    const Time start = steady_now();
    while (received < until && steady_now() - start < kPatience) {
      drain(until);
      if (HasFatalFailure()) return;
    }
    ASSERT_EQ(received, until);
    child.kill_now();
    drain(~std::uint64_t{0});
    if (HasFatalFailure()) return;
    EXPECT_EQ(in.pop(buffer.data(), size), Pop::empty);
    total += received;
  }
  EXPECT_GT(total, 0u);
}

/// The page of one direction with inaccessible memory after it, so that a read beyond its end
/// faults.
class GuardedPage {
 public:
  GuardedPage() {
    const auto unit = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (sizeof(RingPage) + unit - 1) / unit * unit;
    bytes_ = used + 2 * unit;
    base_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* inside = static_cast<std::byte*>(base_) + unit;
    EXPECT_EQ(
        mmap(inside, used, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        inside);
    page_ = reinterpret_cast<RingPage*>(static_cast<std::byte*>(inside) + used - sizeof(RingPage));
  }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  ~GuardedPage() { munmap(base_, bytes_); }
  RingPage* get() const { return page_; }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  RingPage* page_ = nullptr;
};

/// Writes everywhere for ever: nearly right lengths where frames may begin, and noise.
int attack(RingPage* page, std::uint64_t seed) {
  Random random(seed);
  for (;;) {
    page->starved.store(random.chance(0.5) ? random() : random.below(4 * kRingBytes));
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t lengths[] = {1,     random.below(2'000), kMaxFrame + 1, kMaxFrame + 2,
                                       ~0ULL, 1ULL << 31,          random()};
      const std::uint64_t length = lengths[random.chance(0.9) ? random.below(3) : random.below(7)];
      const std::uint64_t lap = random.chance(0.7) ? 1 : random.below(4);
      const std::uint64_t word = length | lap << 32;
      std::memcpy(page->data + 8 * random.below(kRingBytes / 8), &word, 8);
    }
  }
}

TEST(RingProcess, AHostileWriterIsFoundAndNothingElseIsTouched) {
  GuardedPage page;
  Child child([&] { return attack(page.get(), 1); });
  // A buffer of the exact size on the heap, so that ASan sees one byte too many.
  const std::unique_ptr<std::byte[]> buffer(new std::byte[kMaxFrame]);
  std::uint64_t frames = 0, corrupt = 0;
  const Time start = steady_now();
  const auto seen_enough = [&] { return frames > 1'000 && corrupt > 1'000; };
  while (!seen_enough() && steady_now() - start < kPatience) {
    Consumer victim(page.get());
    for (int i = 0; i < 200; ++i) {
      std::size_t size = 0;
      const Pop pop = victim.pop(buffer.get(), size);
      static_cast<void>(victim.take_starved());
      if (pop == Pop::frame) {
        ASSERT_LE(size, kMaxFrame);
        ++frames;
      } else if (pop == Pop::corrupt) {
        ++corrupt;
        EXPECT_EQ(victim.pop(buffer.get(), size), Pop::corrupt);
        break;
      }
    }
  }
  EXPECT_TRUE(seen_enough()) << frames << " frames, " << corrupt << " times corrupt";
}

TEST(RingProcess, AHostileReaderIsFoundByItsWriter) {
  GuardedPage page;
  Child child([&] {
    Random random(2);
    for (;;) {
      page.get()->head.store(random.chance(0.5) ? random() : random.below(4 * kRingBytes));
      page.get()->starved.store(static_cast<std::uint32_t>(random()));
    }
    return 0;
  });
  const Blob frame(kMaxFrame - 100);
  std::uint64_t broken = 0;
  const Time start = steady_now();
  while (broken <= 100 && steady_now() - start < kPatience) {
    Producer victim(page.get());
    for (int i = 0; i < 50 && victim.sane(); ++i) victim.push(frame);
    broken += victim.sane() ? 0 : 1;
  }
  EXPECT_GT(broken, 100u);
}

}  // namespace
}  // namespace troupe::ring
