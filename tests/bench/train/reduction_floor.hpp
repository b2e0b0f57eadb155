/// The floor of a gradient reduction: two processes add their gradients with a plain loop through
/// shared memory.
///
///     ReductionFloor floor(/*elements=*/parameters);
///     double seconds = floor.measure(/*times=*/20);       // the median of one sum
#pragma once

#include "measure.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::bench {

/// Each side has its own slab. For each piece, a side copies its elements into shared memory,
/// waits for the other side's piece, and adds both. There are two places for pieces, used in
/// turn. Both sides compute at the same time, each on its own CPU.
class ReductionFloor {
 public:
  /// Forks the other side. Precondition: this process has no other threads. Throws
  /// std::runtime_error when there is no memory to share.
  explicit ReductionFloor(std::int64_t elements);
  ReductionFloor(const ReductionFloor&) = delete;
  ReductionFloor& operator=(const ReductionFloor&) = delete;
  ~ReductionFloor();
  /// Returns the median seconds of a sum, in which both sides take part. Throws
  /// std::runtime_error when a sum is wrong.
  double measure(int times);

 private:
  struct Shared;
  void add(int side, std::uint64_t& met);
  void serve();
  std::vector<float> slab_;
  Shared* shared_ = nullptr;
  std::uint64_t met_ = 0;
  std::unique_ptr<Other> other_;
};

}  // namespace troupe::bench
