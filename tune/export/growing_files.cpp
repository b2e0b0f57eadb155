#include "troupe/tune/export/internal/growing_files.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/tune/export/internal/disk_error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>

namespace troupe::tune::internal {
namespace {

Error changed(const std::string& path, const char* how) {
  return Error(Code::invalid_argument, "tune: somebody has " + std::string(how) + " " + path);
}

Result<void> cut(int fd, std::uint64_t length, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return disk_error("examine", path, errno);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < length) return changed(path, "shortened");
  if (size > length && ::ftruncate(fd, static_cast<off_t>(length)) != 0)
    return disk_error("cut", path, errno);
  return {};
}

}  // namespace

Result<void> GrowingFiles::restore(std::map<std::string, std::uint64_t> lengths, bool may_lack) {
  lengths_ = std::move(lengths);
  may_lack_ = may_lack;
  pending_.clear();
  removed_.clear();
  lacking_.clear();
  for (const auto& [file, length] : lengths_) {
    const std::string path = path_of_(file);
    const Fd fd = make_fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd && errno != ENOENT && errno != ENOTDIR) return disk_error("open", path, errno);
    if (!fd && !may_lack) return changed(path, "deleted");
    if (!fd) {
      lacking_.insert(file);
    } else if (auto done = cut(fd.get(), length, path); !done) {
      return done;
    }
  }
  return {};
}

void GrowingFiles::append(const std::string& file, std::string_view bytes) {
  pending_[file] += bytes;
}

void GrowingFiles::remove(const std::string& file) {
  pending_.erase(file);
  lengths_.erase(file);
  lacking_.erase(file);
  removed_.insert(file);
}

/// Writes from the recorded length on. What an earlier life or a failed call left after it goes.
Result<void> GrowingFiles::write(const std::string& file, std::uint64_t at,
                                 std::string_view bytes) {
  const std::string path = path_of_(file);
  const int fresh = at == 0 ? O_CREAT | O_TRUNC : 0;
  if (at == 0) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    if (error) return disk_error("make the folder of", path, error.value());
  }
  const Fd fd = make_fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | fresh, 0644));
  if (!fd && errno == ENOENT && may_lack_) {
    lacking_.insert(file);
    return {};
  }
  if (!fd && errno == ENOENT) return changed(path, "deleted");
  if (!fd) return disk_error("open", path, errno);
  if (auto done = cut(fd.get(), at, path); !done) return done;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return disk_error("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> GrowingFiles::flush() {
  std::map<std::string, std::uint64_t> lengths = lengths_;
  for (const auto& [file, bytes] : pending_) {
    std::uint64_t& length = lengths[file];
    if (lacking_.count(file) == 0)
      if (auto done = write(file, length, bytes); !done) return done;
    length += bytes.size();
  }
  for (const std::string& file : removed_) {
    const std::filesystem::path path = path_of_(file);
    std::error_code error;
    std::filesystem::remove(path, error);
    std::filesystem::remove(path.parent_path(), error);  // unless it has other files
  }
  lengths_ = std::move(lengths);
  pending_.clear();
  removed_.clear();
  return {};
}

}  // namespace troupe::tune::internal
