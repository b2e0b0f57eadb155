#include "ring_floor.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/ring/doorbell.hpp"
#include "troupe/runtime/ring/ring.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

namespace troupe::bench {
namespace {

constexpr int kRuns = 9;

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

double seconds_since(Time start) {
  return std::chrono::duration<double>(steady_now() - start).count();
}

/// Zeroed memory that is shared with a forked process.
class Shared {
 public:
  explicit Shared(std::size_t bytes)
      : bytes_(bytes),
        at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Shared() { munmap(at_, bytes_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::byte* get() const noexcept { return static_cast<std::byte*>(at_); }

 private:
  std::size_t bytes_;
  void* at_;
};

// --- the floor's ring: a message's number lies beside it, so one transfer of its cache lines
// brings both ---

constexpr std::uint64_t kSlots = 512;
constexpr std::uint64_t kCredit = 64;  // messages between two looks at the other side's progress

struct alignas(128) Slot {
  std::atomic<std::uint64_t> number;  // number of the message in the slot, from 1
  std::byte message[kMessageBytes];
};

struct Lane {
  Slot slots[kSlots];
  alignas(128) std::atomic<std::uint64_t> read;
  alignas(128) std::atomic<std::uint32_t> sleeping;
};

struct Sender {
  Lane* lane;
  int event;
  std::uint64_t sent = 0;

  void send(const std::byte* message) noexcept {
    Slot& slot = lane->slots[sent % kSlots];
    std::memcpy(slot.message, message, kMessageBytes);
    slot.number.store(++sent, std::memory_order_release);
  }
  // Sender and receiver each write one word (number, sleeping), pass a full fence and then read the
  // other's word. At least one of them sees the other's write, so no wake-up is lost.
  void send_and_wake(const std::byte* message) noexcept {
    send(message);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (lane->sleeping.load(std::memory_order_relaxed) == 0) return;
    lane->sleeping.store(0, std::memory_order_relaxed);
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = write(event, &one, sizeof one);
  }
};

struct Receiver {
  Lane* lane;
  int event;
  std::uint64_t received = 0;

  bool ready() const noexcept {
    return lane->slots[received % kSlots].number.load(std::memory_order_acquire) == received + 1;
  }
  void take(std::byte* message) noexcept {
    std::memcpy(message, lane->slots[received % kSlots].message, kMessageBytes);
    ++received;
  }
  void spin(std::byte* message) noexcept {
    while (!ready()) relax();
    take(message);
  }
  void park(std::byte* message) noexcept {
    while (!ready()) {
      lane->sleeping.store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (ready()) break;
      std::uint64_t count = 0;
      [[maybe_unused]] const auto n = read(event, &count, sizeof count);
    }
    take(message);
  }
};

int rounds_of(Waiting waiting, Placement placement) {
  if (waiting == Waiting::spinning) return 50'000;
  return placement == Placement::one_cpu ? 10'000 : 1'000;
}

}  // namespace

struct RoundTrips::Sides {
  Sides(Waiting how, Placement placement)
      : spin(how == Waiting::spinning), echo(cpu_of(placement, 1), [this] { answer(); }) {}

  /// Answers messages. A message whose first byte is kLast is the last one of a slice: the
  /// process sleeps after it.
  [[noreturn]] void answer() {
    std::byte message[kMessageBytes] = {kLast};
    for (;;) {
      std::uint64_t count = 0;
      if (spin && message[0] == kLast)
        while (read(begun.get(), &count, sizeof count) != sizeof count) {
        }
      spin ? there_end.spin(message) : there_end.park(message);
      spin ? back.send(message) : back.send_and_wake(message);
    }
  }
  void trip(const std::byte* out) noexcept {
    std::byte in[kMessageBytes];
    spin ? there.send(out) : there.send_and_wake(out);
    spin ? back_end.spin(in) : back_end.park(in);
  }

