#include "troupe/objectstore/internal/disk_io.hpp"

#include <sys/statvfs.h>
#include <algorithm>
#include <cerrno>
#include <system_error>

namespace troupe::objectstore::internal {
namespace {

/// Bytes for one system call. Linux takes at most 2 GiB in one call; shorter calls end sooner when
/// the process stops.
constexpr std::uint64_t kPiece = 16u << 20;

}  // namespace

std::string text_of(int error) {
  return std::error_code(error, std::generic_category()).message();
}

bool is_full(int error) noexcept {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

bool leaves_enough(int fd, std::uint64_t bytes, double keep_free) {
  struct statvfs disk{};
  if (keep_free <= 0 || fstatvfs(fd, &disk) != 0) return true;
  const auto unit = static_cast<double>(disk.f_frsize);
  return static_cast<double>(disk.f_bavail) * unit - static_cast<double>(bytes) >=
         keep_free * static_cast<double>(disk.f_blocks) * unit;
}

int write_all(Pwrite pwrite, int fd, const void* from, std::uint64_t size, std::uint64_t offset) {
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t piece = std::min(kPiece, size - done);
    const ssize_t put = pwrite(fd, static_cast<const std::byte*>(from) + done, piece,
                               static_cast<off_t>(offset + done));
    if (put > 0)
      done += static_cast<std::uint64_t>(put);
    else if (put == 0)
      return EIO;
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

int read_all(Pread pread, int fd, void* into, std::uint64_t size, std::uint64_t offset,
             std::uint64_t& done) {
  for (done = 0; done < size;) {
    const std::uint64_t piece = std::min(kPiece, size - done);
    const ssize_t got =
        pread(fd, static_cast<std::byte*>(into) + done, piece, static_cast<off_t>(offset + done));
    if (got > 0)
      done += static_cast<std::uint64_t>(got);
    else if (got == 0)
      return 0;
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

}  // namespace troupe::objectstore::internal
