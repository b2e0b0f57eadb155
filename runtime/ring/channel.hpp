/// A channel: one process's end of a conversation with another process of its node. It has a ring
/// in each direction, the peer's doorbell, and a bounded queue for frames that the ring has no room
/// for.
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

/// Number of frames that may wait behind a full ring before send() refuses.
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

  /// Sends a frame, or queues it behind the frames that wait. Returns false, without queueing, when
  /// the peer broke the ring or kMaxOverflow frames wait already.
  bool send(BlobView head, BlobView body = {});
  /// Sends as send() does, but does not wake the peer. Returns true when the peer sleeps; the
  /// caller then has to wake the peer.
  bool post(BlobView head, BlobView body = {});
  /// Sends a frame only if it fits into the ring now and no frame waits before it.
  bool try_send(BlobView head, BlobView body = {});
  /// Sends the waiting frames. Returns true when none waits any more.
  bool flush();
  std::size_t waiting() const noexcept { return overflow_.size(); }
  /// Removes and returns the waiting frames, in order. The channel does not send them any more.
  std::deque<Blob> take_waiting() noexcept { return std::exchange(overflow_, {}); }
  /// Numbers of frames sent, the waiting ones included, and of frames received.
  std::uint64_t sent() const noexcept { return sent_; }
  std::uint64_t received() const noexcept { return received_; }
  /// Copies the next frame into `buffer` of kMaxFrame bytes.
  Pop receive(std::byte* buffer, std::size_t& size) noexcept;
  /// The incoming ring, for Doorbell::watch. It has the channel's address and lifetime.
  const Consumer& input() const noexcept { return in_; }
  void count_started(std::uint64_t total) noexcept { in_.count_started(total); }
  void count_completed(std::uint64_t total) noexcept { in_.count_completed(total); }
  /// The peer's counts of the calls that this side sent.
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
