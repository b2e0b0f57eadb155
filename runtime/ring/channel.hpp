/// One process's end of a conversation with another: a ring each way, the peer's doorbell, and a
/// bounded queue for what the ring cannot take now.
///
///     channel.send(head, payload);                  // in order, wakes the peer if it sleeps
///     while (channel.receive(buffer, size) == Pop::frame) …
///     channel.flush();                              // when its slot was rung
#pragma once

#include "troupe/runtime/ring/doorbell.hpp"
#include "troupe/runtime/ring/ring.hpp"

#include <deque>
#include <memory>
#include <utility>

namespace troupe::ring {

/// Frames that may wait behind a full ring before send() refuses.
inline constexpr std::size_t kMaxOverflow = 1 << 20;

/// Not thread-safe. The doorbell may be shared by several channels to the same process.
class Channel {
 public:
  Channel() noexcept = default;
  Channel(ChannelMemory memory, int side, std::shared_ptr<Doorbell> peer, std::uint32_t peer_slot)
      : memory_(std::move(memory)),
        out_(memory_.producer(side)),
        in_(memory_.consumer(side)),
        peer_(std::move(peer)),
        peer_slot_(peer_slot) {}

  explicit operator bool() const noexcept { return static_cast<bool>(memory_); }
  int memory_fd() const noexcept { return memory_.fd(); }
  void close_fd() noexcept { memory_.close_fd(); }

  /// Sends now or queues behind what waits; false when the peer broke the ring or kMaxOverflow
  /// frames wait already (nothing was queued).
  bool send(BlobView head, BlobView body = {});
  /// As send(), but a peer that sleeps is not woken. True: it does, so somebody is to nudge it.
  bool post(BlobView head, BlobView body = {});
  /// Sends only if it fits at once, and nothing waits before it.
  bool try_send(BlobView head, BlobView body = {});
  /// Sends what waits; true when nothing waits any more.
  bool flush();
  std::size_t waiting() const noexcept { return overflow_.size(); }
  /// What waits, in order: it is not sent any more.
  std::deque<Blob> take_waiting() noexcept { return std::exchange(overflow_, {}); }
  /// Frames that were sent, those that wait included, and frames that came.
  std::uint64_t sent() const noexcept { return sent_; }
  std::uint64_t received() const noexcept { return received_; }
  /// The next frame into `buffer` of kMaxFrame bytes.
  Pop receive(std::byte* buffer, std::size_t& size) noexcept;
  bool has_input() const noexcept { return !in_.empty(); }
  /// For Doorbell::watch. Stays where it is as long as the channel.
  const Consumer& input() const noexcept { return in_; }
  void count_started(std::uint64_t total) noexcept { in_.count_started(total); }
  void count_completed(std::uint64_t total) noexcept { in_.count_completed(total); }
  /// What the peer says it has done with our frames.
  Progress peer_progress() const noexcept { return out_.progress(); }
  Doorbell& peer_doorbell() noexcept { return *peer_; }

 private:
  ChannelMemory memory_;
  Producer out_;
  Consumer in_;
  std::shared_ptr<Doorbell> peer_;
  std::uint32_t peer_slot_ = 0;
  std::deque<Blob> overflow_;
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace troupe::ring