  static constexpr std::byte kLast{1};
  const bool spin;
  const Shared memory{2 * sizeof(Lane)};
  Lane* const lanes = reinterpret_cast<Lane*>(memory.get());
  const Fd events[2] = {Fd(eventfd(0, EFD_CLOEXEC)), Fd(eventfd(0, EFD_CLOEXEC))};
  const Fd begun{eventfd(0, EFD_CLOEXEC)};
  Sender there{&lanes[0], events[0].get()};
  Receiver there_end{&lanes[0], events[0].get()};
  Sender back{&lanes[1], events[1].get()};
  Receiver back_end{&lanes[1], events[1].get()};
  const Other echo;
};

RoundTrips::RoundTrips(Waiting waiting, Placement placement)
    : sides_(std::make_unique<Sides>(waiting, placement)) {}
RoundTrips::~RoundTrips() = default;

double RoundTrips::run(int rounds) {
  std::byte message[kMessageBytes] = {};
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = write(sides_->begun.get(), &one, sizeof one);
  for (int i = 0; i < rounds / 4; ++i) sides_->trip(message);
  const Time start = steady_now();
  for (int i = 0; i < rounds; ++i) sides_->trip(message);
  const double each = seconds_since(start) / rounds * 1e6;
  message[0] = Sides::kLast;
  sides_->trip(message);
  return each;
}

Sample ring_round_trip(Waiting waiting, Placement placement) {
  RoundTrips trips(waiting, placement);
  const Pinned here(cpu_of(placement, 0));
  return median_of(kRuns, [&] { return trips.run(rounds_of(waiting, placement)); });
}

Sample ring_one_way() {
  constexpr std::uint64_t kMessages = 2'000'000;
  const Shared memory(sizeof(Lane));
  auto* lane = reinterpret_cast<Lane*>(memory.get());
  Receiver end{lane, -1};
  const Other reader(cpu_of(Placement::two_cpus, 1), [&] {
    std::byte message[kMessageBytes];
    for (;;) {
      end.spin(message);
      if (end.received % kCredit == 0) lane->read.store(end.received, std::memory_order_release);
    }
  });
  const Pinned here(cpu_of(Placement::two_cpus, 0));
  Sender out{lane, -1};
  return median_of(kRuns, [&] {
    std::byte message[kMessageBytes] = {};
    const std::uint64_t goal = out.sent + kMessages / kCredit * kCredit;
    const Time start = steady_now();
    while (out.sent < goal) {
      while (out.sent + kCredit > lane->read.load(std::memory_order_acquire) + kSlots) relax();
      for (std::uint64_t i = 0; i < kCredit; ++i) out.send(message);
    }
    while (lane->read.load(std::memory_order_acquire) < goal) relax();
    return static_cast<double>(kMessages) / seconds_since(start);
  });
}

Sample memcpy_into_shared(int threads) {
  constexpr std::size_t kBytes = std::size_t{128} << 20;
  const Shared to(kBytes);
  const std::vector<std::byte> from(kBytes, std::byte{1});
  const Pinned here(cpu_of(Placement::one_cpu, 0));
  const std::size_t part = kBytes / static_cast<std::size_t>(threads);
  const auto copy = [&](int i) {
    const std::size_t at = part * static_cast<std::size_t>(i);
    std::memcpy(to.get() + at, from.data() + at, part);
  };
  return median_of(kRuns, [&] {
    std::atomic<int> waiting{threads};
    const auto meet = [&waiting] {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) relax();
    };
    std::thread other;
    if (threads == 2)
      other = std::thread([&] {
        const Pinned there(cpu_of(Placement::two_cpus, 1));
        meet();
        copy(1);
      });
    meet();
    const Time start = steady_now();
    copy(0);
    if (other.joinable()) other.join();
    return static_cast<double>(kBytes) / seconds_since(start) / 1e9;
  });
}

WarmMemory::WarmMemory(std::size_t bytes)
    : at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
      bytes_(bytes) {
  if (at_ == MAP_FAILED) throw std::bad_alloc();
  std::memset(at_, 1, bytes);
}

WarmMemory::~WarmMemory() {
  munmap(at_, bytes_);
}

double WarmMemory::copy_rate(const void* from) {
  const Time start = steady_now();
  std::memcpy(at_, from, bytes_);
  return static_cast<double>(bytes_) / seconds_since(start) / 1e9;
}

// --- troupe's ring ---

namespace {

/// A channel, and a doorbell for each side.
struct Ends {
  ring::ChannelMemory memory = ring::ChannelMemory::create().value();
  ring::Doorbell here = ring::Doorbell::create().value();
  ring::Doorbell there = ring::Doorbell::create().value();

