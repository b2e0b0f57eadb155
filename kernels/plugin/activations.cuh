/// Activations of one element, as kernels/internal/activations.hpp has them for the CPU.
#pragma once

#include "internal.cuh"

namespace troupe_cuda {

/// Clamps x to [-10, 10]: beyond 10 the tanh of gelu is 1, and the cube of x could overflow.
__device__ inline float gelu_range(float x) {
  return x > 10.0f ? 10.0f : x < -10.0f ? -10.0f : x;
}
__device__ inline float gelu_tanh(float x) {
  return tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x));
}

struct Sigmoid {
  float value, rest;
};
__device__ inline Sigmoid sigmoid(float x) {
  const float power = expf(x < 0.0f ? x : -x);
  const float large = 1.0f / (1.0f + power), small = power / (1.0f + power);
  return x < 0.0f ? Sigmoid{small, large} : Sigmoid{large, small};
}

__device__ inline float value_of(Activation activation, float x) {
  switch (activation) {
    case Activation::relu: return x <= 0.0f ? 0.0f : x;
    case Activation::gelu: return 0.5f * x * (1.0f + gelu_tanh(gelu_range(x)));
    case Activation::silu: return x * sigmoid(x).value;
    case Activation::none: break;
  }
  return x;
}

__device__ inline float gelu_slope(float wide) {
  const float x = gelu_range(wide), t = gelu_tanh(x);
  const float slope = 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
}

__device__ inline float gradient_of(Activation activation, float x, float dout) {
  switch (activation) {
    case Activation::relu: return x > 0.0f ? dout : x <= 0.0f ? 0.0f : x;
    case Activation::gelu: return dout * gelu_slope(x);
    case Activation::silu: {
      const Sigmoid s = sigmoid(x);
      return dout * (s.value * (1.0f + x * s.rest));
    }
    case Activation::none: break;
  }
  return dout;
}

}  // namespace troupe_cuda
