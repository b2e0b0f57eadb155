#include "troupe/runtime/control/file_store.hpp"

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/internal/journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::control {
namespace {

// The file has a head, two slots and two areas for journals. The head names the area in use. The
// areas are far apart, with a hole between them. A compaction fills the other area and then changes
// one byte of the head, so it is complete or without effect at any death of the process.
constexpr char kMagic[8] = {'t', 'r', 'o', 'u', 'p', 'e', 'S', '1'};
constexpr off_t kSettledAt = 8, kAreaAt = 9, kHeadSize = 10;
constexpr off_t kAreas[2] = {16 * 1024, off_t{1} << 40};
constexpr off_t kAreaSize = off_t{1} << 39;
constexpr off_t kMostJournal = off_t{4} << 30;

Error io_error(const std::string& path, const char* what) {
  return Error(Code::unavailable, path + ": " + what + " failed: " + std::strerror(errno),
               Outcome::unknown);
}

bool write_all(int fd, const void* data, std::size_t size, off_t at) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = pwrite(fd, bytes, size, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

/// Returns how many bytes it read: fewer than `size` only at the end of the file.
std::optional<std::size_t> read_all(int fd, void* data, std::size_t size, off_t at) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n =
        pread(fd, static_cast<char*>(data) + done, size - done, at + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

class FileMedium final : public StoreMedium {
 public:
  FileMedium(std::string path, Fd file, FileStoreOptions options)
      : path_(std::move(path)), file_(std::move(file)), options_(std::move(options)) {}

  Result<void> open() {
    char head[kHeadSize] = {};
    const auto size = read_all(file_.get(), head, sizeof head, 0);
    if (!size) return io_error(path_, "reading");
    if (*size > 0 && std::memcmp(head, kMagic, sizeof kMagic) != 0)
      return Error(Code::invalid_argument, path_ + " is not a store of control");
    settled_ = head[kSettledAt] == 1;
    area_ = head[kAreaAt] == 1 ? 1 : 0;
    if (!settled_) return clear();
    return replay();
  }

  bool is_new() const override { return !settled_; }

  Result<void> settle() override {
    const char yes = 1;
    if (!write_all(file_.get(), &yes, 1, kSettledAt)) return io_error(path_, "writing");
    settled_ = true;
    return {};
  }

  Result<void> write(std::span<const Write> writes) override {
    const std::string record = internal::journal_record(writes);
    if (!write_all(file_.get(), record.data(), record.size(), kAreas[area_] + size_))
      return io_error(path_, "writing");
    size_ += static_cast<off_t>(record.size());
    internal::apply(writes, map_);
    if (compaction_.is_due(static_cast<std::uint64_t>(size_), map_)) return compact();
    return {};
  }

  Result<std::optional<std::string>> get(std::string_view key) override {
    return internal::get(map_, key);
  }

  Result<void> scan(std::string_view prefix, const Visit& visit) override {
    internal::scan(map_, prefix, visit);
    return {};
  }

  std::optional<Slot> read_slot(int index) override {
    Slot slot{};
    const auto size = read_all(file_.get(), slot.data(), slot.size(), slot_at(index));
    if (!size || *size != slot.size()) return std::nullopt;
    return slot;
  }

  Result<void> write_slot(int index, const Slot& slot) override {
    if (!write_all(file_.get(), slot.data(), slot.size(), slot_at(index)))
      return io_error(path_, "writing");
    return {};
  }

  Bytes free_space() override {
    if (options_.free_space) return options_.free_space();
    struct statvfs space{};
    // A memfd's file system has no size of its own: memory is the limit.
    if (fstatvfs(file_.get(), &space) != 0 || space.f_blocks == 0) return Bytes{1ull << 40};
    return Bytes{static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize};
  }
  void use_reserve(bool) override {}
  std::string mark_name() const override { return path_; }
  std::string data_name() const override { return path_; }

 private:
  static off_t slot_at(int index) {
    return static_cast<off_t>(kSlotSize) * (1 + static_cast<off_t>(index));
  }

  /// Makes an empty store of a file in which nothing was ever acknowledged.
  Result<void> clear() {
    if (ftruncate(file_.get(), 0) != 0 || !write_all(file_.get(), kMagic, sizeof kMagic, 0) ||
        ftruncate(file_.get(), kAreas[0]) != 0)
      return io_error(path_, "writing");
    area_ = 0;
    return {};
  }

  Result<void> replay() {
    struct stat info{};
    if (fstat(file_.get(), &info) != 0) return io_error(path_, "reading");
    const off_t from = kAreas[area_];
    off_t end = std::min(info.st_size, from + kAreaSize);
    if (area_ == 0 && info.st_size > kAreas[1]) end = end_of_data(from);
    if (end - from > kMostJournal)
      return Error(Code::invalid_argument, path_ + " is damaged: its journal has no end");
    std::string journal(static_cast<std::size_t>(std::max<off_t>(end - from, 0)), '\0');
    const auto size = read_all(file_.get(), journal.data(), journal.size(), from);
    if (!size) return io_error(path_, "reading");
    journal.resize(*size);
    size_ = static_cast<off_t>(internal::replay(journal, map_));
    return drop(from + size_, from + kAreaSize);  // a torn record must not be read later
  }

  /// Returns where the data of the first area ends, by the hole that follows it.
  off_t end_of_data(off_t from) const {
    const off_t hole = lseek(file_.get(), from, SEEK_HOLE);
    return hole < 0 ? from : std::min(hole, from + kAreaSize);
  }

  Result<void> drop(off_t from, off_t to) {
    if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from) != 0)
      return io_error(path_, "dropping what is old");
    return {};
  }

  Result<void> compact() {
    const std::string record = internal::journal_record(map_);
    const int other = 1 - area_;
    if (auto dropped = drop(kAreas[other], kAreas[other] + kAreaSize); !dropped) return dropped;
    const char name = static_cast<char>(other);
    if (!write_all(file_.get(), record.data(), record.size(), kAreas[other]) ||
        !write_all(file_.get(), &name, 1, kAreaAt))
      return io_error(path_, "writing");
    const off_t old = kAreas[area_];
    area_ = other;
    size_ = static_cast<off_t>(record.size());
    return drop(old, old + kAreaSize);
  }

  std::string path_;
  Fd file_;
  FileStoreOptions options_;
  internal::JournalMap map_;
  internal::CompactionRule compaction_;
  bool settled_ = false;
  int area_ = 0;
  off_t size_ = 0;  ///< of the journal in use
};

}  // namespace

bool is_store_file(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<std::unique_ptr<Store>> open_file_store(const std::string& path, FileStoreOptions options) {
  if (!is_store_file(path))
    return Error(Code::unavailable, path + " is no plain file, or is not there");
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return io_error(path, "opening");
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return Error(Code::unavailable, path + " is held by another control");
  const StoreOptions store = options.store;
  auto medium = std::make_unique<FileMedium>(path, std::move(file), std::move(options));
  if (auto opened = medium->open(); !opened) return opened.error();
  return Store::open(std::move(medium), store);
}

}  // namespace troupe::control
