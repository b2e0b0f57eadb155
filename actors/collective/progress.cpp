#include "troupe/actors/collective/communicator.hpp"

namespace troupe::collective {
namespace {

/// Returns the text about one rank; text_of() puts ranks with equal texts together.
std::string words_of(const RankProgress& rank) {
  if (rank.state == RankProgress::State::absent) return "not joined";
  std::string text;
  if (rank.state == RankProgress::State::left) text = "left ";
  if (rank.sequence == 0) return text + "before its first operation";
  return text + (rank.inside ? "in " : "after ") + std::string(name_of(rank.kind)) + " #" +
         std::to_string(rank.sequence);
}

/// Returns the ranks as a list such as "0, 2-7".
std::string list_of(const std::vector<std::size_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string text_of(std::span<const RankProgress> ranks) {
  std::string text;
  std::vector<bool> said(ranks.size());
  for (std::size_t first = 0; first < ranks.size(); ++first) {
    if (said[first]) continue;
    const std::string words = words_of(ranks[first]);
    std::vector<std::size_t> alike;
    for (std::size_t r = first; r < ranks.size(); ++r) {
      if (said[r] || words_of(ranks[r]) != words) continue;
      if (r != first && (ranks[r].stopped || ranks[first].stopped)) continue;
      alike.push_back(r);
      said[r] = true;
    }
    text += (text.empty() ? "" : "; ") + std::string(alike.size() == 1 ? "rank " : "ranks ") +
            list_of(alike);
    if (ranks[first].stopped)
      text += " (process " + std::to_string(ranks[first].pid) + ", stopped)";
    text += " " + words;
  }
  return text;
}

}  // namespace troupe::collective
