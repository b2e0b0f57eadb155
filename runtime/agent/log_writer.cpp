#include "troupe/runtime/agent/log_writer.hpp"

#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/wire/log_batch.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace troupe::agent {
namespace {

constexpr std::size_t kOpenFiles = 16;
constexpr std::size_t kWriteAtOnce = 1 << 20;  ///< lines of one job that are written together
constexpr Duration kLastWrites = std::chrono::seconds(1);

std::string reason() {
  return std::strerror(errno);
}

class FolderFiles final : public LogFiles {
 public:
  explicit FolderFiles(std::string folder) : folder_(std::move(folder)) {}

  Result<void> write(const LogStore::File& file, std::uint64_t at,
                     std::string_view bytes) override {
    const int fd = open_file(file, true);
    const auto failed = [&] {
      return Error(Code::out_of_disk, "cannot write " + path(file) + ": " + reason());
    };
    if (fd < 0) return failed();
    const auto begin = static_cast<off_t>(at);
    off_t offset = begin;
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        auto error = failed();
        if (offset != begin) (void)!ftruncate(fd, begin);  // no half of a line stays
        return error;
      }
      offset += n;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<std::string> read(const LogStore::File& file, std::uint64_t at,
                           std::uint64_t bytes) override {
    const int fd = open_file(file, false);
    std::string text(bytes, '\0');
    std::size_t size = 0;
    while (fd >= 0 && size < text.size()) {
      const ssize_t n =
          pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(at + size));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      size += static_cast<std::size_t>(n);
    }
    if (size == 0) return Error(Code::unavailable, "cannot read " + path(file) + ": " + reason());
    text.resize(size);
    return text;
  }

  void remove(const LogStore::File& file) noexcept override {
    open_.erase(file);
    unlink(path(file).c_str());
  }

 private:
  std::string path(const LogStore::File& file) const { return folder_ + "/" + file.name(); }

  /// Returns the descriptor of the file; -1 with errno set if it cannot be opened.
  int open_file(const LogStore::File& file, bool fresh) {
    if (const auto at = open_.find(file); at != open_.end()) return at->second.get();
    const auto try_open = [&] {
      return make_fd(::open(path(file).c_str(),
                            O_RDWR | (fresh ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, 0600));
    };
    Fd fd = try_open();
    if (!fd && fresh && errno == ENOENT) {
      const auto parent = folder_.rfind('/');
      if (parent != std::string::npos) (void)mkdir(folder_.substr(0, parent).c_str(), 0700);
      (void)mkdir(folder_.c_str(), 0700);
      fd = try_open();
    }
    if (!fd) return -1;
    if (open_.size() >= kOpenFiles) open_.erase(open_.begin());
    return open_.emplace(file, std::move(fd)).first->second.get();
  }

  const std::string folder_;
  std::map<LogStore::File, Fd> open_;
};

struct Lost {
  std::uint64_t count = 0;
  std::string why;
};

}  // namespace

std::unique_ptr<LogFiles> log_files_in(std::string folder) {
  return std::make_unique<FolderFiles>(std::move(folder));
}

/// What the thread and the agent's loop share. It outlives the LogWriter while the thread hangs.
struct LogWriter::Shared {
  std::unique_ptr<LogFiles> files;
  std::string node;
  Fd event = make_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  mutable std::mutex mutex;
  std::condition_variable changed, idle;
  // Under the mutex:
  LogStore store;
  std::deque<Lines> lines;
  std::deque<ReadOrder> orders;
  std::vector<Read> reads;
  std::map<std::string, Lost> losses;
  std::map<std::string, std::size_t> waiting;  ///< bytes of each job that are not written
  std::size_t queued = 0;
  bool over = false, ended = false;
  // By the constructing and the destroying thread:
  std::unique_ptr<SignalMaskedThread> thread;

  const std::size_t most_at_once;  ///< bytes of one write

  explicit Shared(LogStore::Limits limits)
      : store(limits), most_at_once(std::min<std::uint64_t>(kWriteAtOnce, limits.total / 8)) {}

  void tell() const {
    const std::uint64_t one = 1;
    (void)!::write(event.get(), &one, sizeof one);
  }

  Lines take_lines();
  void write_out(std::unique_lock<std::mutex>& lock, const Lines& lines);
  void read_out(std::unique_lock<std::mutex>& lock, const ReadOrder& order);
  std::string line_of_loss(const std::string& job) const;
};

LogWriter::LogWriter(std::unique_ptr<LogFiles> files, LogStore::Limits limits, std::string node)
    : shared_(std::make_shared<Shared>(limits)) {
  shared_->files = std::move(files);
  shared_->node = std::move(node);
  if (!shared_->event)
    raise(Error(Code::out_of_memory, "the log of a node has no descriptor left"));
  shared_->thread = std::make_unique<SignalMaskedThread>(
      "troupe-logs", [shared = shared_.get()] { run(*shared); });
}

