/// The calls in flight to one worker, in the order of sending. Serves TaskManager and ActorCalls.
///
///     flight.make_room();                              // may throw, so before the call is sent
///     flight.push_back(task);                          // does not
///     const std::size_t at = flight.find(sequence);    // mostly the oldest
///     if (at != flight.size()) flight.take(at);
///
/// A ring buffer: it keeps eight bytes for each of the most calls that were ever in flight at
/// once.
#pragma once

#include "troupe/runtime/client/objects.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::client {

/// Pointer points to a record with a `sequence` that grows from one call to the next.
template <class Pointer>
class FlightQueue {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }
  /// Makes a place for one more.
  void make_room() {
    if (count_ == places_) grow();
  }
  /// Precondition: make_room() was called since the last push_back().
  void push_back(Pointer call) noexcept { place(count_++) = std::move(call); }
  /// Index 0 is the oldest.
  Pointer& operator[](std::size_t i) noexcept { return place(i); }
  const Pointer& operator[](std::size_t i) const noexcept { return place(i); }
  /// Returns the index of the call with this number; size(): none.
  std::size_t find(std::uint64_t sequence) const noexcept {
    if (count_ != 0 && place(0)->sequence == sequence) return 0;
    return search(sequence);
  }
  /// Returns the call that a reply is for; null: none has this number. Valid until the queue
  /// changes. Also fetches into the caches the result of a later call, whose reply comes soon.
  Pointer* answered(std::uint64_t sequence) noexcept {
    const std::size_t at = find(sequence);
    if (at == count_) return nullptr;
    if (count_ - at > kAhead)
      if (const auto& results = place(at + kAhead)->results; !results.empty())
        fetch_ahead(results.front());
    return &place(at);
  }
  /// Removes the i-th call. Linear in the number of older calls, or of newer ones if those are
  /// fewer.
  Pointer take(std::size_t i) noexcept {
    Pointer call = std::move(place(i));
    if (i <= count_ / 2) {
      for (; i > 0; --i) place(i) = std::move(place(i - 1));
      ++first_;
    } else {
      for (; i + 1 < count_; ++i) place(i) = std::move(place(i + 1));
    }
    --count_;
    return call;
  }

 private:
  /// The distance to the call whose result is fetched ahead: its reply comes soon, but not at
  /// once.
  static constexpr std::size_t kAhead = 4;

  Pointer& place(std::size_t i) const noexcept { return at_[(first_ + i) & (places_ - 1)]; }
  [[gnu::noinline]] std::size_t search(std::uint64_t sequence) const noexcept {
    std::size_t from = 0, to = count_;
    while (from < to) {
      const std::size_t middle = from + (to - from) / 2;
      if (place(middle)->sequence < sequence)
        from = middle + 1;
      else
        to = middle;
    }
    return from < count_ && place(from)->sequence == sequence ? from : count_;
  }
  [[gnu::noinline]] void grow() {
    const std::size_t places = places_ == 0 ? 16 : 2 * places_;
    auto at = std::make_unique<Pointer[]>(places);
    for (std::size_t i = 0; i < count_; ++i) at[i] = std::move(place(i));
    at_ = std::move(at);
    places_ = places;
    first_ = 0;
  }

  std::unique_ptr<Pointer[]> at_;
  std::size_t places_ = 0;  ///< a power of two, or 0
  std::size_t first_ = 0;   ///< of the oldest; grows without wrapping at places_
  std::size_t count_ = 0;
};

}  // namespace troupe::client
