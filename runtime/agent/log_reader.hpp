/// Splits what workers write into lines. A plain state machine: it has no descriptor and no clock.
///
///     reader.feed(source, bytes, [&](std::string_view line) { … });
///     reader.end(source, [&](std::string_view line) { … });    // the rest of a last line
///
/// A source is one stream of one process. A line longer than kPiece comes in pieces, each as a line
/// of its own. The open lines of all sources together take at most kMostOpen; the source that
/// would exceed it gets a piece early.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace troupe::agent {

class LogReader {
 public:
  static constexpr std::size_t kPiece = 64 * 1024;
  static constexpr std::size_t kMostOpen = 8 << 20;

  /// Calls take(line) for each line that is complete now, without its newline.
  template <class Take>
  void feed(std::uint64_t source, std::string_view bytes, Take&& take) {
    while (!bytes.empty()) {
      const auto* found = static_cast<const char*>(std::memchr(bytes.data(), '\n', bytes.size()));
      const std::size_t size =
          found != nullptr ? static_cast<std::size_t>(found - bytes.data()) : bytes.size();
      add(source, bytes.substr(0, size), found != nullptr, take);
      bytes.remove_prefix(found != nullptr ? size + 1 : size);
    }
  }
  /// Forgets the source. Calls take(line) if it has begun a line.
  template <class Take>
  void end(std::uint64_t source, Take&& take) {
    const auto at = open_.find(source);
    if (at == open_.end()) return;
    const std::string rest = std::move(at->second);
    open_.erase(at);
    open_bytes_ -= rest.size();
    if (!rest.empty()) take(std::string_view(rest));
  }
  std::size_t open_bytes() const noexcept { return open_bytes_; }

 private:
  /// Adds a part of a line without its newline. `ends`: the newline follows.
  template <class Take>
  void add(std::uint64_t source, std::string_view part, bool ends, Take&& take) {
    const auto at = open_.find(source);
    const bool is_open = at != open_.end() && !at->second.empty();
    if (!is_open) {
      for (; part.size() > kPiece; part.remove_prefix(kPiece)) take(part.substr(0, kPiece));
      if (ends) return take(part);
    }
    std::string& line = at != open_.end() ? at->second : open_[source];
    while (line.size() + part.size() > kPiece) {
      const std::size_t fits = kPiece - line.size();
      line.append(part.substr(0, fits));
      open_bytes_ += fits;
      part.remove_prefix(fits);
      pass_on(line, take);
    }
    line.append(part);
    open_bytes_ += part.size();
    if (ends || open_bytes_ > kMostOpen) pass_on(line, take);
  }
  template <class Take>
  void pass_on(std::string& line, Take&& take) {
    take(std::string_view(line));
    open_bytes_ -= line.size();
    line.clear();
  }

  std::unordered_map<std::uint64_t, std::string> open_;
  std::size_t open_bytes_ = 0;
};

}  // namespace troupe::agent
