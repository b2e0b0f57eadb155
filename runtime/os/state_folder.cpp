#include "troupe/runtime/os/state_folder.hpp"

#include "troupe/runtime/base/wait.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe::os {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLock = "/lock";

std::string reason() {
  return std::strerror(errno);
}

/// Makes every folder of the path, each for this user alone. Returns whether the last one is there.
bool make_folders(const std::string& path) {
  for (std::size_t at = 1; at <= path.size(); ++at)
    if (at == path.size() || path[at] == '/') (void)mkdir(path.substr(0, at).c_str(), 0700);
  struct stat about{};
  return lstat(path.c_str(), &about) == 0;
}

Error refused(const std::string& path, const std::string& why) {
  return Error(Code::invalid_argument,
               "the folder for logs, " + path + ", " + why +
                   "; or name another one with --state-folder or XDG_STATE_HOME");
}

Result<void> check(const std::string& path) {
  struct stat about{};
  if (lstat(path.c_str(), &about) != 0)
    return Error(Code::out_of_disk, "the folder for logs, " + path + ", cannot be made: " +
                                        reason() + "; name another one with --state-folder");
  if (S_ISLNK(about.st_mode)) return refused(path, "is a link: name the folder itself");
  if (!S_ISDIR(about.st_mode)) return refused(path, "is no folder: remove it");
  if (about.st_uid != geteuid())
    return refused(path, "belongs to user " + std::to_string(about.st_uid) + ", not to user " +
                             std::to_string(geteuid()) + " who starts the cluster: remove it");
  if ((about.st_mode & 077) != 0)
    return refused(path, "is open to others: run 'chmod 700 " + path + "'");
  return {};
}

/// Returns the folders that may serve without --state-folder, the best first.
std::vector<std::string> defaults(const Environment& environment) {
  std::vector<std::string> paths;
  const auto add = [&](const char* variable, const char* below) {
    const std::string folder = environment.text(variable).value_or("");
    if (folder.starts_with('/')) paths.push_back(folder + below);
  };
  add("XDG_STATE_HOME", "/troupe");
  if (paths.empty()) add("HOME", "/.local/state/troupe");
  paths.push_back("/var/tmp/troupe-" + std::to_string(geteuid()));
  return paths;
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unknown;
    const auto size = at->is_regular_file(unknown) ? at->file_size(unknown) : 0;
    if (!unknown) bytes += size;
  }
  return bytes;
}

struct Ended {
  fs::path path;
  timespec changed;
};

/// Returns whether the folder was made for a cluster: its name is that of an id.
bool is_cluster(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Returns the folders of clusters that no launcher has locked, the newest first.
std::vector<Ended> ended_clusters(const std::string& state) {
  std::vector<Ended> found;
  std::error_code error;
  for (fs::directory_iterator at(state, error), end; !error && at != end; at.increment(error)) {
    if (!is_cluster(at->path().filename().string())) continue;
    const std::string lock_path = at->path().string() + kLock;
    const Fd lock(open(lock_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat about{};
    if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0 || fstat(lock.get(), &about) != 0)
      continue;
    found.push_back({at->path(), about.st_mtim});
  }
  std::sort(found.begin(), found.end(), [](const Ended& a, const Ended& b) {
    return std::pair(a.changed.tv_sec, a.changed.tv_nsec) >
           std::pair(b.changed.tv_sec, b.changed.tv_nsec);
  });
  return found;
}

}  // namespace

Result<std::string> open_state_folder(const std::string& given, const Environment& environment) {
  std::string path = given;
  if (path.empty()) {
    for (std::string& one : defaults(environment)) {
      path = std::move(one);
      if (make_folders(path) && access(path.c_str(), W_OK) == 0) break;
    }
  } else {
    path = fs::absolute(path).lexically_normal().string();
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    (void)make_folders(path);
  }
  if (auto good = check(path); !good) return good.error();
  return path;
}

Result<ClusterFolder> ClusterFolder::open(const std::string& state, ClusterId cluster) {
  ClusterFolder folder;
  folder.path_ = state + "/" + cluster.str();
  (void)make_folders(folder.path_);
  const std::string lock = folder.path_ + kLock;
  folder.lock_ = Fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!folder.lock_)
    return Error(Code::out_of_disk, "the file " + lock + " cannot be made: " + reason() +
                                        "; name another folder with --state-folder");
  // Another launcher may look for a moment whether it is in use. Some shared file systems have no
  // locks.
  for (int i = 0; i < 100 && flock(folder.lock_.get(), LOCK_SH | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK) break;
    sleep_for(std::chrono::milliseconds(1));
  }
  (void)futimens(folder.lock_.get(), nullptr);
  return folder;
}

void prune_state(const std::string& state) {
  std::size_t clusters = 0;
  std::uint64_t bytes = 0;
  for (const Ended& ended : ended_clusters(state)) {
    bytes += bytes_in(ended.path);
    if (++clusters <= kKeptClusters && bytes <= kKeptBytes) continue;
    std::error_code error;
    fs::remove_all(ended.path, error);
  }
}

std::uint64_t log_bytes_of_node(const std::string& state, std::uint32_t nodes) {
  struct statvfs about{};
  std::uint64_t most = kLogBytesOfHost;
  if (statvfs(state.c_str(), &about) == 0)
    most = std::min<std::uint64_t>(most, about.f_bavail * about.f_frsize / 10);
  return most / std::max(nodes, 1U);
}

}  // namespace troupe::os
