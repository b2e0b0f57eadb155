/// Schedules as text.
///
///     # two ranks, one micro-batch
///     0F0, 0SendF0, 0RecvB0, 0B0
///     1RecvF0, 1F0, 1B0, 1SendB0
///
/// A line for each rank, in their order. An action is its stage, its name and its micro-batch; blanks
/// or one comma stand between two. Empty lines do not count, and `#` begins a comment.
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

#include <string>
#include <string_view>

namespace troupe::train {

/// "2F0".
TROUPE_API std::string text_of(const Action& action);
/// What parse_schedule() reads; one line a rank, ends with a newline.
TROUPE_API std::string text_of(const Schedule& schedule);

/// Not validated. Throws InvalidArgument, one sentence with line and column (bytes, from 1), for what
/// is no action.
TROUPE_API Schedule parse_schedule(std::string_view text);
/// Of a file of at most 64 MiB. Blocks. Throws InvalidArgument, naming the path, for a file that
/// cannot be read, and as parse_schedule().
TROUPE_API Schedule read_schedule(const std::string& path);

/// What Layout::schedule says.
struct ScheduleChoice {
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  int v = 1;         ///< stages a rank; of a file, what the file has
  std::string path;  ///< of a file; else empty
};
/// "gpipe", "1f1b", "interleaved" (v = 2), "interleaved:3" (v from 2 to 1,024) or "file:PATH". Throws
/// InvalidArgument for anything else. Reads no file.
TROUPE_API ScheduleChoice parse_schedule_choice(std::string_view name);

/// A layout's schedule and its number of stages a rank.
struct LayoutSchedule {
  Schedule schedule;
  int v = 1;
};
/// The schedule of layout.schedule for layout.pp ranks and layout.micro micro-batches: with
/// transfers (lower() puts them into a file that has none) and valid. Reads the file again at each
/// call. Throws InvalidArgument, one sentence, as generate(), read_schedule() and validate().
TROUPE_API LayoutSchedule schedule_of(const Layout& layout);

}  // namespace troupe::train
