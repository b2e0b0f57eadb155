#include "troupe/runtime/os/stack_text.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/stack_lines.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::os {
namespace {

constexpr const char* kIndent = "    ";

std::string line_of(std::size_t number, const std::string& rest) {
  return kIndent + ("#" + std::to_string(number)) + " " + rest;
}

template <class T>
bool take_number(std::string_view text, T& value, int base) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

/// Reads "    #3 /lib/libmix.so+0x12 [2f01]", whose module and build-id may be missing.
std::optional<CrashFrame> frame_in(std::string_view line) {
  const auto number = line.find_first_not_of(' ');
  const auto blank = line.find(' ', number == std::string_view::npos ? 0 : number);
  if (number == std::string_view::npos || line[number] != '#' || blank == std::string_view::npos)
    return std::nullopt;
  std::size_t position = 0;
  if (!take_number(line.substr(number + 1, blank - number - 1), position, 10)) return std::nullopt;
  line.remove_prefix(blank + 1);
  CrashFrame frame;
  if (const auto id = line.rfind(" ["); id != std::string_view::npos && line.ends_with(']')) {
    frame.build_id = line.substr(id + 2, line.size() - id - 3);
    line = line.substr(0, id);
  }
  const auto offset = line.rfind("+0x");
  if (offset == std::string_view::npos || !take_number(line.substr(offset + 3), frame.offset, 16))
    return std::nullopt;
  frame.module = line.substr(0, offset);
  return frame;
}

/// Looks frames up for all threads of this process. Waits for another thread for a while only: in a
/// fork, that thread may be missing.
std::vector<StackLine> look_up(const std::vector<CrashFrame>& frames) {
  static std::mutex mutex;
  static auto* const lines = new StackLines(StackLines::By::role);
  const Time until = steady_now() + StackLines::kLimit;
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock.owns_lock() && steady_now() < until) {
    sleep_for(std::chrono::milliseconds(1));
    (void)lock.try_lock();
  }
  if (lock.owns_lock()) return lines->look_up(frames);
  std::vector<StackLine> unknown;
  for (const CrashFrame& frame : frames) unknown.push_back({frame, {}, {}, 0});
  return unknown;
}

}  // namespace

std::string stack_text(const CrashReport& report) {
  CrashReport head = report;
  head.frames.clear();
  std::string text = kIndent + text_of(head);
  for (std::size_t i = 0; i < report.frames.size(); ++i) {
    const CrashFrame& frame = report.frames[i];
    char offset[32];
    std::snprintf(offset, sizeof offset, "+0x%llx", static_cast<unsigned long long>(frame.offset));
    const std::string id = frame.build_id.empty() ? "" : " [" + frame.build_id + "]";
    const std::string line = "\n" + line_of(i, visible_text(frame.module) + offset + id);
    if (text.size() + line.size() > kMostStackText) break;
    text += line;
  }
  return text;
}

std::string readable_stack(const std::string& text) {
  std::vector<std::pair<std::string, bool>> lines;  // true: a frame
  std::vector<CrashFrame> frames;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    auto frame = frame_in(rest.substr(0, end));
    lines.emplace_back(rest.substr(0, end), frame.has_value());
    if (frame) frames.push_back(std::move(*frame));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (frames.empty()) return text;
  const std::vector<StackLine> found = look_up(frames);
  std::string readable;
  std::size_t next = 0;
  for (const auto& [line, is_frame] : lines) {
    if (!readable.empty()) readable += '\n';
    readable += is_frame ? line_of(next, text_of(found[next])) : line;
    if (is_frame) ++next;
  }
  return readable;
}

}  // namespace troupe::os
