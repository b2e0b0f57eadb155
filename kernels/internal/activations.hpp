/// Activations of one element and their derivatives, written so that loops over them vectorise. The
/// CPU's activations, gated SiLU and products use them.
///
///     for (...) y[i] = value<Activation::gelu>(x[i]);
///
/// Results are finite for every finite input, and NaN for NaN.
#pragma once

#include "troupe/kernels/device/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels::internal {

/// Clamps x to [-10, 10]. At both ends the tanh of gelu is already -1 or 1, and its argument is
/// still in the range of exp_in_range().
template <class T>
TROUPE_INLINE T gelu_range(T x) {
  x = x > T(10) ? T(10) : x;
  return x < T(-10) ? T(-10) : x;
}

/// tanh(sqrt(2 / pi) (x + 0.044715 x^3)), for x in [-10, 10].
template <class T>
TROUPE_INLINE T gelu_tanh(T x) {
  const T u = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
  if constexpr (sizeof(T) == sizeof(double)) return std::tanh(u);
  return T(1) - T(2) / (exp_in_range(T(2) * u) + T(1));
}

/// GELU in the tanh form: Hendrycks and Gimpel 2016, eq. 2.
template <class T>
TROUPE_INLINE T gelu(T x) {
  return T(0.5) * x * (T(1) + gelu_tanh(gelu_range(x)));
}

template <class T>
TROUPE_INLINE T gelu_slope(T x) {
  x = gelu_range(x);  // beyond it 1 - t * t is 0, so that the slope does not change
  const T t = gelu_tanh(x);
  const T slope = T(0.7978845608028654) * (T(1) + T(3) * T(0.044715) * x * x);
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope;
}

/// 1 / (1 + e^-x) and its complement, both with full relative precision. The exponential is taken
/// of -|x|, so that it cannot overflow.
template <class T>
struct Sigmoid {
  T value, rest;
};
template <class T>
TROUPE_INLINE Sigmoid<T> sigmoid(T x) {
  const T power = exp_below(x < T(0) ? x : -x);
  const T large = T(1) / (T(1) + power), small = power / (T(1) + power);
  return {x < T(0) ? small : large, x < T(0) ? large : small};
}

template <class T>
TROUPE_INLINE T silu(T x) {
  return x * sigmoid(x).value;
}

template <class T>
TROUPE_INLINE T silu_slope(T x) {
  const Sigmoid<T> s = sigmoid(x);
  return s.value * (T(1) + x * s.rest);
}

template <Activation activation, class T>
TROUPE_INLINE T value(T x) {
  if constexpr (activation == Activation::relu) return x <= T(0) ? T(0) : x;
  if constexpr (activation == Activation::gelu) return gelu(x);
  if constexpr (activation == Activation::silu) return silu(x);
  return x;
}

/// dout * act'(x). Where relu is 0 the result is 0 even if dout is infinite or NaN (KERN-6).
template <Activation activation, class T>
TROUPE_INLINE T gradient(T x, T dout) {
  if constexpr (activation == Activation::relu) {
    const T used = x <= T(0) ? T(0) : x;  // NaN if x is NaN
    return x > T(0) ? dout : used;
  }
  if constexpr (activation == Activation::gelu) return dout * gelu_slope(x);
  if constexpr (activation == Activation::silu) return dout * silu_slope(x);
  return dout;
}

}  // namespace troupe::kernels::internal
