#include "troupe/runtime/base/standard_descriptors.hpp"

namespace troupe {

void fill_standard_descriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    // Another thread may have opened a descriptor at that number meanwhile: leave it.
    if (opened >= 0 && opened != fd) ::close(opened);
  }
}

}  // namespace troupe
