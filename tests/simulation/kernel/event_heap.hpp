/// The simulator's event queue: slots ordered by due time and, where times are equal, by the
/// order of their insertion. It is a heap with four children per node, whose keys are compared as
/// one integer. A slot in the queue can be moved or removed.
///
///     EventHeap due;
///     due.push(at, slot);
///     due.move(slot, sooner);
///     while (!due.empty()) run(due.pop());
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::sim {

/// Slots are small numbers. A slot is in the heap at most once.
class EventHeap {
 public:
  bool empty() const noexcept { return entries_.empty(); }
  Time next() const noexcept { return time_of(entries_.front()); }
  /// Returns the due time of a slot that is in the heap.
  Time at(std::uint32_t slot) const noexcept { return time_of(entries_[places_[slot]]); }

  void push(Time at, std::uint32_t slot) {
    if (slot >= places_.size()) places_.resize(slot + 1);
    entries_.emplace_back();
    rise(entries_.size() - 1, key_of(at, slot));
  }

  /// Removes and returns the slot that is due first.
  std::uint32_t pop() {
    const std::uint32_t slot = slot_of(entries_.front());
    erase(slot);
    return slot;
  }

  /// Gives a slot another due time. Among equal times it comes last, as if it were inserted now.
  void move(std::uint32_t slot, Time at) { settle(places_[slot], key_of(at, slot)); }

  void erase(std::uint32_t slot) {
    const Key last = entries_.back();
    entries_.pop_back();
    if (slot_of(last) != slot) settle(places_[slot], last);
  }

 private:
  /// Due time, insertion number and slot, from the highest bits to the lowest. One comparison of
  /// two keys therefore orders by time, then by insertion.
  __extension__ using Key = unsigned __int128;

  Key key_of(Time at, std::uint32_t slot) {
    const auto when = static_cast<std::uint64_t>(at.time_since_epoch().count());
    return static_cast<Key>(when) << 64 | static_cast<std::uint64_t>(sequence_++) << 32 | slot;
  }
  static std::uint32_t slot_of(Key key) noexcept { return static_cast<std::uint32_t>(key); }
  static Time time_of(Key key) noexcept {
    return Time(Duration(static_cast<std::int64_t>(key >> 64)));
  }

  void put(std::size_t place, Key key) {
    entries_[place] = key;
    places_[slot_of(key)] = static_cast<std::uint32_t>(place);
  }
  void settle(std::size_t place, Key key) {
    if (place > 0 && key < entries_[(place - 1) / 4])
      rise(place, key);
    else
      sink(place, key);
  }
  void rise(std::size_t place, Key key) {
    while (place > 0) {
      const std::size_t above = (place - 1) / 4;
      if (entries_[above] < key) break;
      put(place, entries_[above]);
      place = above;
    }
    put(place, key);
  }
  void sink(std::size_t place, Key key) {
    const std::size_t size = entries_.size();
    for (std::size_t first = 4 * place + 1; first < size; first = 4 * place + 1) {
      std::size_t least = first;
      const std::size_t end = std::min(first + 4, size);
      for (std::size_t i = first + 1; i < end; ++i)
        if (entries_[i] < entries_[least]) least = i;
      if (key < entries_[least]) break;
      put(place, entries_[least]);
      place = least;
    }
    put(place, key);
  }

  std::vector<Key> entries_;
  std::vector<std::uint32_t> places_;  ///< by slot; valid only for slots in the heap
  std::uint32_t sequence_ = 0;
};

}  // namespace troupe::sim
