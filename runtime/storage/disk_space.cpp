#include "troupe/runtime/storage/disk_space.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace troupe::storage {

Bytes DiskSpace::free() const {
  struct statvfs vfs{};
  if (::statvfs(folder_.c_str(), &vfs) != 0) return {};
  return {static_cast<std::uint64_t>(vfs.f_bavail) * vfs.f_frsize};
}

void DiskSpace::use_reserve(bool use) {
  const std::string path = folder_ + "/reserve";
  if (use) {
    ::unlink(path.c_str());
    return;
  }
  struct stat there{};
  if (reserve_.count == 0 || ::lstat(path.c_str(), &there) == 0) return;
  const Fd fd = make_fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (fd && ::posix_fallocate(fd.get(), 0, static_cast<off_t>(reserve_.count)) != 0)
    ::unlink(path.c_str());
}

}  // namespace troupe::storage
