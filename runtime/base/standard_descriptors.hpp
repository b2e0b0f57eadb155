/// Keeps descriptors of ours away from stdin, stdout and stderr.
///
/// The kernel gives out the lowest number that is free. A program may be started with one of the
/// standard three closed, or close it later, and goes on to read and write there.
///
///     fill_standard_descriptors();                  // once, before the first descriptor
///     Fd fd = make_fd(socket(AF_UNIX, …));          // each one that user code may run beside
#pragma once

#include "troupe/runtime/base/fd.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>

namespace troupe {

/// Opens /dev/null at each of the standard three that is closed, for this process and its
/// children; those that are open stay as they are. It covers what gets descriptors without
/// make_fd() as well: sockets of ZeroMQ, files of RocksDB, streams.
void fill_standard_descriptors() noexcept;

/// The same descriptor with a number of at least 3, whose close-on-exec flag stays. -1 stays -1;
/// -1 with errno when no other number is left, and then `fd` is closed.
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

/// Owns what a system call has just made.
inline Fd make_fd(int fd) noexcept {
  return Fd(above_standard(fd));
}

}  // namespace troupe
