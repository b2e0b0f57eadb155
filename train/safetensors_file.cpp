// Safetensors files on disk: whole reads, atomic writes.
#include "troupe/runtime/base/fd.hpp"
#include "troupe/train/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::train {
namespace {

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

Result<void> sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Fd handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle || ::fsync(handle.get()) != 0) return failed("sync the folder of", path, errno);
  return {};
}

Result<void> write_new(const std::string& path, BlobView bytes) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return failed("create", path, errno);
  if (Result<void> written = write_all(file, bytes, path); !written) return written;
  if (::fsync(file.get()) != 0) return failed("sync", path, errno);
  return {};
}

}  // namespace

Result<void> write_safetensors_file(const std::string& path, std::span<const TensorView> tensors,
                                    const Metadata& metadata) {
  const Blob bytes = write_safetensors(tensors, metadata);
  const std::string temporary = path + ".tmp";
  Result<void> written = write_new(temporary, bytes);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
    written = failed("rename to", path, errno);
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_folder_of(path);
}

Result<SafetensorsFile> read_safetensors_file(const std::string& path, Bytes max_size) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0) return failed("open", path, errno);
  if (!S_ISREG(status.st_mode))
    return Error(Code::unavailable, "cannot read " + path + ": it is not a regular file");
  if (static_cast<std::uint64_t>(status.st_size) > max_size.count)
    return Error(Code::invalid_argument, path + " is larger than the limit of " +
                                             std::to_string(max_size.count) + " bytes");
  Blob bytes(static_cast<std::size_t>(status.st_size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + have,
                             std::min<std::size_t>(bytes.size() - have, 1 << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", path, errno);
    if (n == 0) break;  // it shrank meanwhile: the parser sees a short file
    have += static_cast<std::size_t>(n);
  }
  bytes.resize(have);
  return parse_safetensors(std::move(bytes));
}

}  // namespace troupe::train
