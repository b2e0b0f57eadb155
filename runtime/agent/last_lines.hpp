/// The last lines of one process, for the news of its death. A plain state machine.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::agent {

class LastLines {
 public:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kBytes = 4096;  ///< of all, with their newlines

  /// Adds a line without its newline. Of a longer one than kBytes only the begin is kept.
  void add(std::string_view line) {
    text_.append(line.substr(0, kBytes - 1)).append(1, '\n');
    if (text_.size() > 4 * kBytes) text_.erase(0, text_.size() - text().size());
  }
  /// Returns the last whole lines.
  std::string_view text() const {
    std::size_t begin = text_.size();
    for (std::size_t lines = 0; lines < kLines && begin > 0; ++lines) {
      const std::size_t newline = begin > 1 ? text_.rfind('\n', begin - 2) : std::string::npos;
      const std::size_t first = newline == std::string::npos ? 0 : newline + 1;
      if (text_.size() - first > kBytes) break;
      begin = first;
    }
    return std::string_view(text_).substr(begin);
  }

 private:
  std::string text_;
};

}  // namespace troupe::agent
