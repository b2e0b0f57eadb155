#include "troupe/train/adamw.hpp"

#include "troupe/kernels/adamw/adamw.hpp"
#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/norm/norm.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/optimizers/norm.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::train {

std::vector<double> chunk_squares(std::span<const float> gradients) {
  const kernels::FlushDenormals flush;
  const auto size = static_cast<std::int64_t>(gradients.size());
  std::vector<double> squares;
  squares.reserve(static_cast<std::size_t>((size + kNormChunk - 1) / kNormChunk));
  for (std::int64_t first = 0; first < size; first += kNormChunk)
    squares.push_back(
        kernels::sum_of_squares(gradients.data() + first, std::min(kNormChunk, size - first)));
  return squares;
}

double global_norm(const ParameterMap& map, std::span<const float> gradients) {
  internal::require(gradients.size() == static_cast<std::size_t>(map.size()),
                    "global_norm: the gradients do not fit the map");
  double total = 0;
  for (const Unit& unit : map.units())
    for (const double square : chunk_squares(gradients.subspan(
             static_cast<std::size_t>(unit.offset), static_cast<std::size_t>(unit.size))))
      total += square;
  return std::sqrt(total);
}

double global_norm(std::span<const float> gradients) {
  double total = 0;
  for (const double square : chunk_squares(gradients)) total += square;
  return std::sqrt(total);
}

double AdamW::update(const ParameterMap& map, std::span<float> parameters,
                     std::span<const float> gradients, const AdamWOptions& options) {
  const auto size = static_cast<std::size_t>(map.size());
  internal::require(parameters.size() == size, "AdamW: the parameters do not fit the map");
  internal::require(gradients.size() == size, "AdamW: the gradients do not fit the map");
  internal::require(m_.size() == size && v_.size() == size,
                    "AdamW: the optimizer's state does not fit the map");
  const kernels::FlushDenormals flush;
  const double norm = global_norm(map, gradients);
  if (!std::isfinite(norm)) return norm;
  ++steps_;
  kernels::AdamWStep step{.rate = options.rate,
                          .beta1 = options.beta1,
                          .beta2 = options.beta2,
                          .epsilon = options.epsilon,
                          .decay = 0.0f,
                          .gradient_scale = clip_factor(norm, options.max_norm),
                          .step = steps_};
  for (const Parameter& tensor : map.tensors()) {
    step.decay = tensor.decay ? options.decay : 0.0f;
    const auto first = static_cast<std::size_t>(tensor.offset);
    kernels::adamw(parameters.data() + first, m_.data() + first, v_.data() + first,
                   gradients.data() + first, tensor.size, step);
  }
  return norm;
}

}  // namespace troupe::train
