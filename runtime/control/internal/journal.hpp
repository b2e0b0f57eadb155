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
#include <string>

namespace troupe::control::internal {

using JournalMap = std::map<std::string, std::string, std::less<>>;

std::string journal_record(std::span<const Write> writes);
/// One record that makes all of the map.
std::string journal_record(const JournalMap& map);
void apply(std::span<const Write> writes, JournalMap& map);
/// Applies whole records and stops at the first one that is cut or damaged; the bytes it took.
std::size_t replay(std::string_view journal, JournalMap& map);
/// What a record of the whole map takes, about. O(entries).
std::uint64_t live_bytes(const JournalMap& map);
/// A journal of this size is to be replaced by one record of the map.
inline bool wants_compaction(std::uint64_t journal, const JournalMap& map) {
  return journal > (1 << 20) && journal > 4 * live_bytes(map);
}

}  // namespace troupe::control::internal
