#include "troupe/actors/loop_actor/loop_output.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <tuple>
#include <utility>

namespace troupe::loops {
namespace {

constexpr std::array<int, 2> kStreams{STDOUT_FILENO, STDERR_FILENO};

/// Returns device and number of an open file; zeros when there is none.
std::pair<std::uint64_t, std::uint64_t> identity(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

bool is_pipe(int fd) {
  struct stat info{};
  return ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

void flush_all() {
  std::cout.flush();
  std::fflush(nullptr);
}

}  // namespace

OutputPlace output_place(std::string path) {
  OutputPlace place;
  place.path = std::move(path);
  std::tie(place.out_device, place.out_file) = identity(STDOUT_FILENO);
  std::tie(place.error_device, place.error_file) = identity(STDERR_FILENO);
  return place;
}

bool has_printer(int fd) noexcept {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  (void)::flock(fd, LOCK_UN);
  return false;
}

LoopOutput::LoopOutput(const OutputPlace& place) : ends_(place.ends) {
  if (place.path.empty() && ends_.empty()) return;
  const std::array<bool, 2> own{
      identity(STDOUT_FILENO) == std::pair(place.out_device, place.out_file),
      identity(STDERR_FILENO) == std::pair(place.error_device, place.error_file)};
  flush_all();
  for (std::size_t i = 0; i < kStreams.size(); ++i)
    piped_[i] = !own[i] && !ends_.empty() && is_pipe(kStreams[i]);
  write(place.begins);
  if ((!own[0] && !own[1]) || place.path.empty()) return;
  const Fd file =
      make_fd(::open(place.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) return;
  (void)::flock(file.get(), LOCK_SH | LOCK_NB);  // until the last copy of the descriptor is closed
  for (std::size_t i = 0; i < kStreams.size(); ++i) {
    if (!own[i]) continue;
    before_[i] = make_fd(::fcntl(kStreams[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (before_[i]) ::dup2(file.get(), kStreams[i]);
  }
  // A process that dies loses what stands in a buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // Processes of one loop append to the file. A line in pieces would be mixed with theirs.
  static std::array<char, 4096> line;
  if (!before_[1]) return;
  std::setvbuf(stderr, line.data(), _IOLBF, line.size());
  std::cerr << std::nounitbuf;
}

LoopOutput::~LoopOutput() {
  flush_all();
  if (before_[1]) {
    std::cerr << std::unitbuf;
    std::setvbuf(stderr, nullptr, _IONBF, 0);
  }
  write(ends_);
  for (std::size_t i = 0; i < kStreams.size(); ++i)
    if (before_[i]) ::dup2(before_[i].get(), kStreams[i]);
}

/// Writes the line to the pipes, behind all that was printed before.
void LoopOutput::write(const std::string& line) const {
  for (std::size_t i = 0; i < kStreams.size(); ++i) {
    const std::string text = line + '\n';
    std::string_view rest = piped_[i] ? std::string_view(text) : std::string_view();
    while (!rest.empty()) {
      const ssize_t n = ::write(kStreams[i], rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) break;
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  }
}

}  // namespace troupe::loops
