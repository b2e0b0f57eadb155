#include "troupe/tune/internal/piped_lines.hpp"

#include <algorithm>
#include <charconv>

namespace troupe::tune {
namespace {

constexpr std::size_t kRecord = 64;  ///< bytes that a line takes beside its text
constexpr std::string_view kBegin = "tune: ";
constexpr std::string_view kTrial = "the lines of trial ";
constexpr std::string_view kFollow = " follow";
constexpr std::string_view kNone = "no line of a trial follows";
constexpr std::string_view kComplete = "no line before this one is missing, round ";

/// Returns the trial whose lines follow the mark.
std::optional<int> trial_of(std::string_view mark) {
  if (!mark.starts_with(kTrial) || !mark.ends_with(kFollow)) return std::nullopt;
  mark.remove_prefix(kTrial.size());
  mark.remove_suffix(std::min(kFollow.size(), mark.size()));
  int trial = 0;
  const auto [end, error] = std::from_chars(mark.data(), mark.data() + mark.size(), trial);
  if (error != std::errc() || end != mark.data() + mark.size() || trial < 0) return std::nullopt;
  return trial;
}

}  // namespace

PipedLines::PipedLines(const std::string& token) : end_(" [" + token + "]") {}

std::string PipedLines::begins(int trial) const {
  return std::string(kBegin).append(kTrial) + std::to_string(trial) + std::string(kFollow) + end_;
}
std::string PipedLines::ends() const {
  return std::string(kBegin).append(kNone) + end_;
}
std::string PipedLines::begin_round() {
  const std::lock_guard lock(mutex_);
  complete_.clear();
  return std::string(kBegin).append(kComplete) + std::to_string(++round_) + end_;
}

bool PipedLines::take(const LogLine& line) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || bytes_ < kMostQueued; });
  if (closed_) return line.text.ends_with(end_);  // a late mark is nobody's line
  const auto known = trials_.find({line.node, line.pid, line.is_error});
  if (!line.text.ends_with(end_)) {
    if (known == trials_.end()) return false;
    add(known->second, line.text);
    return true;
  }
  std::string_view text = line.text;
  text.remove_suffix(end_.size());
  const std::size_t begin = text.rfind(kBegin);
  if (begin == std::string_view::npos) return false;
  // A trial that has not ended its last line has written the text before the mark.
  if (begin > 0 && known != trials_.end()) add(known->second, text.substr(0, begin));
  mark(line, text.substr(begin + kBegin.size()));
  return true;
}

void PipedLines::add(int trial, std::string_view text) {
  bytes_ += text.size() + kRecord;
  lines_.emplace_back(trial, text);
}

void PipedLines::mark(const LogLine& line, std::string_view mark) {
  const Stream stream{line.node, line.pid, line.is_error};
  if (const std::optional<int> trial = trial_of(mark)) {
    trials_[stream] = *trial;
  } else if (mark == kNone) {
    trials_.erase(stream);
  } else if (mark.starts_with(kComplete) &&
             mark.substr(kComplete.size()) == std::to_string(round_)) {
    complete_.insert(line.node);
    changed_.notify_all();
  }
}

std::vector<std::pair<int, std::string>> PipedLines::lines() {
  const std::lock_guard lock(mutex_);
  bytes_ = 0;
  changed_.notify_all();
  return std::exchange(lines_, {});
}

bool PipedLines::await_complete(std::size_t nodes, Time until) {
  std::unique_lock lock(mutex_);
  const auto all = [&] { return complete_.size() >= nodes; };
  changed_.wait_for(lock, until - steady_now(),
                    [&] { return closed_ || bytes_ >= kMostQueued || all(); });
  return all();
}

void PipedLines::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace troupe::tune
