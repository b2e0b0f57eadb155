/// A piece of a job's log on one node, which answers an Inquire or PeerInquire about logs, and the
/// lines inside it. A line of a log file is "TIME PID o|e NAME TEXT", with tabs between.
///
///     LogBatch batch = decode_log_batch(bytes).value();
///     each_record(batch.text, [&](const LogRecord& record) { … });
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::wire {

inline constexpr std::size_t kMaxLogBatch = 1 << 20;       ///< bytes of lines in one answer
inline constexpr std::size_t kLeastLogBatch = 256 * 1024;  ///< holds each line
inline constexpr std::uint32_t kMaxLogWait = 10'000;       ///< milliseconds that an answer may wait

struct LogBatch {
  /// Offset of the first byte. Above the one asked for: bytes are gone. Below it: the node had
  /// forgotten the job, and its offsets began again at 0.
  std::uint64_t begin = 0;
  bool complete = false;  ///< the job has ended on the node, and nothing follows
  std::string text;       ///< whole lines
  std::uint64_t next() const noexcept { return begin + text.size(); }
};
Blob encode(const LogBatch& batch);
/// Errors: InvalidArgument for bytes that are no batch.
Result<LogBatch> decode_log_batch(BlobView bytes);

struct LogRecord {
  std::int64_t time_unix_ns = 0;
  std::int64_t pid = 0;
  bool is_error = false;  ///< standard error
  std::string_view name;  ///< of the actor's class or the function
  std::string_view text;  ///< without its newline
};
/// Appends the line of a file. Precondition: neither name nor text has a newline, and the name has
/// no tab.
void write_record(const LogRecord& record, std::string& out);
/// Appends what stands before the text.
void write_record_head(const LogRecord& record, std::string& out);
/// Reads a line without its newline; nullopt if it is none. The result points into the line.
std::optional<LogRecord> read_record(std::string_view line);

/// Calls f(record) for each line of the text that is one.
template <class F>
void each_record(std::string_view text, F&& f) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (const auto record = read_record(line)) f(*record);
  }
}

}  // namespace troupe::wire
