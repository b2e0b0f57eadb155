#include "troupe/runtime/os/output_pipes.hpp"

#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/os/launch.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace troupe::os {
namespace {

constexpr int kPipeBytes = 64 * 1024;

/// Returns whether both ends of a new pipe could be had: the reading end first.
bool make_pipe(Fd& reads, Fd& writes) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  reads = make_fd(ends[0]);
  writes = make_fd(ends[1]);
  if (!reads || !writes || fcntl(reads.get(), F_SETFL, O_NONBLOCK) != 0) return false;
  // A user beyond the soft limit of pipe buffers keeps the small pipe that the kernel gave.
  if (fcntl(writes.get(), F_GETPIPE_SZ) > kPipeBytes)
    (void)fcntl(writes.get(), F_SETPIPE_SZ, kPipeBytes);
  return true;
}

void replace(int number, const Fd& by, std::uint64_t only_if) noexcept {
  if (only_if != 0 && pipe_inode(number) != only_if) return;
  while (::dup2(by.get(), number) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<OutputPipes> make_output_pipes() {
  OutputPipes pipes;
  if (make_pipe(pipes.out, pipes.ends.out) && make_pipe(pipes.err, pipes.ends.err)) return pipes;
  return Error(Code::out_of_memory,
               std::string("a worker's output cannot be read: ") + memory_remedy(errno));
}

std::uint64_t pipe_inode(int fd) noexcept {
  struct stat about{};
  return fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode) ? about.st_ino : 0;
}

void take_output(const OutputEnds& ends) noexcept {
  if (!ends) return;
  replace(STDOUT_FILENO, ends.out, ends.instead_of_out);
  replace(STDERR_FILENO, ends.err, ends.instead_of_err);
}

bool is_in_upper_half(int fd) noexcept {
  return fd >= 0 && static_cast<std::uint64_t>(fd) >= file_limit() / 2;
}

}  // namespace troupe::os
