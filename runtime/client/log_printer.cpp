#include "troupe/runtime/client/log_printer.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/base/words.hpp"

#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// Numbers of this part, apart from those of other questions of the engine.
constexpr std::uint64_t kFirstRequest = std::uint64_t{1} << 62;
constexpr Duration kListInterval = 1s;  ///< between two looks for new nodes
constexpr Duration kRetry = 1s;         ///< after a refusal
constexpr Duration kLook = 100ms;       ///< between two looks whether the printer is to end
constexpr Duration kOwnLine = 50ms;     ///< how long a line that the driver has begun is waited for

constexpr std::size_t kChunk = 4096;  ///< bytes that a pipe with room takes without a wait
constexpr std::size_t kFileChunk = 64 * 1024;

/// Returns how many bytes are written together.
std::size_t chunk_for(std::FILE* stream) {
  struct stat about{};
  return fstat(fileno(stream), &about) == 0 && S_ISREG(about.st_mode) ? kFileChunk : kChunk;
}

/// Returns whether the driver has written a part of a line that is still in the stream's buffer.
/// Precondition: the caller has locked the stream.
bool is_in_line([[maybe_unused]] std::FILE* stream) {
#ifdef __GLIBC__
  return stream->_IO_write_ptr != stream->_IO_write_base && stream->_IO_write_ptr[-1] != '\n';
#else
  return false;
#endif
}

/// Waits until a write to the stream would not wait: a stopped terminal must not hold up the end of
/// the program. Returns false when `over` is set meanwhile.
bool await_room(std::FILE* stream, const std::atomic<bool>& over) {
  for (;;) {
    pollfd entry{fileno(stream), POLLOUT, 0};
    const bool last = over;  // nobody waits for what follows the end
    const int ready = wait_for({&entry, 1}, last ? Duration::zero() : Duration(kLook));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (last) return false;
  }
}

/// Writes whole lines under the stream's lock, between two lines of the driver. Ends early when
/// `over` is set and there is no room.
void write_lines(std::FILE* stream, std::string_view lines, std::size_t chunk,
                 const std::atomic<bool>& over) {
  const Time until = steady_now() + kOwnLine;
  flockfile(stream);
  while (is_in_line(stream) && steady_now() < until && !over) {
    funlockfile(stream);
    sleep_for(1ms);
    flockfile(stream);
  }
  (void)fflush_unlocked(
      stream);  // the driver's lines, so that a piece below is all that is written
  while (!lines.empty() && await_room(stream, over)) {
    const std::string_view piece = lines.substr(0, chunk);
    (void)fwrite_unlocked(piece.data(), 1, piece.size(), stream);
    (void)fflush_unlocked(stream);
    lines.remove_prefix(piece.size());
  }
  funlockfile(stream);
}

}  // namespace

LogPrinter::Mode LogPrinter::mode_of(const Environment& environment) {
  const auto choice = environment.choice("TROUPE_LOGS", {"prefix", "plain", "off"});
  return static_cast<Mode>(choice.value_or(0));
}

LogPrinter::LogPrinter(Send send, JobId job, Mode mode)
    : send_(std::move(send)), job_(job), mode_(mode), next_request_(kFirstRequest) {
  thread_ = SignalMaskedThread("troupe-printer", [this] { run(); });
}

