/// A sequenced-packet unix socket that carries descriptors. An agent sends channels, doorbells and
/// extents over it to a process. Messages without a descriptor go through rings.
///
///     socket.send(frame, {fd1, fd2});
///     Received r = socket.receive(buffer);   // r.kind: packet, empty, closed, starved
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace troupe::os {

inline constexpr std::size_t kMaxPacket = 32 * 1024;
inline constexpr std::size_t kMaxDescriptors = 4;
/// The most packets that wait for a peer. While a process does not read, it may be sent a channel
/// to each of 4,096 other processes, and as many extents.
inline constexpr std::size_t kMaxQueued = 8 * 1024;

struct Received {
  /// starved: this process has no room for the descriptors of the next packet (EMFILE, ENFILE). The
  /// packet stays the next one. Its bytes are in the buffer.
  enum class Kind { packet, empty, closed, starved } kind = Kind::empty;
  std::size_t size = 0;
  std::vector<Fd> descriptors;
};

/// One end of the socket. Not thread-safe; non-blocking. Packets that the kernel cannot take now
/// wait in a bounded queue.
class LocalSocket {
 public:
  LocalSocket() noexcept = default;
  explicit LocalSocket(Fd fd) noexcept : fd_(std::move(fd)) {}
  /// Makes two connected ends; the second may be inherited. Errors: out_of_memory (descriptors).
  static Result<std::pair<Fd, Fd>> pair();

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  /// Sends or queues a packet. The descriptors are borrowed (and duplicated when queued). Returns
  /// false when the peer is gone or kMaxQueued packets wait already; the caller then drops the
  /// peer.
  bool send(BlobView packet, std::span<const int> descriptors);
  /// Sends the waiting packets. Returns false when the peer is gone.
  bool flush();
  bool has_queued() const noexcept { return !queue_.empty(); }
  /// Ends the connection for both ends, even if other processes have a copy of this one. Packets
  /// that were sent still arrive.
  void shut_down() noexcept;
  /// Ends the connection in one direction: the peer reads what was sent, then that it is closed.
  void end_sending() noexcept;
  /// Returns the events that the owner must poll for: POLLIN, and POLLOUT while packets wait.
  /// Without POLLOUT the waiting packets would stay until the peer sends next, which may be never.
  short events() const noexcept;
  Received receive(std::span<std::byte> buffer);
  /// Drops the next packet with its descriptors.
  void skip() noexcept;
  /// Returns whether the peer has ended the connection, even if packets wait.
  bool is_hung_up() const noexcept;

 private:
  struct Queued {
    Blob bytes;
    std::vector<Fd> descriptors;
  };
  enum class Sent { yes, later, gone };
  Sent try_send(BlobView packet, std::span<const int> descriptors);
  Fd fd_;
  std::deque<Queued> queue_;
};

}  // namespace troupe::os
