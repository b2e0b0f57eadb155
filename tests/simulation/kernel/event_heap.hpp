/// What is due, by its time, and in the order of its coming where times are equal: a heap of four
/// children a node, whose keys are compared at one go.
///
///     EventHeap due;
///     due.push(at, slot);
///     while (!due.empty()) run(due.pop());
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::sim {

class EventHeap {
 public:
  bool empty() const noexcept { return entries_.empty(); }
  Time next() const noexcept {
    return Time(Duration(static_cast<std::int64_t>(entries_.front().key >> 64)));
  }

  void push(Time at, std::uint32_t slot) {
    const auto when = static_cast<std::uint64_t>(at.time_since_epoch().count());
    const Entry entry{static_cast<Key>(when) << 64 | sequence_++, slot};
    std::size_t place = entries_.size();
    entries_.push_back(entry);
    while (place > 0) {
      const std::size_t above = (place - 1) / 4;
      if (entries_[above].key < entry.key) break;
      entries_[place] = entries_[above];
      place = above;
    }
    entries_[place] = entry;
  }

  /// The slot of the earliest.
  std::uint32_t pop() {
    const std::uint32_t slot = entries_.front().slot;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) sink(last);
    return slot;
  }

 private:
  __extension__ using Key = unsigned __int128;
  struct Entry {
    Key key;
    std::uint32_t slot;
  };

  /// From the root.
  void sink(const Entry& entry) {
    const std::size_t size = entries_.size();
    std::size_t place = 0;
    for (std::size_t first = 1; first < size; first = 4 * place + 1) {
      std::size_t least = first;
      const std::size_t end = std::min(first + 4, size);
      for (std::size_t i = first + 1; i < end; ++i)
        if (entries_[i].key < entries_[least].key) least = i;
      if (entry.key < entries_[least].key) break;
      entries_[place] = entries_[least];
      place = least;
    }
    entries_[place] = entry;
  }

  std::vector<Entry> entries_;
  std::uint64_t sequence_ = 0;
};

}  // namespace troupe::sim
