#include "troupe/runtime/wire/log_batch.hpp"

#include <array>
#include <charconv>
#include <cstring>

namespace troupe::wire {
namespace {

struct Head {
  std::uint64_t begin = 0;
  std::uint64_t complete = 0;  ///< 0 or 1
};

/// Takes the text before the next tab; nullopt if there is no tab.
std::optional<std::string_view> take_field(std::string_view& line) {
  const std::size_t end = line.find('\t');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(end + 1);
  return field;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

void append_number(std::int64_t value, std::string& out) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

}  // namespace

Blob encode(const LogBatch& batch) {
  const Head head{batch.begin, batch.complete ? 1U : 0U};
  Blob bytes(sizeof head + batch.text.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!batch.text.empty())
    std::memcpy(bytes.data() + sizeof head, batch.text.data(), batch.text.size());
  return bytes;
}

Result<LogBatch> decode_log_batch(BlobView bytes) {
  Head head;
  if (bytes.size() < sizeof head || bytes.size() > sizeof head + kMaxLogBatch)
    return Error(Code::invalid_argument, "a piece of a log has no valid size");
  std::memcpy(&head, bytes.data(), sizeof head);
  const BlobView text = bytes.subspan(sizeof head);
  if (head.complete > 1 || head.begin > UINT64_MAX - text.size())
    return Error(Code::invalid_argument, "a piece of a log has no valid head");
  LogBatch batch;
  batch.begin = head.begin;
  batch.complete = head.complete == 1;
  batch.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return batch;
}

void write_record_head(const LogRecord& record, std::string& out) {
  append_number(record.time_unix_ns, out);
  out += '\t';
  append_number(record.pid, out);
  out += record.is_error ? "\te\t" : "\to\t";
  out.append(record.name);
  out += '\t';
}

void write_record(const LogRecord& record, std::string& out) {
  write_record_head(record, out);
  out.append(record.text);
  out += '\n';
}

std::optional<LogRecord> read_record(std::string_view line) {
  const auto time = take_field(line);
  const auto pid = take_field(line);
  const auto stream = take_field(line);
  const auto name = take_field(line);
  if (!time || !pid || !stream || !name) return std::nullopt;
  const auto when = number_in(*time), who = number_in(*pid);
  if (!when || !who || (*stream != "o" && *stream != "e")) return std::nullopt;
  return LogRecord{*when, *who, *stream == "e", *name, line};
}

}  // namespace troupe::wire
