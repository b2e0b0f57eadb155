#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels::cpu {
namespace {

TROUPE_KERNEL void plain(const Sgd& o, std::int64_t first, std::int64_t end) {
  float* __restrict weights = o.weights;
  const float* gradients = o.gradients;
  const float rate = o.rate, decay = o.decay, factor = o.gradient_scale;
  for (std::int64_t i = first; i < end; ++i)
    weights[i] -= rate * (gradients[i] * factor + decay * weights[i]);
}

TROUPE_KERNEL void with_momentum(const Sgd& o, std::int64_t first, std::int64_t end) {
  float* __restrict weights = o.weights;
  float* __restrict m = o.m;
  const float* gradients = o.gradients;
  const float rate = o.rate, decay = o.decay, factor = o.gradient_scale;
  const float momentum = o.momentum;
  const bool begin = o.first, nesterov = o.nesterov;
  for (std::int64_t i = first; i < end; ++i) {
    const float g = gradients[i] * factor + decay * weights[i];
    const float next = begin ? g : momentum * m[i] + g;
    m[i] = next;
    weights[i] -= rate * (nesterov ? g + momentum * next : next);
  }
}

}  // namespace

void sgd(Queue& queue, const Sgd& o) {
  internal::parallel(queue, o.n, internal::kCheap, [&](std::int64_t first, std::int64_t end) {
    if (o.momentum == 0.0f)
      plain(o, first, end);
    else
      with_momentum(o, first, end);
  });
}

}  // namespace troupe::kernels::cpu
