#include "troupe/runtime/base/log.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/log_lines.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLastWords = 2s;
constexpr Duration kAtExit = 500ms;
constexpr std::size_t kPiece = 4096;  ///< a pipe with room takes as much without blocking

/// Returns whether the error output takes a piece by then.
bool wait_for_room(Time by) noexcept {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(by - steady_now());
    pollfd entry{STDERR_FILENO, POLLOUT, 0};
    const int n = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n > 0) return (entry.revents & POLLOUT) != 0;
    if (n == 0 || errno != EINTR) return false;
  }
}

/// Writes the text while there is room for it, and waits for room until `by`.
void write_by(std::string_view text, Time by) noexcept {
  while (!text.empty() && wait_for_room(by)) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), std::min(text.size(), kPiece));
    if (n < 0 && errno != EINTR && errno != EAGAIN) return;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Writes the text, however long its reader takes.
void write_whole(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {  // the program has made the descriptor non-blocking
      pollfd entry{STDERR_FILENO, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      return;
    }
  }
}

/// The log of one process. It is never destroyed: other threads may log during exit().
class Log {
 public:
  /// Returns this process's log; nullptr: no memory is left for one.
  static Log* mine() noexcept;
  /// Returns this process's log if it has one already.
  static Log* made() noexcept {
    Log* log = made_.load(std::memory_order_acquire);
    return log != nullptr && log->owner_ == getpid() ? log : nullptr;
  }

  /// `add` queues into the lines.
  template <class Add>
  void add(const Add& add);
  void flush(Duration bound);
  bool last_words(std::string_view text);
  /// Flushes and ends the thread. If it still writes after the bound, it stays until the process
  /// ends.
  void end();

 private:
  static std::atomic<Log*> made_;

  void run();
  bool start();
  void wait_until_written(std::unique_lock<std::mutex>& lock, Duration bound);

  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  LogLines lines_;
  SignalMaskedThread thread_;
  int flushing_ = 0;  ///< threads that wait in flush()
  bool writing_ = false, ending_ = false, left_ = false;
};

std::atomic<Log*> Log::made_{nullptr};

Log* Log::mine() noexcept {
  Log* known = made_.load(std::memory_order_acquire);
  if (known != nullptr && known->owner_ == getpid()) return known;
  // After fork(), the parent's log stays as it is: a thread that is not here may hold its lock.
  auto* fresh = new (std::nothrow) Log;
  if (fresh == nullptr) return nullptr;
  if (made_.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return known;
}

bool Log::start() {
  if (ending_) return false;
  if (thread_.joinable()) return true;
  try {
    thread_ = SignalMaskedThread("troupe-log", [this] { run(); });
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

template <class Add>
void Log::add(const Add& add) {
  const std::lock_guard lock(mutex_);
  add(lines_);
  if (start()) {
    changed_.notify_all();
  } else {
    for (std::string& line : lines_.take(steady_now())) write_by(line += '\n', steady_now());
  }
}

void Log::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::vector<std::string> lines;
    try {
      lines = lines_.take(steady_now(), flushing_ != 0 || ending_);
    } catch (const std::bad_alloc&) {
    }
    if (!lines.empty()) {
      writing_ = true;
      lock.unlock();
      for (std::string& line : lines) write_whole(line += '\n');
      lines.clear();
      lock.lock();
      writing_ = false;
      changed_.notify_all();
    } else if (ending_) {
      left_ = true;
      changed_.notify_all();
      return;
    } else if (const auto due = lines_.due()) {
      changed_.wait_for(lock, std::max<Duration>(*due - steady_now(), 1ms));
    } else {
      changed_.wait(lock);
    }
  }
}

void Log::wait_until_written(std::unique_lock<std::mutex>& lock, Duration bound) {
  changed_.notify_all();
  changed_.wait_for(lock, bound, [this] { return !writing_ && !lines_.due(); });
}

void Log::flush(Duration bound) {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable() || ending_) {
    for (std::string& line : lines_.take(steady_now(), true)) write_by(line += '\n', steady_now());
    return;
  }
  ++flushing_;
  wait_until_written(lock, bound);
  --flushing_;
}

bool Log::last_words(std::string_view text) {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable() || ending_) return false;
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  lines_.add_always(std::string(text));
  ++flushing_;
  wait_until_written(lock, kLastWords);
  --flushing_;
  return true;
}

void Log::end() {
  flush(kAtExit);
  std::unique_lock lock(mutex_);
  ending_ = true;
  if (!thread_.joinable()) return;
  changed_.notify_all();
  const bool over = changed_.wait_for(lock, writing_ ? 0ms : kAtExit, [this] { return left_; });
  lock.unlock();
  if (over) thread_.join();
}

/// Ends the log at exit(), and when a program unloads the library.
struct AtExit {
  ~AtExit() {
    if (Log* log = Log::made()) log->end();
  }
};
const AtExit g_at_exit;

/// A line with its prefix.
struct Line {
  Line(const char* format, va_list arguments) noexcept {
    constexpr char kPrefix[] = "troupe: ";
    constexpr std::size_t kBegin = sizeof kPrefix - 1;
    std::memcpy(text, kPrefix, kBegin);
    const int n = std::vsnprintf(text + kBegin, kMost, format, arguments);
    size = kBegin + std::min(kMost - 1, static_cast<std::size_t>(std::max(n, 0)));
  }
  std::string_view view() const noexcept { return {text, size}; }
  static constexpr std::size_t kMost = 4096;
  char text[kMost + 16];
  std::size_t size = 0;
};

template <class Add>
void add_to_log(const Add& add) noexcept {
  try {
    if (Log* log = Log::mine()) log->add(add);
  } catch (const std::exception&) {  // no memory for the line
  }
}

}  // namespace

void log_line(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  const Line line(format, arguments);
  va_end(arguments);
  add_to_log([&](LogLines& lines) { lines.add(line.view(), steady_now()); });
}

void log_counted(std::string_view group, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  const Line line(format, arguments);
  va_end(arguments);
  add_to_log([&](LogLines& lines) { lines.add_counted(group, line.view(), steady_now()); });
}

void log_line_now(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  Line line(format, arguments);
  va_end(arguments);
  line.text[line.size++] = '\n';
  write_by(line.view(), steady_now());
}

void log_last_words(std::string_view text) noexcept {
  try {
    Log* log = Log::made();
    if (log != nullptr && log->last_words(text)) return;
  } catch (const std::exception&) {  // no memory for the text
  }
  write_by(text, steady_now() + kLastWords);
}

void flush_log(Duration bound) noexcept {
  try {
    if (Log* log = Log::made()) log->flush(bound);
  } catch (const std::exception&) {  // no memory
  }
}

}  // namespace troupe
