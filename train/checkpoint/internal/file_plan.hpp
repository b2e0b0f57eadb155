/// FilePlan: header and order of tensors of a safetensors file, for writing it without a copy of
/// its data.
#pragma once

#include "troupe/train/checkpoint/safetensors.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::train::internal {

struct FilePlan {
  std::string head;                      ///< length and header, with padding
  std::vector<const FileTensor*> order;  ///< of the data after it
  std::uint64_t data_size = 0;
};

/// Plans a file. Throws as write_safetensors().
FilePlan plan_file(std::span<const FileTensor> tensors, const Metadata& metadata);

}  // namespace troupe::train::internal
