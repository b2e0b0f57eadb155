#include "troupe/runtime/cli/failures.hpp"

#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/observe/answer.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::cli {
namespace {

constexpr auto kEvents = observe::RowKind::events;
constexpr std::size_t kMaxName = 80, kMaxWhy = 300, kMostDead = 10;

std::string text_in(const observe::Row& row, std::string_view field) {
  const auto* text = std::get_if<std::string>(&row.cells[observe::column_of(kEvents, field)]);
  return text == nullptr ? "" : *text;
}

/// Splits "a worker died, it ran FUNCTION: REASON". Other texts are a reason as a whole.
std::pair<std::string, std::string> function_and_reason(const std::string& text) {
  constexpr std::string_view kRan = ", it ran ", kReason = ": ";
  const std::size_t at = text.find(kRan);
  if (at == std::string::npos) return {"", text};
  const std::size_t begin = at + kRan.size();
  const std::size_t end = std::min(text.find(kReason, begin), text.size());
  return {text.substr(begin, end - begin),
          text.substr(std::min(end + kReason.size(), text.size()))};
}

/// Cuts the lines and counts what is left off. `where`: the command that shows it.
void cut(std::vector<std::string>& lines, std::size_t most, const char* where) {
  if (lines.size() <= most) return;
  const std::size_t more = lines.size() - most;
  lines.resize(most);
  lines.push_back("and " + std::to_string(more) + " more: " + where);
}

}  // namespace

Result<observe::Answer> recent_failures(Asked& asked, std::uint32_t most, Duration limit) {
  return asked.try_rows({.kind = kEvents,
                         .where = "severity = error and since < 10m",
                         .sort = "time:desc",
                         .limit = most,
                         .after = {}},
                        limit);
}

std::string failures_text(std::uint64_t failures) {
  if (failures == 0) return "";
  return std::to_string(failures) + (failures == 1 ? " failure" : " failures") +
         " in the last 10 minutes: 'troupe events --since 10m'\n";
}

std::vector<std::string> failure_lines(const observe::Answer& events, std::size_t most) {
  struct Group {
    std::size_t count = 0;
    std::string name, newest;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;  // by kind and function
  for (const observe::Row& row : events.rows) {
    const std::string kind = text_in(row, "kind");
    if (kind == "job_ended") continue;
    auto [function, reason] = function_and_reason(text_in(row, "text"));
    Group& group = groups[{kind, function}];
    if (group.count++ != 0) continue;
    group.name = function.empty() ? kind : short_name(function);
    group.newest = std::move(reason);
  }
  std::vector<Group> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Group& a, const Group& b) { return a.count > b.count; });
  std::vector<std::string> lines;
  for (const Group& group : sorted)
    lines.push_back(std::to_string(group.count) + " of " + visible_text(group.name, kMaxName) +
                    (group.count == 1 ? ": " : ", the last one: ") +
                    visible_text(group.newest, kMaxWhy));
  cut(lines, most, "troupe events --since 10m");
  return lines;
}

std::vector<std::string> failed_job_lines(const std::vector<control::JobRecord>& jobs,
                                          std::int64_t since_unix_ns, std::size_t most) {
  std::vector<const control::JobRecord*> failed;
  for (const auto& job : jobs)
    if (job.state == control::JobState::failed && job.ended_ns >= since_unix_ns)
      failed.push_back(&job);
  std::stable_sort(failed.begin(), failed.end(),
                   [](const auto* a, const auto* b) { return a->ended_ns > b->ended_ns; });
  std::vector<std::string> lines;
  for (const auto* job : failed)
    lines.push_back("job " + job->id.str().substr(0, 8) + " (" + visible_text(job->name, kMaxName) +
                    "): " + visible_text(job->why, kMaxWhy));
  cut(lines, most, "troupe list jobs");
  return lines;
}

std::vector<std::string> dead_lines(const std::vector<control::DeadNode>& nodes,
                                    std::int64_t now_unix_ns) {
  std::vector<const control::DeadNode*> dead;
  for (const auto& node : nodes)
    if (!node.left) dead.push_back(&node);
  std::stable_sort(dead.begin(), dead.end(),
                   [](const auto* a, const auto* b) { return a->died_unix_ns > b->died_unix_ns; });
  std::vector<std::string> lines;
  for (const auto* node : dead) {
    const std::string& name = node->description.name;
    const auto age =
        static_cast<std::uint64_t>(std::max<std::int64_t>(now_unix_ns - node->died_unix_ns, 0));
    lines.push_back(visible_text(name.empty() ? node->description.id.str() : name, kMaxName) +
                    " died " + age_text(age) + " ago: " + visible_text(node->why, kMaxWhy));
  }
  cut(lines, kMostDead, "troupe list nodes");
  return lines;
}

}  // namespace troupe::cli
