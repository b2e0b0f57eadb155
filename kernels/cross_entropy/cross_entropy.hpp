/// Softmax cross-entropy over rows of logits, in nats, with and without its gradient.
///
///     cross_entropy_forward(losses, logits, targets, rows, classes);
///     // the same, and logits become their gradient
///     cross_entropy_fused(losses, logits, targets, rows, classes, 1.0f / rows);
///
/// A row whose target is kIgnore has loss 0 and gradient 0; every other target must be in
/// [0, classes) (the caller checks).
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

inline constexpr std::int32_t kIgnore = -1;

/// losses[r] = -log softmax(logits[r])[targets[r]].
TROUPE_API void cross_entropy_forward(float* losses, const float* logits,
                                      const std::int32_t* targets, std::int64_t rows,
                                      std::int64_t classes);
/// The same, and overwrites logits with scale * d(losses[r])/d(logits[r]).
TROUPE_API void cross_entropy_fused(float* losses, float* logits, const std::int32_t* targets,
                                    std::int64_t rows, std::int64_t classes, float scale);

}  // namespace troupe::kernels