  /// Maps the channel in a forked process, which does not inherit the mapping.
  ring::ChannelMemory attach() const {
    return ring::ChannelMemory::attach(Fd(fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0))).value();
  }
};

/// Waits for the next frame as a process of troupe does: it spins or sleeps on its doorbell, and
/// reads the ring.
void receive(ring::Consumer& in, ring::Doorbell& bell, bool spin, std::byte* buffer,
             std::vector<std::uint32_t>& lines) {
  std::size_t size = 0;
  for (;;) {
    const ring::Pop pop = in.pop(buffer, size);
    if (pop == ring::Pop::frame) return;
    if (pop == ring::Pop::corrupt) throw std::runtime_error("a ring of the benchmark is corrupt");
    while (spin && !bell.pending()) relax();
    if (!bell.take(lines)) bell.sleep(std::chrono::seconds(5));
  }
}

}  // namespace

Sample troupe_ring_round_trip(Waiting waiting, Placement placement) {
  Ends ends;
  const bool spin = waiting == Waiting::spinning;
  const Other echo(cpu_of(placement, 1), [&] {
    ring::ChannelMemory mine = ends.attach();
    ring::Producer out = mine.producer(1);
    ring::Consumer in = mine.consumer(1);
    alignas(8) std::byte buffer[ring::kMaxFrame];
    std::vector<std::uint32_t> lines;
    for (;;) {
      receive(in, ends.there, spin, buffer, lines);
      out.push(BlobView(buffer, kMessageBytes));
      ends.here.ring(1);
    }
  });
  const Pinned here(cpu_of(placement, 0));
  ring::Producer out = ends.memory.producer(0);
  ring::Consumer in = ends.memory.consumer(0);
  const int rounds = rounds_of(waiting, placement);
  alignas(8) std::byte buffer[ring::kMaxFrame] = {};
  std::vector<std::uint32_t> lines;
  return median_of(kRuns, [&] {
    const Time start = steady_now();
    for (int i = 0; i < rounds; ++i) {
      out.push(BlobView(buffer, kMessageBytes));
      ends.there.ring(1);
      receive(in, ends.here, spin, buffer, lines);
    }
    return seconds_since(start) / rounds * 1e6;
  });
}

Sample troupe_ring_one_way() {
  constexpr std::uint64_t kMessages = 1'000'000;
  constexpr int kSpins = 500;  // about 20 us, as a worker spins before it sleeps
  Ends ends;
  const Other reader(cpu_of(Placement::two_cpus, 1), [&] {
    ring::ChannelMemory mine = ends.attach();
    ring::Producer out = mine.producer(1);
    ring::Consumer in = mine.consumer(1);
    alignas(8) std::byte buffer[ring::kMaxFrame];
    std::vector<std::uint32_t> lines;
    std::uint64_t received = 0;
    for (std::size_t size = 0;;) {
      while (in.pop(buffer, size) == ring::Pop::frame) {
        if (in.take_starved()) ends.here.ring(1);
        if (++received % kMessages != 0) continue;
        out.push(BlobView(buffer, 8));  // all messages of a run have arrived
        ends.here.ring(1);
      }
      for (int i = 0; i < kSpins && !ends.there.pending(); ++i) relax();
      if (!ends.there.take(lines)) ends.there.sleep(std::chrono::seconds(5));
    }
  });
  const Pinned here(cpu_of(Placement::two_cpus, 0));
  ring::Producer out = ends.memory.producer(0);
  ring::Consumer in = ends.memory.consumer(0);
  alignas(8) std::byte buffer[ring::kMaxFrame] = {};
  std::vector<std::uint32_t> lines;
  return median_of(kRuns, [&] {
    const Time start = steady_now();
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      while (!out.push(BlobView(buffer, kMessageBytes)))
        if (!ends.here.take(lines)) ends.here.sleep(std::chrono::seconds(5));
      ends.there.ring(1);
    }
    receive(in, ends.here, false, buffer, lines);
    return static_cast<double>(kMessages) / seconds_since(start);
  });
}

