/// Loads and stores of activations and weights. Numbers are f32 in registers: load() widens 16-bit
/// ones, and store() rounds to the nearest, ties to even.
#pragma once

#include "internal.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

namespace troupe_cuda {

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float widen(__half x) {
  return __half2float(x);
}

/// Returns element i of memory that holds numbers of type T.
template <class T>
__device__ float load(const void* memory, int64_t i) {
  return widen(static_cast<const T*>(memory)[i]);
}
template <class T>
__device__ void store(void* memory, int64_t i, float value) {
  T& to = static_cast<T*>(memory)[i];
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    to = __float2bfloat16_rn(value);
  else if constexpr (std::is_same_v<T, __half>)
    to = __float2half_rn(value);
  else
    to = value;
}

/// Calls f with a value of the C++ type for `type`.
template <class F>
int of_type(DType type, const F& f) {
  switch (type) {
    case DType::f32: return f(float());
    case DType::bf16: return f(__nv_bfloat16());
    case DType::f16: return f(__half());
    default: return cudaErrorNotSupported;
  }
}

}  // namespace troupe_cuda
