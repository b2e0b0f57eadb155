#include "troupe/runtime/agent/program_files.hpp"

#include "troupe/runtime/base/units.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::agent {
namespace {

std::string hex(const unsigned char* bytes, unsigned size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string digest_of_text(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  return hex(digest, size);
}

}  // namespace

std::string errno_text() {
  return std::strerror(errno);
}

Result<std::string> digest_of(int fd, const std::string& path) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  Blob buffer(1 << 20);
  off_t offset = 0;
  ssize_t n = 0;
  while ((n = pread(fd, buffer.data(), buffer.size(), offset)) > 0) {
    EVP_DigestUpdate(context, buffer.data(), static_cast<std::size_t>(n));
    offset += n;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context, digest, &size);
  EVP_MD_CTX_free(context);
  if (n < 0) return Error(Code::unavailable, "cannot read " + path + ": " + errno_text());
  return hex(digest, size);
}

Result<Fd> open_regular(const std::string& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0)
    return Error(Code::unavailable, "cannot open " + path + ": " + errno_text());
  if (!S_ISREG(status.st_mode)) return Error(Code::unavailable, path + " is not a plain file");
  return file;
}

bool has_digest(const std::string& path, const std::string& digest) {
  auto file = open_regular(path);
  if (!file) return false;
  const auto found = digest_of(file->get(), path);
  return found && *found == digest;
}

bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string file_name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

Result<void> make_folder(const std::string& path) {
  for (std::size_t at = 1; at <= path.size(); ++at)
    if (at == path.size() || path[at] == '/') mkdir(path.substr(0, at).c_str(), 0700);
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0)
    return Error(Code::out_of_disk, "cannot make the folder " + path + ": " + errno_text());
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 022) != 0)
    return Error(Code::invalid_argument,
                 path + " is not a folder of this user alone: remove it, or set XDG_CACHE_HOME");
  return {};
}

void prune(const std::string& folder, std::uint64_t bytes, const std::set<std::string>& keep) {
  struct File {
    timespec used;
    std::uint64_t size;
    std::string path;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  while (const dirent* entry = readdir(listing)) {
    struct stat status{};
    const std::string path = folder + "/" + entry->d_name;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    files.push_back({status.st_mtim, static_cast<std::uint64_t>(status.st_size), path});
    total += files.back().size;
  }
  closedir(listing);
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const File& file : files) {
    if (total <= bytes) return;
    if (keep.count(file.path) != 0) continue;
    if (unlink(file.path.c_str()) == 0) total -= file.size;
  }
}

Result<std::string> link_libraries(const std::string& cache, const ProgramFiles& files,
                                   const std::vector<std::string>& paths) {
  std::string all;
  std::set<std::string> names;
  for (std::size_t i = 1; i < files.size(); ++i) {
    all += files[i].second + paths[i] + '\n';
    if (!names.insert(file_name_of(files[i].first)).second)
      return Error(Code::invalid_argument,
                   "two shared objects of the program have the name " +
                       file_name_of(files[i].first) +
                       " and cannot both be found by it on a node where they do not lie");
  }
  const std::string folder = cache + "/" + digest_of_text(all) + ".d";
  if (auto made = make_folder(folder); !made) return made.error();
  for (std::size_t i = 1; i < files.size(); ++i) {
    const std::string name = folder + "/" + file_name_of(files[i].first);
    const std::string fresh = name + "." + std::to_string(getpid());
    unlink(fresh.c_str());
    if (symlink(paths[i].c_str(), fresh.c_str()) != 0 || rename(fresh.c_str(), name.c_str()) != 0)
      return Error(Code::out_of_disk, "cannot write " + name + ": " + errno_text());
  }
  return folder;
}

}  // namespace troupe::agent
