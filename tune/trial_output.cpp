#include "troupe/tune/internal/trial_output.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>
#include <iostream>
#include <utility>

namespace troupe::tune {
namespace {

/// Returns device and number of an open file; zeros when there is none.
std::pair<std::uint64_t, std::uint64_t> identity(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

}  // namespace

OutputPlace output_place(std::string path) {
  const auto out = identity(STDOUT_FILENO), error = identity(STDERR_FILENO);
  return {std::move(path), out.first, out.second, error.first, error.second};
}

TrialOutput::TrialOutput(const OutputPlace& place) {
  if (place.path.empty()) return;
  const bool own_out = identity(STDOUT_FILENO) == std::pair(place.out_device, place.out_file);
  const bool own_error = identity(STDERR_FILENO) == std::pair(place.error_device, place.error_file);
  if (!own_out && !own_error) return;
  const Fd file =
      make_fd(::open(place.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) return;
  std::cout.flush();
  std::fflush(nullptr);
  const auto replace = [&file](int fd) {
    Fd before = make_fd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (before) ::dup2(file.get(), fd);
    return before;
  };
  if (own_out) before_[0] = replace(STDOUT_FILENO);
  if (own_error) before_[1] = replace(STDERR_FILENO);
  // A process that dies loses what stands in a buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
}

TrialOutput::~TrialOutput() {
  std::cout.flush();
  std::fflush(nullptr);
  if (before_[0]) ::dup2(before_[0].get(), STDOUT_FILENO);
  if (before_[1]) ::dup2(before_[1].get(), STDERR_FILENO);
}

}  // namespace troupe::tune