LogWriter::~LogWriter() {
  std::unique_lock lock(shared_->mutex);
  shared_->over = true;
  shared_->changed.notify_one();
  if (shared_->idle.wait_for(lock, kLastWrites, [this] { return shared_->ended; })) {
    lock.unlock();
    shared_->thread->join();
    return;
  }
  leave_behind(shared_);  // the disk hangs
}

bool LogWriter::has_room() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->queued < kMostQueued;
}

void LogWriter::write(Lines lines) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->queued += lines.bytes.size();
    shared_->waiting[lines.job] += lines.bytes.size();
    shared_->lines.push_back(std::move(lines));
  }
  shared_->changed.notify_one();
}

void LogWriter::lost(const std::string& job, std::uint64_t count, const std::string& why) {
  {
    const std::lock_guard lock(shared_->mutex);
    Lost& loss = shared_->losses[job];
    loss.count += count;
    loss.why = why;
  }
  write({job, "", 0});  // tells as soon as the disk takes it
}

void LogWriter::read(ReadOrder order) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->orders.push_back(std::move(order));
  }
  shared_->changed.notify_one();
}

int LogWriter::fd() const noexcept {
  return shared_->event.get();
}

std::vector<LogWriter::Read> LogWriter::take() {
  std::uint64_t count = 0;
  (void)!::read(shared_->event.get(), &count, sizeof count);
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->reads, {});
}

std::uint64_t LogWriter::end(const std::string& job) const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->store.end(job);
}

bool LogWriter::is_written(const std::string& job) const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->waiting.count(job) == 0;
}

void LogWriter::run(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(
        lock, [&] { return shared.over || !shared.lines.empty() || !shared.orders.empty(); });
    if (!shared.orders.empty()) {
      const ReadOrder order = std::move(shared.orders.front());
      shared.orders.pop_front();
      shared.read_out(lock, order);
    } else if (!shared.lines.empty()) {
      shared.write_out(lock, shared.take_lines());
    } else {
      break;
    }
    shared.tell();
  }
  shared.ended = true;
  shared.idle.notify_all();
}

/// Takes the first lines that wait, and those of the same job right behind them.
LogWriter::Lines LogWriter::Shared::take_lines() {
  Lines taken = std::move(lines.front());
  lines.pop_front();
  while (!lines.empty() && lines.front().job == taken.job &&
         taken.bytes.size() + lines.front().bytes.size() <= most_at_once) {
    taken.bytes += lines.front().bytes;
    taken.count += lines.front().count;
    lines.pop_front();
  }
  return taken;
}

std::string LogWriter::Shared::line_of_loss(const std::string& job) const {
  const auto at = losses.find(job);
  if (at == losses.end()) return {};
  const std::uint64_t count = at->second.count;
  wire::LogRecord record;
  record.time_unix_ns = unix_nanoseconds();
  record.pid = getpid();
  record.is_error = true;
  record.name = "troupe";
  const std::string text = std::to_string(count) + (count == 1 ? " line" : " lines") +
                           " of this job " + (count == 1 ? "is" : "are") + " lost on " + node +
                           ": " + at->second.why;
  record.text = text;
  std::string line;
  wire::write_record(record, line);
  return line;
}

void LogWriter::Shared::write_out(std::unique_lock<std::mutex>& lock, const Lines& taken) {
  const std::size_t size = taken.bytes.size();
  const std::string note = line_of_loss(taken.job);
  const std::string bytes = note + taken.bytes;
  const std::uint64_t told = note.empty() ? 0 : losses.at(taken.job).count;
  LogStore::Plan plan;
  if (!bytes.empty()) plan = store.plan(taken.job, bytes.size());
  lock.unlock();
  for (const LogStore::File& file : plan.remove) files->remove(file);
  const Result<void> done =
      bytes.empty() ? Result<void>() : files->write(plan.file, plan.at, bytes);
  lock.lock();
  if (done) {
    if (!bytes.empty()) store.written(plan.file, bytes.size());
    if (told != 0 && (losses[taken.job].count -= told) == 0) losses.erase(taken.job);
  } else {
    Lost& loss = losses[taken.job];
    loss.count += taken.count;
    loss.why = done.error().message();
  }
  queued -= size;
  const auto at = waiting.find(taken.job);
  if (at != waiting.end() && (at->second -= size) == 0) waiting.erase(at);
}

void LogWriter::Shared::read_out(std::unique_lock<std::mutex>& lock, const ReadOrder& order) {
  Read answer;
  answer.request = order.request;
  answer.offset = std::max(order.offset, store.end(order.job));  // if all of it is gone
  if (const auto place = store.find(order.job, order.offset, order.most)) {
    lock.unlock();
    Result<std::string> text = files->read(place->file, place->at, place->bytes);
    lock.lock();
    if (text) answer.bytes = std::move(*text);
    answer.bytes.resize(answer.bytes.rfind('\n') + 1);  // npos + 1 is 0
    // What cannot be read is passed over, so that a reader comes to what follows.
    answer.offset = place->offset + (answer.bytes.empty() ? place->bytes : 0);
  }
  reads.push_back(std::move(answer));
}

}  // namespace troupe::agent
