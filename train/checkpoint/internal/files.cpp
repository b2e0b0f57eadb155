#include "troupe/train/checkpoint/internal/files.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace troupe::train::internal {

Error failed(const std::string& what, const std::string& path, int number) {
  const Code code = number == ENOSPC || number == EDQUOT ? Code::out_of_disk : Code::unavailable;
  return Error(code, "cannot " + what + " " + path + ": " + std::strerror(number));
}

Result<void> write_all(const Fd& file, BlobView bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n =
        ::write(file.get(), bytes.data(), std::min<std::size_t>(bytes.size(), 1 << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<std::size_t> read_some(const Fd& file, void* to, std::size_t size, std::uint64_t from,
                              const std::string& path) {
  std::size_t have = 0;
  while (have < size) {
    const ssize_t n =
        ::pread(file.get(), static_cast<char*>(to) + have,
                std::min<std::size_t>(size - have, 1 << 30), static_cast<off_t>(from + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", path, errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  return have;
}

Result<void> sync_folder(const std::string& folder) {
  const Fd handle = make_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle || ::fsync(handle.get()) != 0) return failed("sync the folder", folder, errno);
  return {};
}

Result<void> sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return sync_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

Result<OpenFile> open_regular(const std::string& path) {
  OpenFile opened{make_fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)), 0};
  if (!opened.file) return failed("open", path, errno);
  struct stat about{};
  if (::fstat(opened.file.get(), &about) != 0) return failed("look at", path, errno);
  if (!S_ISREG(about.st_mode)) return Error(Code::invalid_argument, path + " is no regular file");
  opened.size = static_cast<std::uint64_t>(about.st_size);
  return opened;
}

Result<std::string> read_text(const std::string& path, std::uint64_t most) {
  const Result<OpenFile> opened = open_regular(path);
  if (!opened) return opened.error();
  if (opened->size > most)
    return Error(Code::invalid_argument, path + " has " + std::to_string(opened->size) +
                                             " bytes, and at most " + std::to_string(most) +
                                             " are read");
  std::string text(static_cast<std::size_t>(opened->size), '\0');
  const Result<std::size_t> have = read_some(opened->file, text.data(), text.size(), 0, path);
  if (!have) return have.error();
  text.resize(*have);
  return text;
}

Result<void> write_text(const std::string& path, const std::string& text) {
  const Fd file =
      make_fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) return failed("create", path, errno);
  if (Result<void> written = write_all(file, std::as_bytes(std::span(text)), path); !written)
    return written;
  if (::fsync(file.get()) != 0) return failed("sync", path, errno);
  return {};
}

}  // namespace troupe::train::internal
