#include "troupe/objectstore/internal/session_folder.hpp"

#include "troupe/runtime/base/wait.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace troupe::objectstore::internal {
namespace {

constexpr char kPrefix[] = "troupe-";
constexpr char kLock[] = "alive";
constexpr char kGone[] = ".gone";  // suffix of a folder that is being removed
constexpr int kTries = 200;        // a process that sweeps holds the lock for a moment
constexpr std::chrono::milliseconds kPause{5};

Error unfit(const std::string& folder, int error) {
  return Error(Code::invalid_argument,
               "\"" + folder + "\" cannot be a shared spill folder: " +
                   std::error_code(error, std::generic_category()).message());
}

Fd open_folder(int at, const char* name) {
  return Fd(openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

/// Returns whether no other user can write into the folder; else errno has the reason.
bool is_ours_alone(int folder) {
  struct stat info{};
  if (fstat(folder, &info) != 0) return false;
  errno = EPERM;
  return info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

/// Opens the folder, and makes it first if it does not exist.
Fd make_folder(int at, const std::string& name) {
  if (mkdirat(at, name.c_str(), 0700) != 0 && errno != EEXIST) return {};
  return open_folder(at, name.c_str());
}

/// Returns whether the name still leads to the open file `fd`: it may have been removed or replaced
/// since.
bool is_still(int fd, int at, const char* name) {
  struct stat mine{}, there{};
  return fstat(fd, &mine) == 0 && fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/// Removes a cluster's folder if no process holds its lock; `lock` is the open lock file. It
/// renames the folder first, so that a node that joins meanwhile makes a new one.
void remove_if_left(const std::string& path, int lock) {
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) return;
  // Another process may have removed the folder and a third made a new one since `lock` was opened.
  if (!is_still(lock, AT_FDCWD, (path + "/" + kLock).c_str())) return;
  const std::string gone = path + kGone;
  std::error_code error;
  std::filesystem::remove_all(gone, error);
  std::filesystem::rename(path, gone, error);
  if (!error) std::filesystem::remove_all(gone, error);
}

}  // namespace

Result<SessionFolder> SessionFolder::join(const std::string& folder, ClusterId cluster,
                                          NodeId node) {
  SessionFolder joined;
  joined.parent_ = folder;
  const std::string name = kPrefix + cluster.str();
  joined.path_ = folder + "/" + name;
  const Fd parent(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent) return unfit(folder, errno);
  for (int tries = 0; tries < kTries; ++tries) {
    if (tries > 0) sleep_for(kPause);  // another process is removing the folder
    joined.session_ = make_folder(parent.get(), name);
    if (!joined.session_ && errno == ENOENT) continue;
    if (!joined.session_ || !is_ours_alone(joined.session_.get())) return unfit(folder, errno);
    joined.lock_ =
        Fd(openat(joined.session_.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!joined.lock_ && errno == ENOENT) continue;
    if (!joined.lock_) return unfit(folder, errno);
    if (flock(joined.lock_.get(), LOCK_SH | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) continue;
      return unfit(folder, errno);
    }
    if (!is_still(joined.session_.get(), parent.get(), name.c_str())) continue;
    joined.own_ = make_folder(joined.session_.get(), node.str());
    if (!joined.own_) return unfit(folder, errno);
    return joined;
  }
  return unfit(folder, EBUSY);
}

Fd SessionFolder::of(NodeId node) const {
  Fd folder = open_folder(session_.get(), node.str().c_str());
  if (!folder || is_ours_alone(folder.get())) return folder;
  errno = ENOENT;  // another user made it, so it is not the node's
  return {};
}

bool SessionFolder::sweep_one(std::set<std::string>& looked_at) const {
  std::error_code error;
  for (std::filesystem::directory_iterator at(parent_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    constexpr std::size_t kAll = sizeof kPrefix - 1 + 32;
    if (name.rfind(kPrefix, 0) != 0 || name.size() < kAll ||
        !ClusterId::parse(name.substr(sizeof kPrefix - 1, 32)) || at->path() == path_)
      continue;
    if (!looked_at.insert(at->path().string()).second) continue;
    if (name.substr(kAll) == kGone) {  // the process that began to remove it may have died
      std::error_code ignored;
      std::filesystem::remove_all(at->path(), ignored);
      return true;
    }
    if (name.size() != kAll) continue;
    const Fd session = open_folder(AT_FDCWD, at->path().c_str());
    if (!session) continue;
    const Fd lock(openat(session.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (lock) remove_if_left(at->path().string(), lock.get());
    return true;
  }
  return false;
}

void SessionFolder::leave() {
  if (!lock_) return;
  flock(lock_.get(), LOCK_UN);
  remove_if_left(path_, lock_.get());
  lock_.reset();
}

}  // namespace troupe::objectstore::internal
