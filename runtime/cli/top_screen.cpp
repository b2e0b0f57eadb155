#include "troupe/runtime/cli/top_screen.hpp"

#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/observe/table.hpp"

#include <cstdio>

namespace troupe::cli {
namespace {

using observe::number_text;
using observe::size_text;

std::string busy_text(const std::optional<double>& cpus) {
  if (!cpus) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", *cpus);
  return text;
}

std::string table_of(const std::vector<TopNode>& nodes) {
  std::vector<std::vector<std::string>> rows{
      {"NODE", "STATE", "CPUS", "BUSY", "MEMORY", "STORE", "WORKERS"}};
  for (const TopNode& node : nodes)
    rows.push_back(
        {node.name, node.state, number_text(node.cpus_used) + "/" + number_text(node.cpus),
         busy_text(node.cpu_busy), size_text(node.memory),
         size_text(node.store_used) + "/" + size_text(node.store), std::to_string(node.workers)});
  return observe::table_text(rows);
}

std::string table_of(const std::vector<TopFunction>& functions) {
  std::vector<std::vector<std::string>> rows{{"FUNCTION", "WAITING", "RUNNING"}};
  for (const TopFunction& one : functions)
    rows.push_back(
        {short_name(one.name), std::to_string(one.waiting), std::to_string(one.running)});
  return observe::table_text(rows);
}

}  // namespace

std::string top_text(const TopView& view, std::size_t lines, std::size_t columns) {
  std::string all = view.title + "\n";
  if (!view.note.empty()) all += visible_text(view.note, columns) + "\n";
  all += table_of(view.nodes);
  for (const std::string& text : view.missing) all += visible_text(text, columns) + "\n";
  all += "\n";
  all += std::to_string(view.running) + " tasks run, " + std::to_string(view.waiting) + " wait\n";
  for (const auto& [tasks, reason] : view.reasons)
    all += "  " + std::to_string(tasks) + ": " + visible_text(reason, columns) + "\n";
  if (!view.functions.empty()) all += "\n" + table_of(view.functions);
  const auto list = [&](const char* head, const std::vector<std::string>& texts) {
    if (texts.empty()) return;
    all += "\n" + std::string(head) + "\n";
    for (const std::string& text : texts) all += "  " + visible_text(text, columns) + "\n";
  };
  const std::string failed = view.failed == 0 ? "what does not go on"
                                              : std::to_string(view.failed) +
                                                    (view.failed == 1 ? " failure" : " failures") +
                                                    " in the last 10 minutes";
  list(failed.c_str(), view.failures);
  list("nodes that died", view.dead);

  std::vector<std::string> shown;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = all.find('\n', at);
    shown.push_back(visible_text(all.substr(at, end - at), columns));
    at = end + 1;
  }
  if (shown.size() > lines && lines > 0) {
    const std::size_t left = shown.size() - lines + 1;
    shown.resize(lines - 1);
    shown.push_back(visible_text("... and " + std::to_string(left) + " more lines", columns));
  }
  std::string text;
  for (const std::string& line : shown) text += line + "\n";
  return text;
}

}  // namespace troupe::cli
