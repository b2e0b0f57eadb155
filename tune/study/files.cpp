#include "troupe/tune/study/internal/files.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace troupe::tune::internal {

std::string words_of(int number) {
  return std::generic_category().message(number);
}

Error failed(const std::string& what, const std::string& path, int number) {
  const Code code = number == ENOSPC || number == EDQUOT ? Code::out_of_disk : Code::unavailable;
  return Error(code, "tune: cannot " + what + " " + path + ": " + words_of(number));
}

bool exists(const std::string& path) {
  struct stat there{};
  return ::lstat(path.c_str(), &there) == 0;
}

Result<std::string> read_file(const std::string& path, std::size_t most) {
  const Fd file = make_fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return failed("open", path, errno);
  std::string text(most + 1, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("read", path, errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  if (have > most)
    return Error(Code::invalid_argument,
                 "tune: " + path + " is longer than " + std::to_string(most) + " bytes");
  text.resize(have);
  return text;
}

Result<void> replace_file(const std::string& path, std::string_view text) {
  const std::string draft = path + ".new";
  const Fd file =
      make_fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return failed("make", draft, errno);
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("write", draft, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(file.get()) != 0) return failed("sync", draft, errno);
  if (::rename(draft.c_str(), path.c_str()) != 0) return failed("rename", draft, errno);
  return {};
}

Result<void> sync_folder(const std::string& folder) {
  const Fd file = make_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) return failed("sync", folder, errno);
  return {};
}

std::string socket_address(const std::string& folder, int handle) {
  std::string path = folder + "/socket";
  if (path.size() < sizeof(sockaddr_un::sun_path)) return path;
  return "/proc/self/fd/" + std::to_string(handle) + "/socket";
}

}  // namespace troupe::tune::internal
