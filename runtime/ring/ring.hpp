/// A byte ring in shared memory with one producer and one consumer, and the memory of a channel,
/// which is two rings. Processes of a node exchange all their frames through rings.
///
///     producer: ring.push(frame) ? bell.ring(line) : queue it;
///     consumer: while (ring.pop(buffer) == Pop::frame) handle(buffer);
///
/// Each frame begins on a cache line. The first word of that line is the *length word*: the frame's
/// length and the number of the lap around the ring. The producer writes it last, and that
/// publishes the frame. A message therefore touches its own cache lines, and rarely a shared
/// counter. Before the producer publishes, the word there belongs to an earlier lap or is zero, so
/// that no reader takes it for a length word of this lap.
///
/// The consumer copies a frame into private memory, checks it there, and then parses it: the peer
/// may change shared memory at any time. Every number read from shared memory is checked against
/// the ring's size. An impossible number closes the channel (Pop::corrupt).
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <atomic>
#include <cstdint>

namespace troupe::ring {

inline constexpr std::size_t kRingBytes = 64 * 1024;
inline constexpr std::size_t kMaxFrame = 16 * 1024;  ///< larger things travel as objects

/// Shared memory of one direction. The producer writes `data` and `starved`; the consumer writes
/// the other fields and resets `starved`.
struct RingPage {
  /// Bytes consumed. The consumer stores it every kTellBytes, or when the producer waits for room.
  alignas(64) std::atomic<std::uint64_t> head;
  std::atomic<std::uint64_t> started;    ///< calls that the consumer has begun to execute
  std::atomic<std::uint64_t> completed;  ///< calls whose reply the consumer has published
  /// Not zero: the producer waits for room and has published this many bytes. The consumer rings
  /// the producer's doorbell once there is room.
  alignas(64) std::atomic<std::uint64_t> starved;
  alignas(64) std::byte data[kRingBytes];
};

/// The consumer's counts of calls, read from its ring. After a death they decide the outcome of
/// each call.
struct Progress {
  std::uint64_t started = 0;
  std::uint64_t completed = 0;
};

class Producer {
 public:
  Producer() noexcept = default;
  explicit Producer(RingPage* page) noexcept : page_(page) {}
  /// Copies the two parts as one frame and publishes it. Returns false when there is no room; the
  /// consumer then rings this side's doorbell once half of the ring is free. A producer that dies
  /// within push() has published nothing. Precondition: at most kMaxFrame bytes together.
  bool push(BlobView head, BlobView body = {}) noexcept;
  /// Returns false when the consumer has stored an impossible `head`: the peer is broken.
  bool sane() const noexcept { return !corrupt_; }
  Progress progress() const noexcept;

 private:
  bool room_for(std::uint64_t bytes) noexcept;
  void copy_in(std::uint64_t at, BlobView bytes) noexcept;
  RingPage* page_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_seen_ = 0;
  bool corrupt_ = false;
};

enum class Pop { empty, frame, corrupt };

class Consumer {
 public:
  Consumer() noexcept = default;
  explicit Consumer(RingPage* page) noexcept : page_(page) {}
  /// Copies the next frame into `buffer` (kMaxFrame bytes), sets its size and frees its room.
  Pop pop(std::byte* buffer, std::size_t& size) noexcept;
  bool empty() const noexcept;
  /// Returns true, once, when the producer waits for room and half of the ring is free. The caller
  /// then rings the producer's doorbell. Call it after every frame.
  bool take_starved() noexcept;
  void count_started(std::uint64_t total) noexcept;
  void count_completed(std::uint64_t total) noexcept;

 private:
  RingPage* page_ = nullptr;
  void tell_head() noexcept;
  std::uint64_t head_ = 0;
  std::uint64_t told_ = 0;  ///< the value of head_ last stored for the producer
  bool corrupt_ = false;
};

/// The mapped memory of a channel: one ring in each direction, for side 0 and side 1.
class ChannelMemory {
 public:
  ChannelMemory() noexcept = default;
  static Result<ChannelMemory> create();
  static Result<ChannelMemory> attach(Fd memory);
  ChannelMemory(ChannelMemory&&) noexcept;
  ChannelMemory& operator=(ChannelMemory&&) noexcept;
  ~ChannelMemory();
  int fd() const noexcept { return memory_.get(); }
  /// Closes the descriptor, which is needed only until the other side has attached.
  void close_fd() noexcept { memory_.reset(); }
  Producer producer(int side) noexcept { return Producer(&pages_[side]); }
  Consumer consumer(int side) noexcept { return Consumer(&pages_[1 - side]); }
  explicit operator bool() const noexcept { return pages_ != nullptr; }

 private:
  Fd memory_;
  RingPage* pages_ = nullptr;
};

}  // namespace troupe::ring
