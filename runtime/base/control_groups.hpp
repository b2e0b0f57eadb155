/// The control groups (cgroups of version 1 and 2) whose limits hold for this process.
///
///     for (const ControlGroup& group : control_groups("cpu"))
///       if (const auto text = group.text("cpu.max")) …        // "150000 100000"
///
/// A limit of a group holds for all groups below it. So the least limit of the list counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One level of a hierarchy: a folder with a file for each limit.
struct ControlGroup {
  std::string folder;
  bool is_v2 = false;  ///< its files have the names of version 2

  /// Returns the first line of a file of the group; nothing when it cannot be read.
  std::optional<std::string> text(const char* file) const;
  /// Returns the whole number with which a file of the group begins; nothing for any other text,
  /// such as "max" or "-1".
  std::optional<std::uint64_t> number(const char* file) const;
  /// Returns the number behind the name in a file of lines "name number".
  std::optional<std::uint64_t> number(const char* file, std::string_view name) const;
};

/// Returns the groups of this process for a controller of version 1 ("cpu", "memory") and of version
/// 2, each with all groups above it. Some folders may not exist. `root` replaces the root of the
/// file system, for tests. Reads one file.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::string& root = "");

}  // namespace troupe
