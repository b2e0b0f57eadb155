/// Which slots of a process's doorbell are taken, and which of all slots a mark may mean.
#pragma once

#include "troupe/runtime/ring/doorbell.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::agent {

/// A slot that comes back is given out again. The process hears of the end of its last peer by the
/// ring and of the next one by the socket, in any order: see ClientEngine::on_channel().
class DoorbellSlots {
 public:
  explicit DoorbellSlots(std::uint32_t first) noexcept : next_(first) {}
  /// ring::kMaxSlots and more: none is left.
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

/// The agent owns more slots than its doorbell has marks, in a large cluster: calls `look` with
/// each that the mark of `slot` may mean.
template <class Look>
void each_slot_of_mark(std::uint32_t slot, std::size_t slots, const Look& look) {
  for (std::size_t at = slot % ring::kMaxSlots; at < slots; at += ring::kMaxSlots)
    look(static_cast<std::uint32_t>(at));
}

}  // namespace troupe::agent
