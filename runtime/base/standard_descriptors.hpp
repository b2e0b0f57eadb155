/// Keeps the runtime's descriptors away from the numbers of stdin, stdout and stderr.
///
/// The kernel gives a new descriptor the lowest free number. A program may start with one of the
/// standard three closed, or close it later, and still read and write at that number.
///
///     fill_standard_descriptors();                  // once, before the first descriptor
///     Fd fd = make_fd(socket(AF_UNIX, …));          // each one made while user code may run
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>

namespace troupe {

/// Opens /dev/null at each of the standard three that is closed, for this process and its children.
/// Open ones stay as they are. This also protects descriptors that are made without make_fd():
/// sockets of ZeroMQ, files of RocksDB, streams.
void fill_standard_descriptors() noexcept;

/// Moves the descriptor to a number of at least 3 and keeps its close-on-exec flag. -1 stays -1.
/// Returns -1 with errno set when no other number is left; `fd` is closed then, too.
inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int flags = fcntl(fd, F_GETFD);
  const int moved =
      fcntl(fd, (flags & FD_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, STDERR_FILENO + 1);
  const int why = errno;
  ::close(fd);
  errno = why;
  return moved;
}

/// Takes ownership of a descriptor that a system call has just made.
inline Fd make_fd(int fd) noexcept {
  return Fd(above_standard(fd));
}

}  // namespace troupe
