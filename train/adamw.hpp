/// AdamW over a slab, with the gradient clipped by its global norm.
///
///     AdamW optimizer(model.map().size());
///     double norm = optimizer.update(model.map(), model.parameters(), model.gradients(),
///                                    {.rate = 1e-3f});
#pragma once

#include "troupe/train/parameters.hpp"

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

namespace troupe::train {

/// Elements of a chunk of the global norm.
inline constexpr std::int64_t kNormChunk = 1024;

/// The squared sum of each chunk of a range of a unit, in double; the last chunk may be short. The
/// range begins at a chunk of its unit. Ranks that own ranges of a unit get the same numbers as one
/// that has it whole.
TROUPE_API std::vector<double> chunk_squares(std::span<const float> gradients);
/// Euclidean norm of all gradients in double: the chunks' squares, added by (unit, chunk), units in
/// forward order. So the bits depend neither on buckets nor on which rank owns what. Not finite
/// when a gradient is not. Throws InvalidArgument when the gradients do not fit the map.
TROUPE_API double global_norm(const ParameterMap& map, std::span<const float> gradients);
/// The same for gradients that are one unit.
TROUPE_API double global_norm(std::span<const float> gradients);
/// What to multiply gradients with so that their norm is at most max_norm (torch's formula, epsilon
/// 1e-6); 1 when max_norm is 0 (no clip).
TROUPE_API float clip_factor(double norm, double max_norm);

struct AdamWOptions {
  float rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float epsilon = 1e-8f;
  float decay = 0.1f;
  double max_norm = 1.0;  ///< 0: no clip
};

class TROUPE_API AdamW {
 public:
  AdamW() = default;
  explicit AdamW(std::int64_t slab_size)
      : m_(static_cast<std::size_t>(slab_size)), v_(static_cast<std::size_t>(slab_size)) {}

  /// One step over every tensor; returns the norm before the clip. A norm that is not finite leaves
  /// everything as it was (and counts no step): the caller sees it in the result. Throws
  /// InvalidArgument when a size differs from the map's. Elementwise in the slab: equal inputs give
  /// equal bits on every rank.
  double update(const ParameterMap& map, std::span<float> parameters,
                std::span<const float> gradients, const AdamWOptions& options);

  std::int64_t steps() const noexcept { return steps_; }
  std::span<const float> first_moment() const noexcept { return m_; }
  std::span<const float> second_moment() const noexcept { return v_; }

  friend auto fields(AdamW& o) { return std::tie(o.m_, o.v_, o.steps_); }
  friend auto fields(const AdamW& o) { return std::tie(o.m_, o.v_, o.steps_); }

 private:
  std::vector<float> m_, v_;
  std::int64_t steps_ = 0;
};

}  // namespace troupe::train
