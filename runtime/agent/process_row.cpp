#include "troupe/runtime/agent/process_row.hpp"

#include "troupe/runtime/os/process_usage.hpp"

namespace troupe::agent {

observe::Row process_row(const std::string& kind, pid_t pid, const std::string& node,
                         const std::string& job, const std::string& function) {
  constexpr auto kKind = observe::RowKind::processes;
  observe::Row row = observe::make_row(kKind, node + "/" + std::to_string(pid));
  const auto cell = [&row](std::string_view field) -> observe::Cell& {
    return row.cells[observe::column_of(kKind, field)];
  };
  const os::ProcessUsage usage = os::usage_of(pid);
  cell("kind") = kind;
  cell("pid") = static_cast<std::int64_t>(pid);
  cell("node") = node;
  if (!job.empty()) cell("job") = job;
  if (!function.empty()) cell("function") = function;
  if (usage.anonymous) cell("anonymous") = *usage.anonymous;
  if (usage.shared) cell("shared") = *usage.shared;
  if (usage.cpu_seconds) cell("cpu_seconds") = *usage.cpu_seconds;
  if (!usage.state.empty()) cell("state") = usage.state;
  return row;
}

}  // namespace troupe::agent
