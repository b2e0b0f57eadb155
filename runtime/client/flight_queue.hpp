/// Calls under way to one worker, in the order in which they were sent.
///
///     flight.make_room();                              // may throw, so before the call is sent
///     flight.push_back(task);                          // does not
///     const std::size_t at = flight.find(sequence);    // mostly the oldest
///     if (at != flight.size()) flight.take(at);
///
/// Eight bytes for each of the most that were ever under way at once are kept.
#pragma once

#include "troupe/runtime/client/objects.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::client {

/// Pointer leads to a record with a `sequence`, which grows from one to the next.
template <class Pointer>
class FlightQueue {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }
  /// There is a place for one more.
  void make_room() {
    if (count_ == places_) grow();
  }
  /// Precondition: make_room() since the last one.
  void push_back(Pointer call) noexcept { place(count_++) = std::move(call); }
  /// The oldest is 0.
  Pointer& operator[](std::size_t i) noexcept { return place(i); }
  const Pointer& operator[](std::size_t i) const noexcept { return place(i); }
  /// Which has this number; size(): none.
  std::size_t find(std::uint64_t sequence) const noexcept {
    if (count_ != 0 && place(0)->sequence == sequence) return 0;
    return search(sequence);
  }
  /// The same for a reply to it: whose replies come soon after are fetched into the caches. Null:
  /// none has this number. Valid until the queue changes.
  Pointer* answered(std::uint64_t sequence) noexcept {
    const std::size_t at = find(sequence);
    if (at == count_) return nullptr;
    if (count_ - at > kAhead)
      if (const auto& results = place(at + kAhead)->results; !results.empty())
        fetch_ahead(results.front());
    return &place(at);
  }
  /// Takes it out. Linear in how many are older, or newer if those are fewer.
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
  /// How far behind one is whose reply comes soon, but is not being handled yet.
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
  std::size_t first_ = 0;   ///< of the oldest; counts on
  std::size_t count_ = 0;
};

}  // namespace troupe::client
