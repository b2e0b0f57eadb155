/// Whole tensors out of the shards of a stage.
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

  /// The rank of pp that has the unit.
  int rank_of(int unit) const { return ranks_[static_cast<std::size_t>(unit)]; }

  /// The whole values of the unit's tensors, in its order; none on ranks of pp that do not have it.
  /// Every rank of dp and tp calls it. Notes a replicated tensor whose bytes differ over tp.
  std::vector<std::vector<float>> read(int unit, Part part);
  /// A sentence on all ranks when any of them noted a difference; else empty. Every rank calls it.
  std::string difference();

 private:
  void compare(const TensorPlace& tensor, std::span<const float> shards);

  Parts* parts_;
  std::vector<int> ranks_;         // of pp, by unit
  std::vector<float> slab_, all_;  // of one unit: this rank's, those of all tp ranks
  std::string differs_;            // the first tensor that was noted
  int differing_rank_ = 0;         // of tp
};

}  // namespace troupe::train::internal
