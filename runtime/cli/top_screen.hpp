/// What `troupe top` shows, as a text. A pure function of what was seen.
///
///     TopView view{.nodes = …, .waiting = 12};
///     std::string screen = top_text(view, 24, 80);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

struct TopNode {
  std::string name, state;
  double cpus = 0, cpus_used = 0;  ///< CPU slots, and those that leases have
  std::optional<double> cpu_busy;  ///< CPUs that its processes used since the last look
  std::uint64_t memory = 0;        ///< bytes that its processes have for themselves
  std::uint64_t store = 0, store_used = 0;
  std::uint32_t workers = 0;
};

struct TopFunction {
  std::string name;
  std::int64_t waiting = 0, running = 0;
};

struct TopView {
  std::string title;
  std::string note;  ///< a line below the title; empty: none
  std::vector<TopNode> nodes;
  std::int64_t waiting = 0, running = 0;                      ///< tasks
  std::vector<std::pair<std::int64_t, std::string>> reasons;  ///< how many tasks wait, and why
  std::vector<TopFunction> functions;
  std::uint64_t failed = 0;           ///< failures of the last ten minutes
  std::vector<std::string> failures;  ///< what failed, one line each
  std::vector<std::string> dead;      ///< nodes that died, one line each
  std::vector<std::string> missing;   ///< sources without an answer, one line each
};

/// Returns at most `lines` lines of at most `columns` characters, each with its newline. No control
/// character of a name passes. The last line counts the lines that have no room.
std::string top_text(const TopView& view, std::size_t lines, std::size_t columns);

}  // namespace troupe::cli
