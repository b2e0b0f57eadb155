/// A sequenced-packet unix socket that carries descriptors: how channels, doorbells and extents
/// reach a process. Everything without a descriptor goes through rings.
///
///     socket.send(frame, {fd1, fd2});
///     Received r = socket.receive(buffer);   // r.kind: packet, empty, closed
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
/// Packets that wait for a peer. A process that does not read for a while may be told of a channel
/// to each of 4,096 others meanwhile, and of as many extents.
inline constexpr std::size_t kMaxQueued = 8 * 1024;

struct Received {
  enum class Kind { packet, empty, closed } kind = Kind::empty;
  std::size_t size = 0;
  std::vector<Fd> descriptors;
};

/// One end. Not thread-safe; non-blocking. Packets that the kernel cannot take now wait in a
/// bounded queue.
class LocalSocket {
 public:
  LocalSocket() noexcept = default;
  explicit LocalSocket(Fd fd) noexcept : fd_(std::move(fd)) {}
  /// Two connected ends; the second may be inherited. Errors: out_of_memory (descriptors).
  static Result<std::pair<Fd, Fd>> pair();

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  /// Sends or queues; the descriptors are borrowed (duplicated when queued). False when the peer is
  /// gone or the queue of kMaxQueued packets is full: then the peer is to be dropped.
  bool send(BlobView packet, std::span<const int> descriptors);
  /// Sends what waits; false when the peer is gone.
  bool flush();
  bool has_queued() const noexcept { return !queue_.empty(); }
  /// Ends the connection for both ends, whoever else has a copy of this one. What was sent arrives.
  void shut_down() noexcept;
  /// What its owner polls for: room as well while packets wait for it. Whoever polls for anything
  /// else leaves what waits where it is until the peer speaks next, which may be never.
  short events() const noexcept;
  Received receive(std::span<std::byte> buffer);

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
