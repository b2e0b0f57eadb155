/// Memory for units in use: gathered weights, gradients in flight.
#pragma once

#include "troupe/kernels/device/device.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::train::internal {

/// Keeps what was given back for the next one of the same size. Before it allocates it frees what
/// is idle, so it never holds more than was once in use at the same time.
class SlabPool {
 public:
  explicit SlabPool(kernels::Device& device) : device_(device) {}

  /// Its content is whatever was there. Throws OutOfMemory.
  kernels::Memory take(std::int64_t bytes) {
    const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const kernels::Memory& slab) {
      return static_cast<std::int64_t>(slab.bytes()) == bytes;
    });
    if (found != idle_.end()) {
      kernels::Memory slab = std::move(*found);
      idle_.erase(found);
      return slab;
    }
    free_idle();
    kernels::Memory slab = device_.allocate(static_cast<std::size_t>(bytes));
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return slab;
  }

  void give_back(kernels::Memory slab) { idle_.push_back(std::move(slab)); }

  std::int64_t held() const noexcept { return held_; }
  std::int64_t peak() const noexcept { return peak_; }

 private:
  void free_idle() {
    for (const kernels::Memory& slab : idle_) held_ -= static_cast<std::int64_t>(slab.bytes());
    idle_.clear();
  }

  kernels::Device& device_;
  std::vector<kernels::Memory> idle_;
  std::int64_t held_ = 0, peak_ = 0;
};

}  // namespace troupe::train::internal
