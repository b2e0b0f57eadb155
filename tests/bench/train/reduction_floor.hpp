/// What two processes need at least to add their gradients: a plain loop through shared memory.
///
///     ReductionFloor floor(/*elements=*/parameters);
///     double seconds = floor.measure(/*times=*/20);       // the median of one sum
#pragma once

#include "measure.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::bench {

/// Each side has a slab of its own. Piece after piece it copies its elements to where the other side
/// reads them, waits for the other's, and adds both: one meeting a piece, two places for pieces in
/// turn. Both sides compute at the same time, on a CPU each.
class ReductionFloor {
 public:
  /// Forks the other side: only in a process without other threads. Throws std::runtime_error when
  /// there is no memory for both to share.
  explicit ReductionFloor(std::int64_t elements);
  ReductionFloor(const ReductionFloor&) = delete;
  ReductionFloor& operator=(const ReductionFloor&) = delete;
  ~ReductionFloor();
  /// Median seconds of a sum, both sides counted. Throws std::runtime_error when a sum is wrong.
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
