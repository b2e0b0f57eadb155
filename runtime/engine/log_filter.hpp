/// LogFilter: takes some of a job's lines before Context::on_log()'s function sees them. Parts of
/// troupe use it; programs use on_log().
///
///     ctx.on_log(detail::LogFilter{this, [this](const LogLine& line) { return is_mine(line); }});
///     ctx.on_log(detail::LogFilter{this, {}});       // no call of the function follows
///
/// Filters and the program's own function do not replace each other. A line that no filter takes
/// goes where it would go without them.
#pragma once

#include "troupe/runtime/engine/log_line.hpp"

#include <functional>

namespace troupe::detail {

struct LogFilter {
  const void* owner = nullptr;  ///< has one filter
  /// Returns whether it has taken the line. Runs on the thread of on_log()'s function, under the
  /// same rules. Empty: the owner's filter goes.
  std::function<bool(const LogLine&)> takes;
  void operator()(const LogLine& line) const { (void)takes(line); }
};

}  // namespace troupe::detail
