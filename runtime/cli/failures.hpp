/// What went wrong in the last ten minutes, as `status` and `top` tell it: events that are errors.
///
///     auto events = recent_failures(asked, observe::kMaxRows, 1700ms);
///     if (events) for (const std::string& line : failure_lines(*events, 5)) …
#pragma once

#include "troupe/runtime/cli/verbs.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::cli {

/// Returns the newest failures, at most `most`; `matched` counts all. Waits at most `limit`.
Result<observe::Answer> recent_failures(Asked& asked, std::uint32_t most, Duration limit);

/// Returns "3 failures in the last 10 minutes: …" with the command that lists them; empty: none.
std::string failures_text(std::uint64_t failures);

/// Returns a line for each function whose tasks or calls ended with their worker, and for each other
/// kind of failure: how often, and the newest one's reason. The most frequent ones come first. Ends
/// of jobs are left out, since control tells of them. A last line counts what has no room.
std::vector<std::string> failure_lines(const observe::Answer& events, std::size_t most);

/// Returns a line for each job that failed since this time, the newest first.
std::vector<std::string> failed_job_lines(const std::vector<control::JobRecord>& jobs,
                                          std::int64_t since_unix_ns, std::size_t most);

/// Returns a line for each node that died, the newest first, and one that counts those beyond ten.
std::vector<std::string> dead_lines(const std::vector<control::DeadNode>& nodes,
                                    std::int64_t now_unix_ns);

}  // namespace troupe::cli
