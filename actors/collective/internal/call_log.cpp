#include "troupe/actors/collective/internal/call_log.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace troupe::collective::internal {
namespace {

using Text = std::array<std::uint64_t, RankCalls::kWords>;

/// Returns a stamp: the number of the call, and 24 bits of a hash of its name.
std::uint64_t stamp_of(std::uint64_t number, std::string_view name) noexcept {
  std::uint32_t hash = 2166136261u;  // FNV-1a (Fowler, Noll, Vo)
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return number << 24 | hash >> 8;
}

}  // namespace

// The writer clears the entry's number before it changes the text, and a reader compares the number
// before and after its read. So a reader never takes a text that is half new.
std::uint64_t CallLog::begin(std::string_view name) noexcept {
  RankCalls& mine = arena_->calls(rank_);
  const std::uint64_t number = mine.count.load(std::memory_order_relaxed) + 1;
  RankCalls::Entry& entry = mine.entries[number % RankCalls::kKept];
  Text text{};
  std::memcpy(text.data(), name.data(), std::min(name.size(), sizeof text));
  entry.number.store(0, std::memory_order_release);
  for (std::size_t i = 0; i < text.size(); ++i)
    entry.text[i].store(text[i], std::memory_order_release);
  entry.number.store(number, std::memory_order_release);
  mine.count.store(number, std::memory_order_release);
  return stamp_of(number, name);
}

std::string CallLog::name_of(int rank, std::uint64_t number) const {
  const RankCalls::Entry& entry = arena_->calls(rank).entries[number % RankCalls::kKept];
  if (entry.number.load(std::memory_order_acquire) != number) return {};
  Text text{};
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = entry.text[i].load(std::memory_order_acquire);
  if (entry.number.load(std::memory_order_acquire) != number) return {};
  const auto* first = reinterpret_cast<const char*>(text.data());
  return {first, ::strnlen(first, sizeof text)};
}

std::string CallLog::difference() const {
  const std::uint64_t own = arena_->calls(rank_).count.load(std::memory_order_acquire);
  std::uint64_t compared = 0;  // most ranks have come equally far
  for (int other = 0; own != 0 && other < arena_->size(); ++other) {
    const std::uint64_t theirs = arena_->calls(other).count.load(std::memory_order_acquire);
    const std::uint64_t number = std::min(own, theirs);
    if (other == rank_ || number == 0 || number == compared) continue;
    compared = number;
    const std::string difference = difference_at(number);
    if (!difference.empty()) return difference;
  }
  return {};
}

std::string difference_of(int first, const std::string& its_call, int other,
                          const std::string& other_call) {
  return "rank " + std::to_string(first) + " called " + its_call + " while rank " +
         std::to_string(other) + " called " + other_call +
         ": every rank must make the same calls in the same order";
}

std::string CallLog::difference_at(std::uint64_t number) const {
  std::string first;
  for (int rank = 0, of_first = 0; rank < arena_->size(); ++rank) {
    const std::string name = name_of(rank, number);
    if (first.empty()) {
      first = name;
      of_first = rank;
    } else if (!name.empty() && name != first) {
      return difference_of(first_ + of_first, first, first_ + rank, name);
    }
  }
  return {};
}

}  // namespace troupe::collective::internal
