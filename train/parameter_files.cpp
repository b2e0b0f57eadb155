#include "troupe/train/parameter_files.hpp"

#include "troupe/train/internal/reject.hpp"

#include <cstring>

namespace troupe::train {

std::vector<FileTensor> views(const ParameterMap& map, std::span<const float> slab) {
  internal::require(slab.size() == static_cast<std::size_t>(map.size()),
                    "the slab does not fit the map");
  std::vector<FileTensor> result;
  for (const Parameter& tensor : map.tensors())
    result.push_back({tensor.name, FileType::f32, tensor.shape,
                      std::as_bytes(slab.subspan(static_cast<std::size_t>(tensor.offset),
                                                 static_cast<std::size_t>(tensor.size)))});
  return result;
}

void load_parameters(const SafetensorsFile& file, const ParameterMap& map, std::span<float> slab) {
  internal::require(slab.size() == static_cast<std::size_t>(map.size()),
                    "the slab does not fit the map");
  std::vector<const FileTensor*> sources;
  for (const Parameter& tensor : map.tensors()) {
    const FileTensor* source = file.find(tensor.name);
    if (source == nullptr) internal::reject("the file has no tensor " + tensor.name);
    if (source->type != FileType::f32 || source->shape != tensor.shape)
      internal::reject("tensor " + tensor.name + " of the file has another type or shape");
    sources.push_back(source);
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (!sources[i]->bytes.empty())
      std::memcpy(slab.data() + map.tensors()[i].offset, sources[i]->bytes.data(),
                  sources[i]->bytes.size());
}

}  // namespace troupe::train
