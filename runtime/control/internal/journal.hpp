/// A journal: records of writes, one after the other, each with its size and checksum. The file
/// store and the memory store keep their data in it.
///
///     journal += internal::journal_record(writes);
///     const std::size_t whole = internal::replay(journal, map);   // the rest is torn: drop it
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::control::internal {

using JournalMap = std::map<std::string, std::string, std::less<>>;

std::string journal_record(std::span<const Write> writes);
/// Returns one record that writes the whole map.
std::string journal_record(const JournalMap& map);
void apply(std::span<const Write> writes, JournalMap& map);
/// Applies whole records and stops at the first one that is cut or damaged. Returns how many bytes
/// it applied.
std::size_t replay(std::string_view journal, JournalMap& map);
/// These two are StoreMedium's get() and scan() on a map.
inline Result<std::optional<std::string>> get(const JournalMap& map, std::string_view key) {
  const auto found = map.find(key);
  if (found == map.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}
template <class Visit>
void scan(const JournalMap& map, std::string_view prefix, const Visit& visit) {
  for (auto it = map.lower_bound(prefix); it != map.end(); ++it) {
    if (it->first.compare(0, prefix.size(), prefix) != 0) break;
    visit(it->first, it->second);
  }
}
/// Returns about how many bytes a record of the whole map takes. O(entries).
std::uint64_t live_bytes(const JournalMap& map);
/// Decides when one record of the map should replace a journal: above 1 MiB and four times the
/// map's size. It computes that size only when the journal has outgrown the last limit, so a commit
/// costs O(1) amortized.
class CompactionRule {
 public:
  bool is_due(std::uint64_t journal, const JournalMap& map) {
    if (journal <= look_at_) return false;
    look_at_ = std::max(kLeast, 4 * live_bytes(map));
    return journal > look_at_;
  }

 private:
  static constexpr std::uint64_t kLeast = 1 << 20;
  std::uint64_t look_at_ = kLeast;
};

}  // namespace troupe::control::internal
