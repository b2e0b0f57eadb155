#include "troupe/tune/internal/piped_lines.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace troupe::tune {
namespace {

constexpr std::size_t kRecord = 64;     ///< bytes that a line takes beside its text
constexpr std::size_t kMostCuts = 256;  ///< streams whose last line may end within a mark
constexpr Duration kLookEvery = std::chrono::seconds(1);
constexpr int kNobody = -1;  ///< the trial of a line that lines() leaves out
constexpr std::string_view kBegin = "tune: ";
constexpr std::string_view kTrial = "the lines of trial ";
constexpr std::string_view kFollow = " follow";
constexpr std::string_view kNone = "no line of a trial follows";
constexpr std::string_view kComplete = "no line before this one is missing, round ";
constexpr std::size_t kMostDigits = std::numeric_limits<std::uint64_t>::digits10 + 1;

/// Reads a number that is all of the text, up to `most`.
std::optional<std::uint64_t> number_of(std::string_view text, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number > most)
    return std::nullopt;
  return number;
}

/// Returns what stands between the two texts, which are all of `text` with it.
std::optional<std::string_view> between(std::string_view before, std::string_view text,
                                        std::string_view after) {
  if (text.size() < before.size() + after.size() || !text.starts_with(before) ||
      !text.ends_with(after))
    return std::nullopt;
  return text.substr(before.size(), text.size() - before.size() - after.size());
}

/// Returns whether the text is the begin of `before`, digits and `after`.
bool is_begin_of(std::string_view text, std::string_view before, std::string_view after) {
  if (text.size() <= before.size()) return before.starts_with(text);
  if (!text.starts_with(before)) return false;
  text.remove_prefix(before.size());
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits <= kMostDigits && after.starts_with(text.substr(digits));
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

/// Returns the mark at the line's end.
std::optional<PipedLines::Mark> PipedLines::mark_of(std::string_view line) const {
  if (!line.ends_with(end_)) return std::nullopt;
  line.remove_suffix(end_.size());
  const std::size_t at = line.rfind(kBegin);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + kBegin.size());
  constexpr auto kMostTrial = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  if (line == kNone) return Mark{Mark::Kind::ends, 0, at};
  if (const auto digits = between(kTrial, line, kFollow))
    if (const auto trial = number_of(*digits, kMostTrial))
      return Mark{Mark::Kind::begins, *trial, at};
  if (const auto digits = between(kComplete, line, ""))
    if (const auto round = number_of(*digits, std::numeric_limits<std::uint64_t>::max()))
      return Mark{Mark::Kind::complete, *round, at};
  return std::nullopt;
}

/// Returns how many bytes at the line's end may be the begin of a mark.
std::size_t PipedLines::cut_of(std::string_view line) const {
  const std::size_t at = line.rfind(kBegin);
  if (at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + kBegin.size());
    if (is_begin_of(rest, kTrial, std::string(kFollow) + end_) ||
        is_begin_of(rest, kComplete, end_) || (std::string(kNone) + end_).starts_with(rest))
      return line.size() - at;
  }
  std::size_t size = std::min(line.size(), kBegin.size() - 1);
  while (size > 0 && !kBegin.starts_with(line.substr(line.size() - size))) --size;
  return size;
}

bool PipedLines::take(LogLine& line, Time now) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || bytes_ < kMostQueued; });
  const Source source{line.node, line.pid, line.is_error};
  if (const auto cut = cuts_.extract(source)) {
    if (const auto mark = mark_of(cut.mapped().text + line.text); mark && mark->at == 0) {
      drop_end(cut.mapped());
      hear(*mark, source, now);
      return true;
    }
  }
  const auto mark = mark_of(line.text);
  if (mark) line.text.resize(mark->at);
  const auto known = streams_.find(source);
  const bool is_trials = known != streams_.end() && !closed_;
  std::uint64_t number = 0;
  if (is_trials && (!mark || mark->at > 0)) {
    known->second.heard = now;
    number = add(known->second.trial, line.text);
  }
  if (mark) {
    hear(*mark, source, now);
  } else if (const std::size_t size = cut_of(line.text); size > 0) {
    if (cuts_.size() >= kMostCuts) cuts_.erase(cuts_.begin());
    cuts_[source] = {line.text.substr(line.text.size() - size), number};
  }
  return is_trials || (mark && mark->at == 0);
}

/// Returns the line's number.
std::uint64_t PipedLines::add(int trial, std::string_view text) {
  bytes_ += text.size() + kRecord;
  lines_.emplace_back(trial, text);
  return given_ + lines_.size();
}

/// Takes the begin of a mark away from the end of its line, if that still waits for lines().
void PipedLines::drop_end(const Cut& cut) {
  if (cut.line <= given_) return;
  auto& [trial, text] = lines_[cut.line - given_ - 1];
  text.resize(text.size() - cut.text.size());
  if (text.empty()) trial = kNobody;
}

void PipedLines::hear(const Mark& mark, const Source& source, Time now) {
  switch (mark.kind) {
    case Mark::Kind::begins:
      if (closed_) break;
      if (streams_.count(source) == 0) make_room();
      streams_[source] = {static_cast<int>(mark.number), now, false};
      break;
    case Mark::Kind::ends: streams_.erase(source); break;
    case Mark::Kind::complete:
      if (mark.number != round_) break;
      complete_.insert(std::get<0>(source));
      changed_.notify_all();
      break;
  }
}

void PipedLines::make_room() {
  if (streams_.size() < kMostStreams) return;
  streams_.erase(
      std::min_element(streams_.begin(), streams_.end(), [](const auto& a, const auto& b) {
        return std::pair(!a.second.ended, a.second.heard) <
               std::pair(!b.second.ended, b.second.heard);
      }));
}

void PipedLines::ended(int trial, Time now) {
  const std::lock_guard lock(mutex_);
  for (auto& [source, stream] : streams_)
    if (stream.trial == trial) stream.ended = true, stream.heard = now;
}

void PipedLines::forget(Time now) {
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  std::erase_if(streams_, [now](const auto& each) {
    return each.second.ended && now - each.second.heard >= kQuiet;
  });
}

std::size_t PipedLines::streams() const {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

std::vector<std::pair<int, std::string>> PipedLines::lines(Time now) {
  const std::lock_guard lock(mutex_);
  forget(now);
  bytes_ = 0;
  changed_.notify_all();
  given_ += lines_.size();
  std::vector<std::pair<int, std::string>> taken = std::exchange(lines_, {});
  std::erase_if(taken, [](const auto& line) { return line.first == kNobody; });
  return taken;
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
