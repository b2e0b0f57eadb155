#include "troupe/objectstore/internal/session_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

namespace troupe::objectstore::internal {
namespace {

constexpr char kPrefix[] = "troupe-";
constexpr char kLock[] = "alive";
constexpr char kGone[] = ".gone";  // what is being removed
constexpr int kTries = 200;        // who sweeps holds a lock for a moment
constexpr std::chrono::milliseconds kPause{5};

Error unfit(const std::string& folder, int error) {
  return Error(Code::invalid_argument,
               "\"" + folder + "\" cannot be a shared spill folder: " +
                   std::error_code(error, std::generic_category()).message());
}

Fd open_folder(int at, const char* name) {
  return Fd(openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

/// Whether nobody else can put anything into it; else the reason is in errno.
bool is_ours_alone(int folder) {
  struct stat info{};
  if (fstat(folder, &info) != 0) return false;
  errno = EPERM;
  return info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

/// Makes it if need be.
Fd make_folder(int at, const std::string& name) {
  if (mkdirat(at, name.c_str(), 0700) != 0 && errno != EEXIST) return {};
  return open_folder(at, name.c_str());
}

/// Whether the descriptor is that of what has the name now.
bool is_still(int fd, int at, const char* name) {
  struct stat mine{}, there{};
  return fstat(fd, &mine) == 0 && fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/// Removes it when nobody holds its lock; `lock`: its file. First it gets another name, so that who
/// joins meanwhile makes a new one.
void remove_if_left(const std::string& path, int lock) {
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) return;
  if (!is_still(lock, AT_FDCWD, (path + "/" + kLock).c_str())) return;  // another one's by now
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
    if (tries > 0) std::this_thread::sleep_for(kPause);  // somebody is about to remove it
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
  errno = ENOENT;  // somebody else put it there
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
    if (name.substr(kAll) == kGone) {  // who began to may have died
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