LogPrinter::~LogPrinter() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LogPrinter::on_log(detail::OnLog take) {
  {
    const std::lock_guard lock(taking_);
    if (const auto* filter = take.target<LogFilter>())
      set_filter(*filter);
    else
      take_ = take ? std::make_shared<const detail::OnLog>(std::move(take)) : nullptr;
    takes_ = take_ != nullptr || filters_ != nullptr;
  }
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

/// Precondition: `taking_` is locked.
void LogPrinter::set_filter(const LogFilter& filter) {
  Filters all = filters_ ? *filters_ : Filters();
  std::erase_if(all, [&filter](const auto& each) { return each.owner == filter.owner; });
  if (filter.takes) all.push_back(filter);
  if (filter.listens != nullptr) *filter.listens = true;
  filters_ = all.empty() ? nullptr : std::make_shared<const Filters>(std::move(all));
}

void LogPrinter::on_nodes(const wire::Nodes& nodes) {
  const std::lock_guard lock(mutex_);
  if (nodes.request < kFirstRequest) return;
  for (const wire::NodeRow& row : nodes.rows) {
    Feed& feed = feeds_[row.id];
    feed.name = row.name;
  }
  if (!nodes.more) listed_ = true;
  changed_.notify_all();
}

void LogPrinter::on_answer(const wire::Answer& answer, BlobView payload) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(feeds_.begin(), feeds_.end(), [&](const auto& one) {
    return one.second.request == answer.request && answer.request != 0;
  });
  if (at == feeds_.end()) return;  // the answer to an earlier question
  Feed& feed = at->second;
  const bool fits = answer.bytes <= wire::kMaxLogBatch + 64 && answer.offset == feed.bytes.size() &&
                    payload.size() <= answer.bytes - answer.offset && !payload.empty();
  if (answer.error || !fits) {
    feed.request = 0;
    feed.bytes.clear();
    feed.again = steady_now() + kRetry;
    feed.is_over = finishing_;
  } else {
    feed.bytes.append(reinterpret_cast<const char*>(payload.data()), payload.size());
    feed.is_whole = feed.bytes.size() == answer.bytes;
    if (!feed.is_whole) return;
    feed.request = 0;
  }
  changed_.notify_all();
}

/// Adds the questions that are due. Returns whether there are any.
bool LogPrinter::ask(Time now, std::vector<wire::NodeMessage>& messages) {
  if (mode_ == Mode::off && !takes_) return false;
  if (now >= next_list_) {
    next_list_ = now + kListInterval;
    messages.emplace_back(wire::ListNodes{++next_request_});
  }
  for (auto& [node, feed] : feeds_) {
    if (feed.request != 0 || feed.is_whole || feed.is_over || now < feed.again) continue;
    wire::Inquire question;
    question.request = feed.request = ++next_request_;
    question.about = wire::Inquire::About::logs;
    question.node = node;
    question.logs.job = job_;
    question.logs.after = feed.after;
    question.logs.most = static_cast<std::uint32_t>(wire::kMaxLogBatch);
    question.logs.wait_ms = wire::kMaxLogWait;
    question.logs.until_complete = feed.asked_at_end = finishing_;
    feed.asked = now;
    feed.bytes.clear();
    messages.emplace_back(question);
  }
  return !messages.empty();
}

void LogPrinter::on_loss() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  changed_.notify_all();
}

bool LogPrinter::is_done() const {
  if (lost_)
    return !prints_ && std::none_of(feeds_.begin(), feeds_.end(),
                                    [](const auto& one) { return one.second.is_whole; });
  if (mode_ == Mode::off && !takes_) return true;
  return listed_ && !prints_ && std::all_of(feeds_.begin(), feeds_.end(), [](const auto& one) {
           return one.second.is_over;
         });
}

void LogPrinter::run() {
  std::unique_lock lock(mutex_);
  while (!over_) step(lock);
}

