#include "troupe/runtime/base/log_lines.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void LogLines::queue(std::string_view line) {
  if (bytes_ + line.size() > kMostBytes) {
    ++lost_;
    return;
  }
  queue_.emplace_back(line);
  bytes_ += line.size();
}

LogLines::Kind* LogLines::find(std::string_view key, bool held) noexcept {
  for (Kind& kind : kinds_)
    if (kind.held == held && kind.key == key) return &kind;
  return nullptr;
}

LogLines::Kind* LogLines::place(Time now) {
  std::erase_if(kinds_,
                [now](const Kind& kind) { return kind.count == 0 && now >= kind.first + kEqual; });
  if (kinds_.size() < kMostKinds) return &kinds_.emplace_back();
  const auto idle =
      std::find_if(kinds_.begin(), kinds_.end(), [](const Kind& kind) { return kind.count == 0; });
  return idle == kinds_.end() ? nullptr : &*idle;
}

void LogLines::add(std::string_view line, Time now) {
  Kind* kind = find(line, false);
  if (kind != nullptr && (kind->count != 0 || now < kind->first + kEqual)) {
    ++kind->count;
    return;
  }
  queue(line);
  if (kind == nullptr) kind = place(now);
  if (kind != nullptr) *kind = {std::string(line), std::string(line), 0, now, now, false};
}

void LogLines::add_counted(std::string_view group, std::string_view line, Time now) {
  Kind* kind = find(group, true);
  if (kind == nullptr) {
    kind = place(now);
    if (kind == nullptr) return queue(line);
    *kind = {std::string(group), std::string(line), 0, now, now, true};
  }
  ++kind->count;
  kind->last = now;
}

void LogLines::add_always(std::string text) {
  bytes_ += text.size();
  queue_.push_back(std::move(text));
}

Time LogLines::due_of(const Kind& kind) noexcept {
  return kind.held ? std::min(kind.last + kQuiet, kind.first + kLongest) : kind.first + kEqual;
}

std::vector<std::string> LogLines::take(Time now, bool all) {
  std::vector<std::string> taken = std::exchange(queue_, {});
  bytes_ = 0;
  if (lost_ != 0)
    taken.push_back("troupe: " + std::to_string(std::exchange(lost_, 0)) +
                    " lines are lost here, because nobody read the ones before");
  for (Kind& kind : kinds_) {
    if (kind.count == 0 || (!all && now < due_of(kind))) continue;
    const std::string count = std::to_string(kind.count);
    if (!kind.held)
      taken.push_back(kind.line + " (" + count +
                      (kind.count == 1 ? " more time)" : " more times)"));
    else
      taken.push_back(kind.count == 1 ? kind.line
                                      : kind.line + " (the first of " + count + " such lines)");
    kind.count = 0;
    kind.first = now;
  }
  std::erase_if(kinds_, [](const Kind& kind) { return kind.held && kind.count == 0; });
  return taken;
}

std::optional<Time> LogLines::due() const noexcept {
  if (!queue_.empty() || lost_ != 0) return Time{};
  std::optional<Time> next;
  for (const Kind& kind : kinds_)
    if (kind.count != 0 && (!next || due_of(kind) < *next)) next = due_of(kind);
  return next;
}

}  // namespace troupe
