/// WholeTensors: assembles whole tensors from the shards of a stage, for snapshots and hashes.
#pragma once

#include "troupe/train/engine/internal/parts.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::train::internal {

class WholeTensors {
 public:
  explicit WholeTensors(Parts& parts);

  /// Returns the pp rank that has the unit.
  int rank_of(int unit) const { return ranks_[static_cast<std::size_t>(unit)]; }

  /// Returns the whole values of the unit's tensors in its order; nothing on pp ranks that do not
  /// have the unit. Every rank of dp and tp calls it. Records a replicated tensor whose bytes
  /// differ over tp.
  std::vector<std::vector<float>> read(int unit, Part part);
  /// Returns a sentence, on all ranks, when any rank recorded a difference; otherwise an empty
  /// text. Every rank calls it.
  std::string difference();

 private:
  void compare(const TensorPlace& tensor, std::span<const float> shards);

  Parts* parts_;
  std::vector<int> ranks_;         // pp rank by unit
  std::vector<float> slab_, all_;  // one unit's values: this rank's, and those of all tp ranks
  std::string differs_;            // the first recorded tensor
  int differing_rank_ = 0;         // tp rank that differs
};

}  // namespace troupe::train::internal
