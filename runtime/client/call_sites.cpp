#include "troupe/runtime/client/call_sites.hpp"

#include <string_view>

namespace troupe::client {
namespace {

/// The site that a thread asked for last.
struct Last {
  std::uint64_t engine = 0;
  detail::CallSite at;
  std::uint32_t number = 0;
};
thread_local Last t_last;

/// Returns a call site for people: "main.cpp:12", or a function's name.
std::string text_of(std::string_view text, std::uint32_t line) {
  if (line == 0) return std::string(text);
  text.remove_prefix(text.find_last_of('/') + 1);
  return std::string(text) + ":" + std::to_string(line);
}

}  // namespace

std::optional<std::uint32_t> CallSites::lately(detail::CallSite at) const noexcept {
  const Last& last = t_last;
  if (last.engine != engine_ || last.at.text != at.text || last.at.line != at.line)
    return std::nullopt;
  return last.number;
}

CallSites::Found CallSites::find(detail::CallSite at) {
  Found found;
  const auto [known, is_new] = numbers_.try_emplace({at.text, at.line}, 0);
  if (is_new && numbers_.size() <= wire::kMaxCallSites) {
    known->second = static_cast<std::uint32_t>(numbers_.size());
    found.fresh = wire::CallSite{known->second, text_of(at.text, at.line)};
  }
  found.number = known->second;
  t_last = {engine_, at, found.number};
  return found;
}

std::map<std::uint32_t, std::string> CallSites::texts() const {
  std::map<std::uint32_t, std::string> texts;
  for (const auto& [place, number] : numbers_)
    if (number != 0) texts.emplace(number, text_of(place.first, place.second));
  return texts;
}

}  // namespace troupe::client
