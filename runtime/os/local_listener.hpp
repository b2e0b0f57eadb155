/// The local door of an agent: an abstract unix socket to which drivers and observers of the same
/// user and host connect.
///
///     auto door = LocalListener::listen("troupe-…");  poll(door->fd(), POLLIN);
///     while (auto socket = door->accept()) welcome(std::move(*socket));
///     auto mine = knock("troupe-…");               // the other side
///
/// An abstract name has no file and so no permissions. Both sides ask the kernel for the user of
/// the other (SO_PEERCRED) and close at once when it is another user.
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

/// Returns the name of a node's door; at most 100 bytes.
std::string door_name(ClusterId cluster, NodeId node);

/// A connection, and the process that the kernel names at its other end.
struct Visitor {
  Fd socket;  ///< SOCK_SEQPACKET, connected
  pid_t pid = 0;
};

/// Not thread-safe; never blocks.
class LocalListener {
 public:
  /// Accepts a connection at a listening socket, as accept4() does: -1 with errno.
  using Accept = int (*)(int listener);
  /// How long the door accepts nothing after the kernel could not accept a connection.
  static constexpr Duration kRest = std::chrono::milliseconds(100);

  /// Listens at a name. Errors: Unavailable when the name is taken; InvalidArgument when it is
  /// empty or too long. `accept`: null for accept4().
  static Result<LocalListener> listen(const std::string& name, Accept accept = nullptr);

  int fd() const noexcept { return fd_.get(); }
  /// The time from which fd() should be polled again. While the kernel lacks memory to accept a
  /// connection, the waiting connection keeps the socket readable, and polling would spin.
  Time opens_at() const noexcept { return opens_at_; }
  /// Accepts the next waiting connection, if any. It closes and counts connections of other users.
  /// It also closes and counts a connection when this process has no descriptor left, since a
  /// connection that stays in the queue would keep the socket readable.
  std::optional<Visitor> accept();
  std::uint64_t refused() const noexcept { return refused_; }

 private:
  LocalListener(Fd fd, Accept accept);
  std::optional<Visitor> rest();
  Fd fd_;
  Accept accept_;
  Fd spare_;  ///< freed so that a connection can be accepted and closed at the descriptor limit
  std::uint64_t refused_ = 0;
  Time opens_at_{};
};

/// Connects to a door. Never blocks. Errors: Unavailable (no process listens there, or its queue is
/// full); InvalidArgument (another user listens there, or the name is not valid).
Result<Visitor> knock(const std::string& name);

}  // namespace troupe::os
