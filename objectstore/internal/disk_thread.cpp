#include "troupe/objectstore/internal/disk_thread.hpp"

#include "troupe/objectstore/internal/disk_io.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <cerrno>

namespace troupe::objectstore::internal {

int unnamed_file(int folder) noexcept {
  const int flags = O_RDWR | O_CLOEXEC;
  const int fd = openat(folder, ".", flags | O_TMPFILE | O_EXCL, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  // The file system has no O_TMPFILE: make a file with a random name and remove the name at once.
  const std::string name = ".troupe-spill-" + NodeId::random().str();
  const int named = openat(folder, name.c_str(), flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (named >= 0) unlinkat(folder, name.c_str(), 0);
  return named;
}

DiskThread::DiskThread(const SpillOptions& options, std::vector<Fd> folders)
    : pwrite_(options.pwrite != nullptr ? options.pwrite : &::pwrite),
      pread_(options.pread != nullptr ? options.pread : &::pread),
      keep_free_(options.keep_free),
      folders_(std::move(folders)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TROUPE_ASSERT(event_, "no descriptor left for the spill thread");
  thread_ = SignalMaskedThread("troupe-spill", [this] { run(); });
}

DiskThread::~DiskThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DiskThread::post(DiskJob job) {
  {
    const std::lock_guard lock(mutex_);
    (job.kind == DiskJob::Kind::read ? reads_ : others_).push_back(job);
  }
  wake_.notify_one();
}

std::vector<DiskOutcome> DiskThread::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(outcomes_, {});
}

void DiskThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !reads_.empty() || !others_.empty(); });
    if (stop_) return;
    std::deque<DiskJob>& queue = reads_.empty() ? others_ : reads_;
    DiskOutcome outcome;
    outcome.job = queue.front();
    queue.pop_front();
    lock.unlock();
    carry_out(outcome);
    const bool tell =
        outcome.job.kind == DiskJob::Kind::write || outcome.job.kind == DiskJob::Kind::read;
    lock.lock();
    if (!tell) continue;
    outcomes_.push_back(std::move(outcome));
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(event_.get(), &one, sizeof one);
  }
}

void DiskThread::carry_out(DiskOutcome& outcome) {
  switch (outcome.job.kind) {
    case DiskJob::Kind::write: return write(outcome);
    case DiskJob::Kind::read: return read(outcome);
    case DiskJob::Kind::punch: return punch(outcome.job.place);
    case DiskJob::Kind::close: files_.erase(outcome.job.place.file); return;
  }
}

/// Returns the descriptor of the file, which the first use makes.
int DiskThread::file(const SpillPlace& place, int& error) {
  Fd& file = files_[place.file];
  if (!file) file = Fd(unnamed_file(folders_[place.folder].get()));
  error = file ? 0 : errno;
  return file.get();
}

void DiskThread::write(DiskOutcome& outcome) {
  DiskJob& job = outcome.job;
  int error = 0;
  const int fd = file(job.place, error);
  if (error == 0 && !leaves_enough(fd, job.size, keep_free_)) {
    outcome.how = DiskOutcome::How::full;
    outcome.why = "its file system is left as little free space as others are to have";
    return;
  }
  job.checksum = XXH3_64bits(job.from, job.size);
  if (error == 0) error = write_all(pwrite_, fd, job.from, job.size, job.place.offset);
  if (error == 0) return;
  outcome.how = is_full(error) ? DiskOutcome::How::full : DiskOutcome::How::failed;
  outcome.why = text_of(error);
}

void DiskThread::read(DiskOutcome& outcome) {
  const DiskJob& job = outcome.job;
  const auto found = files_.find(job.place.file);
  int error = found == files_.end() || !found->second ? EBADF : 0;
  std::uint64_t done = 0;
  if (error == 0)
    error = read_all(pread_, found->second.get(), job.into, job.size, job.place.offset, done);
  if (error != 0) {
    outcome.how = DiskOutcome::How::failed;
    outcome.why = text_of(error);
  } else if (done < job.size) {
    outcome.how = DiskOutcome::How::damaged;
    outcome.why = "its file ends after " + std::to_string(done) + " of its " +
                  std::to_string(job.size) + " bytes";
  } else if (XXH3_64bits(job.into, job.size) != job.checksum) {
    outcome.how = DiskOutcome::How::damaged;
    outcome.why = "its bytes do not have the checksum that they were written with";
  }
}

/// Gives back the space of an object inside a file. A file system without holes keeps the space
/// until the file is closed.
void DiskThread::punch(const SpillPlace& place) {
  const auto found = files_.find(place.file);
  if (found == files_.end() || !found->second) return;
  (void)fallocate(found->second.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(place.offset), static_cast<off_t>(place.bytes));
}

}  // namespace troupe::objectstore::internal
