/// SlabPool: memory for units in use, which are gathered weights and gradients in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace troupe::train::internal {

/// Keeps returned slabs for later requests of the same size. The pool never holds more bytes than
/// were in use at one time: before an allocation that would exceed this peak, it frees the slabs
/// that were idle longest. A Slab has bytes() and frees its memory in its destructor.
template <class Slab>
class SlabPool {
 public:
  explicit SlabPool(std::function<Slab(std::int64_t)> allocate) : allocate_(std::move(allocate)) {}

  /// Returns a slab with undefined content. Throws what `allocate` throws.
  Slab take(std::int64_t bytes) {
    const auto found = std::find_if(idle_.begin(), idle_.end(),
                                    [&](const Slab& slab) { return bytes_of(slab) == bytes; });
    if (found != idle_.end()) {
      Slab slab = std::move(*found);
      idle_.erase(found);
      return slab;
    }
    make_room(bytes);
    Slab slab = allocate_(bytes);
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return slab;
  }

  void give_back(Slab slab) { idle_.push_back(std::move(slab)); }

  std::int64_t held() const noexcept { return held_; }
  std::int64_t peak() const noexcept { return peak_; }

 private:
  static std::int64_t bytes_of(const Slab& slab) { return static_cast<std::int64_t>(slab.bytes()); }
  void make_room(std::int64_t bytes) {
    auto kept = idle_.begin();
    for (; kept != idle_.end() && held_ + bytes > peak_; ++kept) held_ -= bytes_of(*kept);
    idle_.erase(idle_.begin(), kept);
  }

  std::function<Slab(std::int64_t)> allocate_;
  std::vector<Slab> idle_;  // in the order in which they were returned
  std::int64_t held_ = 0, peak_ = 0;
};

}  // namespace troupe::train::internal
