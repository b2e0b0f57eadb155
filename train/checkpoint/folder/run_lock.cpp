#include "troupe/train/checkpoint/folder/run_lock.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/internal/files.hpp"
#include "troupe/train/internal/reject.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

namespace troupe::train {
namespace {

/// The driver that a lock file names.
struct Holder {
  std::string id, host;
  long process = 0;
};

std::optional<Holder> holder_in(const std::string& path) {
  const Result<std::string> text = internal::read_text(path, 4096);
  if (!text) return std::nullopt;
  const Result<Json> json = Json::parse(*text);
  if (!json) return std::nullopt;
  const Json *id = json->find("id"), *host = json->find("host"), *process = json->find("process");
  if (id == nullptr || host == nullptr || process == nullptr || id->as_text() == nullptr ||
      host->as_text() == nullptr)
    return std::nullopt;
  return Holder{*id->as_text(), *host->as_text(), process->as_whole<long>().value_or(0)};
}

std::string text_of(const std::optional<Holder>& holder) {
  if (!holder) return "another driver";
  return "process " + std::to_string(holder->process) + " on host " + holder->host;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace

RunLock::RunLock(const std::string& folder)
    : folder_(folder), path_(folder + "/" + kLockFile), id_(random_id()) {
  file_ =
      make_fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file_)
    internal::reject("train: run.folder " + folder + " cannot be written: " + std::strerror(errno) +
                     ": give a folder that this program may write");
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    const int number = errno;
    if (number == EWOULDBLOCK)
      internal::reject("train: run.folder " + folder + " is in use by " +
                       text_of(holder_in(path_)) + ": wait until it ends, or give another folder");
    internal::reject("train: run.folder " + folder + " cannot be locked: " + std::strerror(number) +
                     ": give a folder on another file system");
  }
  const std::string text =
      Json{{"host", host_name()}, {"id", id_}, {"process", static_cast<long>(::getpid())}}.dump() +
      "\n";
  const bool written = ::ftruncate(file_.get(), 0) == 0 && ::lseek(file_.get(), 0, SEEK_SET) == 0 &&
                       internal::write_all(file_, std::as_bytes(std::span(text)), path_).ok() &&
                       ::fsync(file_.get()) == 0;
  if (!written)
    internal::reject("train: " + path_ + " cannot be written: " + std::strerror(errno) +
                     ": make room on its disk, or give another folder");
}

void RunLock::check() const {
  const std::optional<Holder> holder = holder_in(path_);
  if (holder && holder->id == id_) return;
  throw Unavailable(Code::unavailable, "train: " + text_of(holder) + " has taken run.folder " +
                                           folder_ +
                                           ", so this run ends: give each run a folder of its own");
}

std::string why_not_shared(const std::string& folder, const std::string& id,
                           const std::string& rank, Duration timeout) {
  constexpr Duration kPause = std::chrono::milliseconds(20);
  const Time deadline = steady_now() + timeout;
  const std::string lock = folder + "/" + kLockFile;
  for (;;) {
    const std::optional<Holder> holder = holder_in(lock);
    if (holder && holder->id == id) break;
    if (steady_now() >= deadline) return "the driver's file " + lock + " is not there";
    std::this_thread::sleep_for(kPause);
  }
  const std::string path = folder + "/.seen." + id + "." + rank;
  const Fd file = make_fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) return "it cannot be written: " + std::string(std::strerror(errno));
  ::unlink(path.c_str());
  return {};
}

}  // namespace troupe::train
