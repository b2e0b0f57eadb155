#include "troupe/kernels/adamw/adamw.hpp"

#include "troupe/kernels/internal/simd.hpp"

#include <cmath>

namespace troupe::kernels {
namespace {

struct Factors {
  float keep, beta1, rest1, beta2, rest2, rate, root2, epsilon, scale;
};

TROUPE_KERNEL void update(float* __restrict p, float* __restrict m, float* __restrict v,
                          const float* __restrict g, std::int64_t n, const Factors* factors) {
  const Factors f = *factors;
  for (std::int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * f.scale;
    const float m1 = f.beta1 * m[i] + f.rest1 * gradient;
    const float v1 = f.beta2 * v[i] + f.rest2 * (gradient * gradient);
    m[i] = m1;
    v[i] = v1;
    p[i] = p[i] * f.keep - f.rate * m1 / (std::sqrt(v1) / f.root2 + f.epsilon);
  }
}

}  // namespace

void adamw(float* parameters, float* m, float* v, const float* gradients, std::int64_t n,
           const AdamWStep& step) {
  const double t = static_cast<double>(step.step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(step.beta1), t);
  const double correction2 = 1.0 - std::pow(static_cast<double>(step.beta2), t);
  Factors f{};
  f.keep = static_cast<float>(1.0 - static_cast<double>(step.rate) * step.decay);
  f.beta1 = step.beta1;
  f.rest1 = 1.0f - step.beta1;
  f.beta2 = step.beta2;
  f.rest2 = 1.0f - step.beta2;
  f.rate = static_cast<float>(static_cast<double>(step.rate) / correction1);
  f.root2 = static_cast<float>(std::sqrt(correction2));
  f.epsilon = step.epsilon;
  f.scale = step.gradient_scale;
  update(parameters, m, v, gradients, n, &f);
}

}  // namespace troupe::kernels
