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

  /// This rank's unit of the whole model's unit `number`; -1 when another stage has it.
  int unit_of(int number) const { return units_[static_cast<std::size_t>(number)]; }
  /// The stage that has it. Known after find_stages().
  int stage_of(int number) const { return stages_[static_cast<std::size_t>(number)]; }
  /// Every rank of pp calls it.
  void find_stages();

  /// The whole values of the tensors of a unit that this rank has, in the order of the unit. Every
  /// rank of dp and tp calls it. Notes a replicated tensor whose bytes differ over tp.
  std::vector<std::vector<float>> read(int unit, Part part);
  /// A sentence on all ranks when any of them noted a difference; else empty. Every rank calls it.
  std::string difference();

 private:
  void compare(const TensorPlace& tensor, std::span<const float> shards);

  Parts* parts_;
  std::vector<int> units_, stages_;  // by number
  std::vector<float> slab_, all_;    // of one unit: this rank's, those of all tp ranks
  std::string differs_;              // the first tensor that was noted
  int differing_rank_ = 0;           // of tp
};

}  // namespace troupe::train::internal
