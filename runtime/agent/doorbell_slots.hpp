/// Slots of doorbells, for the agent: gives out those of a process's doorbell, and finds the slots
/// that a mark in the agent's own may stand for.
#pragma once

#include "troupe/runtime/ring/doorbell.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::agent {

/// Gives out the slots of one process's doorbell. A slot that is given back is given out again. The
/// process learns of the death of the slot's old peer from its ring and of the new peer from its
/// socket, in any order: see ClientEngine::on_channel().
class DoorbellSlots {
 public:
  explicit DoorbellSlots(std::uint32_t first) noexcept : next_(first) {}
  /// Returns a free slot; a number of ring::kMaxSlots or more says that none is left.
  std::uint32_t take() {
    if (free_.empty()) return next_++;
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::uint32_t slot) { free_.push_back(slot); }

 private:
  std::uint32_t next_;
  std::vector<std::uint32_t> free_;
};

/// Calls `look` with each of `slots` slots that the mark of `slot` may stand for. In a large
/// cluster the agent has more slots than its doorbell has marks, so they share marks.
template <class Look>
void each_slot_of_mark(std::uint32_t slot, std::size_t slots, const Look& look) {
  for (std::size_t at = slot % ring::kMaxSlots; at < slots; at += ring::kMaxSlots)
    look(static_cast<std::uint32_t>(at));
}

}  // namespace troupe::agent
