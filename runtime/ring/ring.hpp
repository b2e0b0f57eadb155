/// A byte ring in shared memory with one producer and one consumer, and the channel made of two of
/// them.
///
///     producer: ring.push(frame) ? bell.ring(line) : queue it;
///     consumer: while (ring.pop(buffer) == Pop::frame) handle(buffer);
///
/// A frame begins with a cache line, whose first word, written last, publishes it: the frame's
/// length and the lap around the ring. So a message costs its own lines and no others. What lies
/// there before is of an earlier lap, or cleared by the producer: no reader takes it for a length.
///
/// A frame is copied into private memory, then checked, then parsed: the peer may change shared
/// memory at any time, so nothing is ever parsed in place. Every number read from shared memory is
/// checked against what the ring could hold; one that is not possible closes the channel
/// (Pop::corrupt).
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <atomic>
#include <cstdint>

namespace troupe::ring {

inline constexpr std::size_t kRingBytes = 64 * 1024;
inline constexpr std::size_t kMaxFrame = 16 * 1024;  ///< larger things travel as objects

/// Shared memory of one direction. The producer writes `data` and `starved`, the consumer the rest.
struct RingPage {
  alignas(64) std::atomic<std::uint64_t> head;  ///< bytes consumed, told now and then
  std::atomic<std::uint64_t> started;           ///< calls the consumer began to execute
  std::atomic<std::uint64_t> completed;         ///< calls whose reply it has published
  /// Not zero: the producer waits for room, having published so many bytes; ring its doorbell.
  alignas(64) std::atomic<std::uint64_t> starved;
  alignas(64) std::byte data[kRingBytes];
};

/// What the callee had done when its ring was last looked at; the basis of outcomes after a death.
struct Progress {
  std::uint64_t started = 0;
  std::uint64_t completed = 0;
};

class Producer {
 public:
  Producer() noexcept = default;
  explicit Producer(RingPage* page) noexcept : page_(page) {}
  /// Copies the two parts as one frame and publishes it; false when there is no room (then the
  /// consumer will ring this side's doorbell once half of the ring is free). A producer that dies
  /// in the middle has published nothing. Precondition: at most kMaxFrame bytes together.
  bool push(BlobView head, BlobView body = {}) noexcept;
  /// False when the consumer's counter is not possible: the peer is broken.
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
  /// Moves the next frame into `buffer` (kMaxFrame bytes) and sets its size.
  Pop pop(std::byte* buffer, std::size_t& size) noexcept;
  bool empty() const noexcept;
  /// True, once, when the producer waits for room and half of the ring is free: then ring its
  /// doorbell. To be asked after every frame.
  bool take_starved() noexcept;
  void count_started(std::uint64_t total) noexcept;
  void count_completed(std::uint64_t total) noexcept;

 private:
  RingPage* page_ = nullptr;
  void tell_head() noexcept;
  std::uint64_t head_ = 0;
  std::uint64_t told_ = 0;  ///< what the producer may know of head_
  bool corrupt_ = false;
};

/// The mapped memory of a channel: one ring each way. Side 0 made it, side 1 was invited.
class ChannelMemory {
 public:
  ChannelMemory() noexcept = default;
  static Result<ChannelMemory> create();
  static Result<ChannelMemory> attach(Fd memory);
  ChannelMemory(ChannelMemory&&) noexcept;
  ChannelMemory& operator=(ChannelMemory&&) noexcept;
  ~ChannelMemory();
  int fd() const noexcept { return memory_.get(); }
  /// The descriptor is needed only to invite the other side.
  void close_fd() noexcept { memory_.reset(); }
  Producer producer(int side) noexcept { return Producer(&pages_[side]); }
  Consumer consumer(int side) noexcept { return Consumer(&pages_[1 - side]); }
  explicit operator bool() const noexcept { return pages_ != nullptr; }

 private:
  Fd memory_;
  RingPage* pages_ = nullptr;
};

}  // namespace troupe::ring
