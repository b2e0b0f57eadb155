/// The text form of schedules.
///
///     # two ranks, one micro-batch
///     0F0, 0SendF0, 0RecvB0, 0B0
///     1RecvF0, 1F0, 1B0, 1SendB0
///
/// The text has one line for each rank, in their order. An action is its stage, its name and its
/// micro-batch. Blanks or one comma separate two actions. Empty lines are ignored, and `#` begins
/// a comment.
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

#include <string>
#include <string_view>

namespace troupe::train {

/// Returns the action as text, such as "2F0".
TROUPE_API std::string text_of(const Action& action);
/// Returns the text that parse_schedule() reads: one line for each rank, the last one with a
/// newline.
TROUPE_API std::string text_of(const Schedule& schedule);

/// Parses a schedule without validating it. Throws InvalidArgument, one sentence with line and
/// column (bytes, from 1), for text that is not an action.
TROUPE_API Schedule parse_schedule(std::string_view text);
/// Parses a file of at most 64 MiB. Blocks. Throws InvalidArgument, naming the path, when the
/// file cannot be read, and as parse_schedule().
TROUPE_API Schedule read_schedule(const std::string& path);

/// The choice that Layout::schedule names.
struct ScheduleChoice {
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  int v = 1;         ///< stages on each rank; unused with a file, which determines it
  std::string path;  ///< of the file; empty without one
};
/// Parses "gpipe", "1f1b", "interleaved" (v = 2), "interleaved:3" (v from 2 to 1,024) or
/// "file:PATH". Throws InvalidArgument for anything else. Reads no file.
TROUPE_API ScheduleChoice parse_schedule_choice(std::string_view name);

/// A layout's schedule, and the number of stages on each rank.
struct LayoutSchedule {
  Schedule schedule;
  int v = 1;
};
/// Returns a valid schedule with transfers for layout.pp ranks and layout.micro micro-batches.
/// Adds transfers with lower() to a file that has none. Reads the file again at each call. Throws
/// InvalidArgument, one sentence, as generate(), read_schedule() and validate().
TROUPE_API LayoutSchedule schedule_of(const Layout& layout);

}  // namespace troupe::train
