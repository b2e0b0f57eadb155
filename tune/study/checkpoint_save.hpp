/// CheckpointSave: a model that becomes a file of a study, or is one.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <string>

namespace troupe::tune {

/// A model in the object store that is to become a file, or is one.
struct CheckpointSave {
  std::string key;  ///< names the file; letters, digits, '-', '_' and '.'
  std::uint32_t trial = 0;
  long step = 0;
  std::string hash = {};  ///< of the model's bytes, hexadecimal
  std::uint64_t bytes = 0;
};

/// Returns a hash as CheckpointSave::hash has it: 16 hexadecimal digits.
TROUPE_API std::string hash_text(std::uint64_t hash);

/// Returns the line that warns when the checkpoints of all trials will not fit, two files each and
/// the best; empty when they will.
TROUPE_API std::string why_not_all_fit(std::uint64_t bytes_of_one, std::uint64_t trials,
                                       std::uint64_t free_bytes);

}  // namespace troupe::tune
