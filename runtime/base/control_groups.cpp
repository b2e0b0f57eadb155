#include "troupe/runtime/base/control_groups.hpp"

#include <charconv>
#include <fstream>

namespace troupe {
namespace {

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

/// Adds the group and all groups above it, up to the mount point. Inside a container the path,
/// which is the host's, may not exist. The mount point then is the group itself.
void add_levels(const std::string& mount, std::string group, bool is_v2,
                std::vector<ControlGroup>& groups) {
  while (!group.empty() && group != "/") {
    groups.push_back({mount + group, is_v2});
    group.resize(group.find_last_of('/'));
  }
  groups.push_back({mount, is_v2});
}

}  // namespace

std::optional<std::string> ControlGroup::text(const char* file) const {
  std::ifstream stream(folder + "/" + file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> ControlGroup::number(const char* file) const {
  return leading_number(text(file).value_or(""));
}

std::optional<std::uint64_t> ControlGroup::number(const char* file, std::string_view name) const {
  std::ifstream stream(folder + "/" + file);
  for (std::string line; std::getline(stream, line);)
    if (line.size() > name.size() && line.compare(0, name.size(), name) == 0 &&
        line[name.size()] == ' ')
      return leading_number(std::string_view(line).substr(name.size() + 1));
  return std::nullopt;
}

std::vector<ControlGroup> control_groups(std::string_view controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  std::ifstream lines(root + "/proc/self/cgroup");
  const std::string wanted = "," + std::string(controller) + ",";
  for (std::string line; std::getline(lines, line);) {  // "id:controllers:/group"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/')
      continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (("," + controllers + ",").find(wanted) != std::string::npos)
      add_levels(root + "/sys/fs/cgroup/" + std::string(controller), group, false, groups);
    if (controllers.empty())
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
        add_levels(root + mount, group, true, groups);
  }
  return groups;
}

}  // namespace troupe
