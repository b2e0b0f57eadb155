#include "troupe/runtime/control/internal/journal.hpp"

#include "troupe/runtime/control/codec.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe::control::internal {
namespace {

constexpr std::size_t kFrameHead = 16;  // payload size, checksum

std::string frame(std::string payload) {
  RecordWriter head(0);
  head.u64(payload.size()).u64(XXH64(payload.data(), payload.size(), 0));
  return head.take().substr(1) + payload;  // without RecordWriter's version byte
}

void replay_frame(std::string_view payload, JournalMap& map) {
  RecordReader in(payload);
  for (std::uint64_t n = in.count(24); n > 0 && in.ok(); --n) {
    std::string key = in.bytes();
    const bool present = in.boolean();
    std::string value = in.bytes();
    if (!in.ok()) break;
    if (present)
      map[std::move(key)] = std::move(value);
    else
      map.erase(key);
  }
}

}  // namespace

std::string journal_record(std::span<const Write> writes) {
  RecordWriter out(1);
  out.u64(writes.size());
  for (const Write& write : writes)
    out.bytes(write.key).boolean(write.value.has_value()).bytes(write.value.value_or(""));
  return frame(out.take());
}

std::string journal_record(const JournalMap& map) {
  std::vector<Write> all;
  for (const auto& [key, value] : map) all.push_back({key, value});
  return journal_record(all);
}

void apply(std::span<const Write> writes, JournalMap& map) {
  for (const Write& write : writes) {
    if (write.value)
      map[write.key] = *write.value;
    else
      map.erase(write.key);
  }
}

std::size_t replay(std::string_view journal, JournalMap& map) {
  std::size_t at = 0;
  while (journal.size() - at >= kFrameHead) {
    // RecordReader wants a version byte in front, which a frame's head does not have.
    const std::string head_bytes = std::string(1, '\0').append(journal.substr(at, kFrameHead));
    RecordReader head(head_bytes);
    const std::uint64_t size = head.u64();
    const std::uint64_t sum = head.u64();
    if (size == 0 || size > journal.size() - at - kFrameHead) break;
    const std::string_view payload = journal.substr(at + kFrameHead, size);
    if (XXH64(payload.data(), payload.size(), 0) != sum) break;
    replay_frame(payload, map);
    at += kFrameHead + size;
  }
  return at;
}

std::uint64_t live_bytes(const JournalMap& map) {
  std::uint64_t bytes = 0;
  for (const auto& [key, value] : map) bytes += key.size() + value.size() + 24;
  return bytes;
}

}  // namespace troupe::control::internal
