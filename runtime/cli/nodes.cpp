/// Names of nodes: which one a person means, and how a verb shows one.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <algorithm>

namespace troupe::cli {
namespace {

constexpr std::size_t kShown = 40, kMostListed = 10;

std::string title_of(const control::ClusterRow& row) {
  return visible_text(row.description.name, kShown) + " (" + row.description.id.str() + ")";
}

std::string list_of(const std::vector<const control::ClusterRow*>& rows) {
  std::string list;
  for (std::size_t i = 0; i < std::min(rows.size(), kMostListed); ++i)
    list += (i == 0 ? "" : ", ") + title_of(*rows[i]);
  if (rows.size() > kMostListed)
    list += " and " + std::to_string(rows.size() - kMostListed) + " more";
  return list;
}

}  // namespace

void throw_usage(const std::string& why) {
  throw Failure{Exit::usage, Error(Code::invalid_argument, why)};
}

std::string node_text(const std::map<NodeId, std::string>& names, NodeId id) {
  if (!id) return "-";
  const auto found = names.find(id);
  if (found != names.end()) return found->second;
  return id.str().substr(0, kLeastDigits) + (names.empty() ? "" : " (gone)");
}

const control::ClusterRow& find_node(const control::ListReply& reply, const std::string& text) {
  std::vector<const control::ClusterRow*> all, named, begun;
  for (const auto& row : reply.nodes) {
    all.push_back(&row);
    const std::string id = row.description.id.str();
    if (id == text) return row;
    if (row.description.name == text) named.push_back(&row);
    if (text.size() >= kLeastDigits && id.starts_with(text)) begun.push_back(&row);
  }
  const auto& found = named.empty() ? begun : named;
  if (found.size() == 1) return *found.front();
  const std::string shown = "'" + visible_text(text, kShown) + "'";
  if (!found.empty())
    throw_usage(std::to_string(found.size()) + " nodes have the " +
                (named.empty() ? "id " : "name ") + shown + ": give the whole id of one of " +
                list_of(found));
  for (const auto& node : reply.dead_nodes)
    if (node.description.name == text || node.description.id.str() == text)
      throw_usage("the node " + shown + (node.left ? " has left" : " is dead") +
                  ": give one of the living, " + list_of(all));
  throw_usage("no node of the cluster has the name " + shown + ": give one of " + list_of(all));
}

}  // namespace troupe::cli
