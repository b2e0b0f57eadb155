#include "troupe/runtime/control/folder.hpp"

#include "troupe/runtime/base/wait.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace troupe::control {
namespace {

namespace fs = std::filesystem;

Error io_error(const std::string& what, const std::string& path) {
  const int code = errno;
  return Error(code == ENOSPC ? Code::no_space : Code::unavailable,
               "cannot " + what + " " + path + ": " + std::strerror(code));
}

Result<void> sync_folder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return io_error("sync", path);
  return {};
}

bool exists(const std::string& path) {
  struct stat st{};
  return ::lstat(path.c_str(), &st) == 0;
}

/// Returns the pid that the holder of the lock wrote. The holder writes it right after taking the
/// lock, so this function waits for it up to 0.5 s.
std::string holder_of(int fd) {
  for (int i = 0; i < 25; ++i) {
    char text[32] = {};
    const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
    if (n > 0 && text[n - 1] == '\n') return std::string(text, static_cast<std::size_t>(n - 1));
    sleep_for(std::chrono::milliseconds(20));
  }
  return "unknown";
}

}  // namespace

Result<StoreFolder> StoreFolder::open(const std::string& path, Bytes reserve) {
  StoreFolder folder;
  folder.path_ = path;
  folder.space_ = storage::DiskSpace(path, reserve);
  if (!exists(path)) {
    std::error_code ignored;
    const fs::path parent = fs::absolute(path).parent_path();
    fs::create_directories(parent, ignored);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return io_error("make", path);
    (void)sync_folder(parent.string());
  }
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return io_error("look at", path);
  if (!S_ISDIR(st.st_mode))
    return Error(Code::invalid_argument,
                 path + " is not a folder: give control a folder of its own with --data-folder");
  if (st.st_uid != ::geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error(Code::invalid_argument,
                 path + " belongs to another user or can be written by others: run `chmod 700 " +
                     path + "` as its owner, or give another folder with --data-folder");
  if (auto done = folder.lock(); !done) return done.error();
  if (auto done = folder.examine(); !done) return done.error();
  return folder;
}

Result<void> StoreFolder::lock() {
  const std::string path = path_ + "/lock";
  const bool was_there = exists(path);
  if (!was_there && !fs::is_empty(path_) && !exists(path_ + "/mark"))
    return Error(
        Code::invalid_argument,
        path_ + " holds files that are not control's: give an empty folder with --data-folder");
  lock_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_) return io_error("open", path);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return io_error("lock", path);
    return Error(Code::unavailable, "the store in " + path_ + " is in use by pid " +
                                        holder_of(lock_.get()) +
                                        ": stop that control first (`troupe stop`)");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock_.get(), 0) != 0 ||
      (::pwrite(lock_.get(), pid.data(), pid.size(), 0) < 0 && errno != ENOSPC))
    return io_error("write", path);
  return {};
}

Result<void> StoreFolder::examine() {
  const bool creating = exists(path_ + "/creating");
  const bool mark = exists(mark_path());
  const bool db = exists(db_path());
  if (creating || (!mark && !db)) return prepare_new();
  if (!mark)
    return Error(
        Code::invalid_argument,
        "control's data is damaged: " + mark_path() +
            ": the file is missing (offset 0), so that lost records would go unnoticed; put "
            "it back, or see what can be saved with `troupe doctor --salvage " +
            db_path() + "`");
  return open_mark(false);
}

/// The file `creating` exists from before the first byte until the store is complete. It tells a
/// first start that was killed from a damaged store.
Result<void> StoreFolder::prepare_new() {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && name != "mark" && name != "db" && name != "creating" && name != "reserve")
      return Error(Code::invalid_argument, path_ + " holds files that are not control's (" + name +
                                               "): give an empty folder with --data-folder");
  }
  is_new_ = true;
  const std::string path = path_ + "/creating";
  const Fd creating(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!creating) return io_error("make", path);
  if (auto done = sync_folder(path_); !done) return done;
  std::error_code error;
  fs::remove_all(db_path(), error);
  fs::remove(mark_path(), error);
  return open_mark(true);
}

Result<void> StoreFolder::open_mark(bool create) {
  const std::string path = mark_path();
  mark_ = Fd(::open(path.c_str(),
                    O_RDWR | O_DSYNC | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600));
  if (!mark_) return io_error("open", path);
  if (!create) return {};
  // The slots are written, not only allocated, so that later writes change no metadata.
  const Slot zero{};
  for (int i = 0; i < 2; ++i)
    if (auto done = write_slot(i, zero); !done) return done;
  return {};
}

Result<void> StoreFolder::settle() {
  if (::fsync(mark_.get()) != 0) return io_error("sync", mark_path());
  if (auto done = sync_folder(path_); !done) return done;
  const std::string path = path_ + "/creating";
  if (::unlink(path.c_str()) != 0) return io_error("remove", path);
  if (auto done = sync_folder(path_); !done) return done;
  is_new_ = false;
  use_reserve(false);
  return {};
}

std::optional<Slot> StoreFolder::read_slot(int index) const {
  Slot slot;
  const ssize_t n = ::pread(mark_.get(), slot.data(), kSlotSize, index * off_t{kSlotSize});
  if (n != static_cast<ssize_t>(kSlotSize)) return std::nullopt;
  return slot;
}

Result<void> StoreFolder::write_slot(int index, const Slot& slot) {
  const ssize_t n = ::pwrite(mark_.get(), slot.data(), kSlotSize, index * off_t{kSlotSize});
  if (n == static_cast<ssize_t>(kSlotSize)) return {};
  if (n >= 0) errno = ENOSPC;
  return io_error("write", mark_path());
}

}  // namespace troupe::control
