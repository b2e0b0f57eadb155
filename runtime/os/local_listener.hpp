/// The door of an agent on its own host: an abstract unix socket through which drivers and
/// observers of the same user come in.
///
///     auto door = LocalListener::listen("troupe-…");  poll(door->fd(), POLLIN);
///     while (auto socket = door->accept()) welcome(std::move(*socket));
///     auto mine = knock("troupe-…");               // the other side
///
/// An abstract name has no file and so no permissions: both sides ask the kernel who the other is
/// (SO_PEERCRED) and close at once when it is another user.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::os {

/// The name of a node's door; at most 100 bytes.
std::string door_name(ClusterId cluster, NodeId node);

/// Whom the kernel names at the other end.
struct Visitor {
  Fd socket;  ///< SOCK_SEQPACKET, connected
  pid_t pid = 0;
};

/// Not thread-safe; never blocks.
class LocalListener {
 public:
  /// The next connection at a listening socket, as accept4() gives it: -1 with errno.
  using Accept = int (*)(int listener);
  /// How long the door rests when the kernel can let nobody in.
  static constexpr Duration kRest = std::chrono::milliseconds(100);

  /// Errors: Unavailable when the name is taken; InvalidArgument when it is empty or too long.
  /// `accept`: null for the kernel's.
  static Result<LocalListener> listen(const std::string& name, Accept accept = nullptr);

  int fd() const noexcept { return fd_.get(); }
  /// From when on it is of use to poll: who waits keeps the socket ready while the kernel lacks
  /// memory to let him in.
  Time opens_at() const noexcept { return opens_at_; }
  /// The next one that waits, or nothing. Closed and counted are others than this user, and who
  /// comes while this process has no descriptor left: nobody keeps the door ready for nothing.
  std::optional<Visitor> accept();
  std::uint64_t refused() const noexcept { return refused_; }

 private:
  LocalListener(Fd fd, Accept accept);
  std::optional<Visitor> rest();
  Fd fd_;
  Accept accept_;
  Fd spare_;  ///< given up to close who cannot be let in
  std::uint64_t refused_ = 0;
  Time opens_at_{};
};

/// The life of the process at the other end of a unix socket, as a descriptor that can be read
/// when it has ended; the socket itself also stays open in each fork of that process. The process
/// is who connected, or who made the pair. None: it is of another PID namespace.
Fd life_of_peer(int socket);

/// Goes to a door. Never blocks: a door whose queue is full counts as nobody there. Errors:
/// Unavailable (nobody listens there); InvalidArgument (another user does, or it is no name).
Result<Visitor> knock(const std::string& name);

}  // namespace troupe::os
