// AdamW of operations.hpp, with care for huge gradients:
// - If the square of a gradient overflows, (1 - beta2) * square often does not: it is then computed
//   in another order.
// - A gradient for which that overflows, too, is clamped to the largest for which it does not. The
//   clamped value counts in both moments, so that their ratio, and with it the step, stays right.
// - A second moment that would overflow stays at the largest float. An infinite one would stop its
//   parameter for ever.
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <cmath>
#include <limits>

namespace troupe::kernels::cpu {
namespace {

struct AdamWFactors {
  float keep, beta1, rest1, beta2, rest2, rate, root2, epsilon, scale, limit;
};

constexpr float kLargest = std::numeric_limits<float>::max();

AdamWFactors adamw_factors(const AdamW& o) {
  const double t = static_cast<double>(o.step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(o.beta1), t);
  const double correction2 = 1.0 - std::pow(static_cast<double>(o.beta2), t);
  AdamWFactors f{};
  f.keep = static_cast<float>(1.0 - static_cast<double>(o.rate) * o.decay);
  f.beta1 = o.beta1;
  f.rest1 = 1.0f - o.beta1;
  f.beta2 = o.beta2;
  f.rest2 = 1.0f - o.beta2;
  f.rate = static_cast<float>(static_cast<double>(o.rate) / correction1);
  f.root2 = static_cast<float>(std::sqrt(correction2));
  f.epsilon = o.epsilon;
  f.scale = o.gradient_scale;
  f.limit =
      static_cast<float>(std::min(0.999 * std::sqrt(double{kLargest} / f.rest2), double{kLargest}));
  return f;
}

/// Clamps a finite x to [-limit, limit]. Infinities and NaN stay as they are.
TROUPE_INLINE float clamp_finite(float x, float limit) {
  const float inside = std::copysign(limit, x), size = std::fabs(x);
  return size > limit && size <= kLargest ? inside : x;
}

TROUPE_KERNEL void adamw_update(const AdamW& o, const AdamWFactors* factors, std::int64_t first,
                                std::int64_t end) {
  const AdamWFactors f = *factors;
  float* __restrict p = o.weights, * __restrict m = o.m, * __restrict v = o.v;
  const float* __restrict g = o.gradients;
  for (std::int64_t i = first; i < end; ++i) {
    const float gradient = clamp_finite(g[i] * f.scale, f.limit);
    const float square = gradient * gradient;
    const float small = f.rest2 * square, large = f.rest2 * gradient * gradient;
    const float m1 = f.beta1 * m[i] + f.rest1 * gradient;
    const float sum = f.beta2 * v[i] + (square <= kLargest ? small : large);
    const float v1 = sum > kLargest ? kLargest : sum;
    m[i] = m1;
    v[i] = v1;
    p[i] = p[i] * f.keep - f.rate * m1 / (std::sqrt(v1) / f.root2 + f.epsilon);
  }
}

}  // namespace

void adamw(Queue& queue, const AdamW& o) {
  const AdamWFactors f = adamw_factors(o);
  internal::parallel(queue, o.n, internal::kDear, [&](std::int64_t first, std::int64_t end) {
    adamw_update(o, &f, first, end);
  });
}

}  // namespace troupe::kernels::cpu
