/// LogFilter: takes some of a job's lines before they reach the function of Context::on_log(). For
/// libraries, whose filters must not replace what a program has set.
///
///     ctx.on_log(LogFilter{this, [this](const LogLine& line) { return is_mine(line); }});
///     ctx.on_log(LogFilter{this, {}});               // no call of the function follows
///
/// Filters and the program's own function do not replace each other. A line that no filter takes
/// goes where it would go without them.
#pragma once

#include "troupe/runtime/engine/log_line.hpp"

#include <functional>

namespace troupe {

struct LogFilter {
  const void* owner = nullptr;  ///< has one filter
  /// Returns whether it has taken the line. It may take a part: what it leaves in the line's text
  /// goes on when it returns false. Runs on the thread of on_log()'s function, under the same rules.
  /// Empty: the owner's filter goes.
  std::function<bool(LogLine&)> takes;
  /// Becomes true when lines come: in a driver that has joined a cluster. May be null.
  bool* listens = nullptr;
  void operator()(LogLine line) const { (void)takes(line); }
};

}  // namespace troupe
