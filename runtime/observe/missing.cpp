#include "troupe/runtime/observe/missing.hpp"

#include "troupe/runtime/base/visible_text.hpp"

#include <algorithm>

namespace troupe::observe {
namespace {

constexpr std::size_t kMaxNode = 80, kMaxReason = 300;

/// Returns the end of the sentence.
std::string advice_for(const Unanswered& source, const std::string& name, std::string_view what) {
  if (!source.is_silent) return "";
  if (source.pid != 0) return "; 'troupe stack " + name + "' shows what it does";
  if (source.node != kControlSource) return "; 'troupe list nodes' shows its state";
  if (what == "events") return "";
  return "; 'troupe events --since 10m' shows what the nodes know of it";
}

}  // namespace

std::string missing_text(const Unanswered& source, std::string_view what) {
  std::string name = visible_text(source.node, kMaxNode);
  if (source.pid != 0) name += "/" + std::to_string(source.pid);
  return std::string(what) + " of " + name +
         " are missing: " + visible_text(source.why, kMaxReason) + advice_for(source, name, what);
}

void Missing::add(std::string_view node, std::int64_t pid, std::string_view why, bool is_silent) {
  const bool is_known = std::any_of(sources_.begin(), sources_.end(), [&](const Unanswered& one) {
    return one.node == node && one.pid == pid;
  });
  if (is_known) return;
  if (sources_.size() == kMaxUnanswered)
    ++more_;
  else
    sources_.push_back({std::string(node), pid, std::string(why), is_silent});
}

void Missing::add(const Answer& answer) {
  for (const Unanswered& source : answer.unanswered)
    add(source.node, source.pid, source.why, source.is_silent);
  // Several questions have the same sources: their counts are not added up.
  more_ = std::max(more_, answer.more_unanswered);
}

std::vector<std::string> Missing::lines(std::string_view what, bool has_json) const {
  std::vector<std::string> lines;
  const std::size_t named = std::min(sources_.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) lines.push_back(missing_text(sources_[i], what));
  const std::uint64_t others = sources_.size() - named + more_;
  if (others > 0)
    lines.push_back(std::string(what) + " of " + std::to_string(others) +
                    " more processes and nodes are missing" +
                    (has_json ? ": --json names them" : ""));
  return lines;
}

Json Missing::json() const {
  Json list = Json::array();
  for (const Unanswered& source : sources_)
    list.push_back({{"node", source.node}, {"pid", source.pid}, {"why", source.why}});
  return list;
}

}  // namespace troupe::observe
