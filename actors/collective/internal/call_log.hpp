/// CallLog: the calls of a rank (call.hpp) in the memory that all ranks share, and their comparison
/// with those of other ranks.
#pragma once

#include "troupe/actors/collective/internal/arena.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::collective::internal {

class CallLog {
 public:
  /// Of a rank of the arena. `whole`: its group has all ranks of the arena, and of other nodes.
  /// `first`: the number that texts give rank 0 of the arena.
  CallLog(Arena& arena, int rank, bool whole, int first = 0) noexcept
      : arena_(&arena), rank_(rank), whole_(whole), first_(first) {}

  bool is_whole() const noexcept { return whole_; }
  bool is_same(const CallLog& other) const noexcept {
    return arena_ == other.arena_ && rank_ == other.rank_;
  }
  /// Records the rank's next call. Returns its stamp, which is equal on ranks that make the same
  /// calls, and never 0.
  std::uint64_t begin(std::string_view name) noexcept;
  /// Returns a sentence when two ranks have made different calls at the same place of the order, at
  /// which this rank has been; otherwise an empty text. Any thread.
  std::string difference() const;
  /// Returns the number of a call, from 1, and the name of this rank's call with a number; empty
  /// when it is not known any more.
  static std::uint64_t number_of(std::uint64_t stamp) noexcept { return stamp >> 24; }
  std::string name_of(std::uint64_t number) const { return name_of(rank_, number); }

 private:
  /// Returns a sentence about the first two ranks whose calls of this number differ, or nothing.
  std::string difference_at(std::uint64_t number) const;
  /// Returns the name of a call of a rank; empty when it is not known any more.
  std::string name_of(int rank, std::uint64_t number) const;

  Arena* arena_;
  int rank_;
  bool whole_;
  int first_;
};

/// Returns the sentence about two ranks that have made different calls.
std::string difference_of(int first, const std::string& its_call, int other,
                          const std::string& other_call);

}  // namespace troupe::collective::internal
