/// The tensors of a slab in safetensors files.
///
///     std::vector<FileTensor> tensors = views(model.map(), model.parameters());
///     write_safetensors_file("step-100.safetensors", tensors).value();
///     load_parameters(file, model.map(), model.parameters());
#pragma once

#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/train/parameters.hpp"

#include <span>
#include <vector>

namespace troupe::train {

/// Every tensor of a slab as a view on it.
TROUPE_API std::vector<FileTensor> views(const ParameterMap& map, std::span<const float> slab);
/// Copies every tensor of the map from the file into the slab. Throws InvalidArgument, and changes
/// nothing, when one is missing, is not F32 or has another shape. Tensors of the file that the map
/// does not know are ignored.
TROUPE_API void load_parameters(const SafetensorsFile& file, const ParameterMap& map,
                                std::span<float> slab);

}  // namespace troupe::train