/// Sends what is due, prints what has come, or waits.
void LogPrinter::step(std::unique_lock<std::mutex>& lock) {
  std::vector<wire::NodeMessage> messages;
  if (ask(steady_now(), messages)) {
    lock.unlock();  // the engine may hold its lock while it passes an answer
    for (const wire::NodeMessage& message : messages) send_(message);
    lock.lock();
    return;
  }
  const auto whole = std::find_if(feeds_.begin(), feeds_.end(),
                                  [](const auto& one) { return one.second.is_whole; });
  if (whole == feeds_.end()) {
    changed_.wait_for(lock, kListInterval);
    return;
  }
  Feed& feed = whole->second;
  const std::string bytes = std::exchange(feed.bytes, {});
  feed.is_whole = false;
  const auto batch = wire::decode_log_batch(
      BlobView(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  if (!batch) {
    feed.again = steady_now() + kRetry;
    changed_.notify_all();
    return;
  }
  const std::uint64_t after = std::exchange(feed.after, batch->next());
  if (batch->begin < after) feed.begins_again = true;
  std::string missing;
  if (!batch->text.empty() && std::exchange(feed.begins_again, false))
    missing = "the node had forgotten this job's lines: some may be missing";
  else if (batch->begin > after)
    missing = std::to_string(batch->begin - after) +
              " bytes of this job's lines are gone: the node keeps the newest only";
  const std::string name = feed.name;
  feed.is_over = feed.asked_at_end && batch->complete;
  if (batch->text.empty()) feed.again = std::max(feed.again, feed.asked + kRetry);
  (void)ask(steady_now(), messages);  // the node reads while this thread prints
  prints_ = true;
  lock.unlock();
  for (const wire::NodeMessage& message : messages) send_(message);
  print(name, *batch, missing);
  lock.lock();
  prints_ = false;
  changed_.notify_all();
}

/// `missing`: what is told before the lines; empty: nothing.
void LogPrinter::print(const std::string& node, const wire::LogBatch& batch,
                       const std::string& missing) {
  LogLine line;
  line.node = node;
  if (!missing.empty()) {
    line.name = "troupe";
    line.is_error = true;
    line.text = missing;
    print(line);
  }
  wire::each_record(batch.text, [&](const wire::LogRecord& record) {
    line.text = record.text;
    line.name = record.name;
    line.pid = record.pid;
    line.is_error = record.is_error;
    line.time_unix_ns = record.time_unix_ns;
    print(line);
  });
  flush();
}

/// Passes the line to the filters, then to the function of on_log(). Returns whether one took it.
bool LogPrinter::pass(LogLine& line) {
  const std::lock_guard lock(taking_);
  const std::shared_ptr<const Filters> filters = filters_;
  static const Filters kNone;
  for (const LogFilter& filter : filters ? *filters : kNone) {
    try {
      if (filter.takes(line)) return true;
    } catch (...) {
      log_line("a filter of the job's lines threw: %s", words_of_current_exception().c_str());
    }
  }
  try {
    const std::shared_ptr<const detail::OnLog> take = take_;
    if (!take) return false;
    (*take)(line);
  } catch (...) {
    log_line("the function of on_log threw: %s", words_of_current_exception().c_str());
  }
  return true;
}

void LogPrinter::print(LogLine& line) {
  if (takes_ && pass(line)) return;
  if (mode_ == Mode::off) return;
  constexpr std::size_t kMostOfPid = 20;
  const std::size_t most =
      line.name.size() + line.node.size() + line.text.size() + kMostOfPid + sizeof "( pid= node=) ";
  if (line.is_error != chunk_is_error_ || chunk_.size() + most > most_of_chunk_) flush();
  chunk_is_error_ = line.is_error;
  if (chunk_.empty()) most_of_chunk_ = chunk_for(chunk_is_error_ ? stderr : stdout);
  if (mode_ == Mode::prefix)
    chunk_.append(1, '(')
        .append(line.name)
        .append(" pid=")
        .append(std::to_string(line.pid))
        .append(" node=")
        .append(line.node)
        .append(") ");
  chunk_.append(line.text).append(1, '\n');
}

/// Writes the lines of the chunk.
void LogPrinter::flush() {
  std::FILE* stream = chunk_is_error_ ? stderr : stdout;
  if (!chunk_.empty() && await_room(stream, over_))
    write_lines(stream, chunk_, most_of_chunk_, over_);
  chunk_.clear();
}

void LogPrinter::finish(bool lost) {
  if (lost) return;
  const Time until = steady_now() + kLastLines;
  std::unique_lock lock(mutex_);
  finishing_ = true;
  listed_ = false;
  next_list_ = {};
  for (auto& [node, feed] : feeds_) {
    feed.request = 0;  // asked again, and answered at the end
    feed.again = {};
  }
  changed_.notify_all();
  while (!is_done() && steady_now() < until) changed_.wait_for(lock, until - steady_now());
}

}  // namespace troupe::client