// --- the codec ---

namespace {

constexpr int kCalls = 100'000;

wire::CallMessage small_call() {
  wire::Call call;
  call.sequence = 7;
  for (std::uint32_t i = 0; i < 2; ++i) {
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    value.payload_offset = 8 * i;
    value.payload_size = 8;
    call.arguments.push_back(std::move(value));
  }
  return call;
}

}  // namespace

Sample call_encode() {
  const Pinned here(cpu_of(Placement::one_cpu, 0));
  const wire::CallMessage message = small_call();
  wire::FrameWriter writer;
  return median_of(kRuns, [&] {
    std::size_t bytes = 0;
    const Time start = steady_now();
    for (int i = 0; i < kCalls; ++i) bytes += writer.encode(message).size();
    if (bytes == 0) throw std::runtime_error("a call was encoded as nothing");
    return seconds_since(start) / kCalls * 1e9;
  });
}

Sample call_decode() {
  const Pinned here(cpu_of(Placement::one_cpu, 0));
  wire::FrameWriter writer;
  const BlobView head = writer.encode(small_call());
  Blob frame(head.begin(), head.end());
  frame.resize(frame.size() + 16);
  return median_of(kRuns, [&] {
    std::size_t good = 0;
    const Time start = steady_now();
    for (int i = 0; i < kCalls; ++i) good += wire::decode_call(frame).ok() ? 1 : 0;
    if (good != kCalls) throw std::runtime_error("a call could not be decoded");
    return seconds_since(start) / kCalls * 1e9;
  });
}

std::vector<Row> ring_rows() {
  std::vector<Row> rows;
  const auto pair = [&rows](const char* name, Placement placement, const char* unit,
                            const Sample& floor, const Sample& ours) {
    rows.push_back(floor_row(name, placement, floor, unit));
    rows.push_back(row(std::string("troupe_") + name, placement, ours, unit, floor.value));
  };
  const auto round_trip = [&pair](const char* name, Waiting waiting, Placement placement) {
    if (possible(placement))
      pair(name, placement, "us", ring_round_trip(waiting, placement),
           troupe_ring_round_trip(waiting, placement));
  };
  round_trip("ring_spinning", Waiting::spinning, Placement::two_cpus);
  round_trip("ring_parked", Waiting::parked, Placement::one_cpu);
  round_trip("ring_parked", Waiting::parked, Placement::two_cpus);
  if (possible(Placement::two_cpus))
    pair("ring_one_way", Placement::two_cpus, "messages/s", ring_one_way(), troupe_ring_one_way());
  rows.push_back(floor_row("memcpy_shared_1", Placement::one_cpu, memcpy_into_shared(1), "GB/s"));
  if (possible(Placement::two_cpus))
    rows.push_back(
        floor_row("memcpy_shared_2", Placement::two_cpus, memcpy_into_shared(2), "GB/s"));
  rows.push_back(row("call_encode", Placement::one_cpu, call_encode(), "ns"));
  rows.push_back(row("call_decode", Placement::one_cpu, call_decode(), "ns"));
  return rows;
}

}  // namespace troupe::bench
