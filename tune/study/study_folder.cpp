#include "troupe/tune/study/study_folder.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/tune/study/internal/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::tune {
namespace {

namespace fs = std::filesystem;
using internal::exists;

/// How long an owner waits for readers, which hold the lock for one look.
constexpr Duration kReaders = std::chrono::seconds(2);

Error refused(const std::string& folder, const std::string& why) {
  return Error(Code::invalid_argument, "tune: " + folder + " " + why);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Error in_use(const std::string& folder, const StudyOwner& owner) {
  return Error(Code::unavailable, "tune: the study " + folder + " is in use by pid " +
                                      std::to_string(owner.pid) + " on host " + owner.host +
                                      ": wait until that process ends, or give another folder");
}

/// Refuses a folder that a process on another host owns, since a lock may not reach that far.
Result<void> check_host(const std::string& folder) {
  const auto owner = StudyFolder::owner_of(folder);
  if (!owner || owner->host == host_name()) return {};
  return Error(Code::unavailable, "tune: the study " + folder + " belongs to pid " +
                                      std::to_string(owner->pid) + " on host " + owner->host +
                                      ": run the program there, or remove " + folder +
                                      "/owner if that process has ended");
}

Result<void> make_study_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return {};
  if (error == std::errc::no_space_on_device)
    return Error(Code::out_of_disk, "tune: cannot make the folder " + path + ": no space is left");
  return refused(
      path, "cannot be made (" + error.message() + "): give a folder that this program may write");
}

Result<void> examine(const std::string& path, StudyFolder::Use use) {
  struct stat there{};
  if (::stat(path.c_str(), &there) != 0) {
    if (errno != ENOENT) return refused(path, "cannot be looked at: " + internal::words_of(errno));
    if (use == StudyFolder::Use::read)
      return refused(path, "does not exist: name a study's folder");
    return make_study_folder(path);
  }
  if (!S_ISDIR(there.st_mode))
    return refused(path, "is a file, and a study needs a folder: name another path");
  if (exists(path + "/experiment.jsonl") && !exists(path + "/store"))
    return refused(path,
                   "holds an experiment of version 2 (experiment.jsonl), which cannot go on: give "
                   "the study a new folder");
  if (use == StudyFolder::Use::read) return {};
  if (there.st_uid != ::geteuid())
    return refused(path,
                   "belongs to user " + std::to_string(there.st_uid) +
                       ": run the program as that user, or look at it with `troupe tune show`");
  return {};
}

struct flock whole_file(short type) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

/// The locks that this process holds. A second lock of a file in one process would be granted, and
/// its end would give up the first one.
struct Held {
  pid_t pid = 0;  ///< a fork finds its parent's entries, and holds none of their locks
  bool owned = false;
  int readers = 0;
  Fd file;
};
struct HeldLocks {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, Held> all;
};
HeldLocks& held_locks() {
  static HeldLocks* const locks = new HeldLocks;  // never destroyed: studies may end after it
  return *locks;
}

/// Takes the lock of the file, and waits for readers when it is to be owned. Returns the process
/// that has the lock, or none.
Result<std::optional<pid_t>> holder_after_lock(int file, const std::string& path,
                                               StudyFolder::Use use) {
  const Time until = steady_now() + kReaders;
  const auto type = static_cast<short>(use == StudyFolder::Use::own ? F_WRLCK : F_RDLCK);
  for (;;) {
    struct flock range = whole_file(type);
    if (::fcntl(file, F_SETLK, &range) == 0) return std::optional<pid_t>();
    if (errno != EACCES && errno != EAGAIN) return internal::failed("lock", path, errno);
    range = whole_file(type);
    if (::fcntl(file, F_GETLK, &range) != 0) return internal::failed("lock", path, errno);
    if (range.l_type == F_WRLCK || steady_now() >= until) return std::optional<pid_t>(range.l_pid);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

/// One use of the folder's lock.
class StudyFolder::Lock {
 public:
  static Result<std::unique_ptr<Lock>> take(const std::string& folder, Use use);
  Lock(std::string folder, Use use, std::pair<dev_t, ino_t> key)
      : folder_(std::move(folder)), use_(use), key_(key) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    HeldLocks& locks = held_locks();
    std::unique_lock guard(locks.mutex);
    const auto held = locks.all.find(key_);
    if (held == locks.all.end() || held->second.pid != ::getpid()) return;
    if (use_ == Use::own) {  // a disk that hangs there must not hold up other folders
      guard.unlock();
      ::unlink((folder_ + "/owner").c_str());
      guard.lock();
    }
    if (use_ == Use::own || --held->second.readers == 0) locks.all.erase(held);
  }

 private:
  std::string folder_;
  Use use_;
  std::pair<dev_t, ino_t> key_;
};

Result<std::unique_ptr<StudyFolder::Lock>> StudyFolder::Lock::take(const std::string& folder,
                                                                   Use use) {
  struct stat there{};
  if (::stat(folder.c_str(), &there) != 0)
    return refused(folder, "cannot be looked at: " + internal::words_of(errno));
  const std::pair<dev_t, ino_t> key{there.st_dev, there.st_ino};
  HeldLocks& locks = held_locks();
  const std::lock_guard guard(locks.mutex);
  if (const auto held = locks.all.find(key); held != locks.all.end()) {
    if (held->second.pid != ::getpid()) {
      locks.all.erase(held);
    } else if (use == Use::own || held->second.owned) {
      return Error(Code::unavailable, "tune: the study " + folder +
                                          " is in use by this process (pid " +
                                          std::to_string(::getpid()) + " on host " + host_name() +
                                          "): give each study a folder of its own");
    } else {
      ++held->second.readers;
      return std::make_unique<Lock>(folder, use, key);
    }
  }
  const std::string path = folder + "/lock";
  const int flags = use == Use::own ? O_RDWR | O_CREAT : O_RDONLY;
  Fd file = make_fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!file && errno == ENOSPC) return internal::failed("make", path, errno);
  if (!file)
    return refused(folder, use == Use::read ? "cannot be read (lock: " + internal::words_of(errno) +
                                                  "): name a study's folder that this user may read"
                                            : "cannot be written (" + internal::words_of(errno) +
                                                  "): give a folder that this program may write");
  const auto holder = holder_after_lock(file.get(), path, use);
  if (!holder) return holder.error();
  if (*holder) {
    StudyOwner owner = owner_of(folder).value_or(StudyOwner{host_name(), **holder});
    if (**holder > 0) owner.pid = **holder;
    return in_use(folder, owner);
  }
  if (auto host = check_host(folder); !host) return host.error();
  if (use == Use::own) {
    const Json owner{{"host", host_name()}, {"pid", static_cast<long>(::getpid())}};
    if (auto done = internal::replace_file(folder + "/owner", owner.dump() + "\n"); !done)
      return done.error();
  }
  locks.all[key] = Held{::getpid(), use == Use::own, use == Use::own ? 0 : 1, std::move(file)};
  return std::make_unique<Lock>(folder, use, key);
}

StudyFolder::StudyFolder(std::string path, std::unique_ptr<Lock> lock, Fd handle)
    : path_(std::move(path)), lock_(std::move(lock)), handle_(std::move(handle)) {}
StudyFolder::StudyFolder(StudyFolder&&) noexcept = default;
StudyFolder& StudyFolder::operator=(StudyFolder&&) noexcept = default;
StudyFolder::~StudyFolder() = default;

Result<StudyFolder> StudyFolder::open(const std::string& given, Use use) {
  if (given.empty()) return Error(Code::invalid_argument, "tune: a study needs a folder's path");
  std::error_code error;
  fs::path absolute = fs::absolute(given, error).lexically_normal();
  if (absolute.filename().empty()) absolute = absolute.parent_path();
  const std::string path = absolute.string();
  if (auto done = examine(path, use); !done) return done.error();
  if (use == Use::read && !holds_study(path)) return refused(path, "holds no study");
  auto lock = Lock::take(path, use);
  if (!lock) return lock.error();
  Fd handle = make_fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!handle) return internal::failed("open", path, errno);
  return StudyFolder(path, std::move(*lock), std::move(handle));
}

std::string StudyFolder::socket_address() const {
  return internal::socket_address(path_, handle_.get());
}

bool StudyFolder::holds_study(const std::string& path) {
  return exists(path + "/store");
}

std::optional<StudyOwner> StudyFolder::owner_of(const std::string& path) {
  const Result<std::string> text = internal::read_file(path + "/owner", 4096);
  if (!text) return std::nullopt;
  const Result<Json> json = Json::parse(*text);
  if (!json) return std::nullopt;
  const Json *host = json->find("host"), *pid = json->find("pid");
  if (host == nullptr || pid == nullptr || host->as_text() == nullptr) return std::nullopt;
  return StudyOwner{*host->as_text(), pid->as_whole<long>().value_or(0)};
}

}  // namespace troupe::tune
