/// Records of writes, one after the other, each with its size and checksum: what the stores without
/// RocksDB keep.
///
///     journal += internal::journal_record(writes);
///     const std::size_t whole = internal::replay(journal, map);   // the rest is torn: drop it
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::control::internal {

using JournalMap = std::map<std::string, std::string, std::less<>>;

std::string journal_record(std::span<const Write> writes);
/// One record that makes all of the map.
std::string journal_record(const JournalMap& map);
void apply(std::span<const Write> writes, JournalMap& map);
/// Applies whole records and stops at the first one that is cut or damaged; the bytes it took.
std::size_t replay(std::string_view journal, JournalMap& map);
/// Store::get and Store::scan of a map.
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
/// What a record of the whole map takes, about. O(entries).
std::uint64_t live_bytes(const JournalMap& map);
/// A journal of this size is to be replaced by one record of the map.
inline bool wants_compaction(std::uint64_t journal, const JournalMap& map) {
  return journal > (1 << 20) && journal > 4 * live_bytes(map);
}

}  // namespace troupe::control::internal
