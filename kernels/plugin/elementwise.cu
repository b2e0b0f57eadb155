// Elementwise operations and optimizers. Code that must give the same bits as the CPU uses
// __fmul_rn and similar functions, which nvcc does not contract to fused multiply-adds.
#include "activations.cuh"
#include "internal.cuh"
#include "numbers.cuh"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe_cuda {
namespace {

/// Returns the place of element i in a matrix with `row` elements from row to row.
__device__ int64_t apart(int64_t i, int64_t columns, int64_t row) {
  return i / columns * row + i % columns;
}

__device__ uint4 philox4x32(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

__device__ uint32_t philox_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint64_t block = index / 4;
  const uint4 r =
      philox4x32(make_uint4(static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)),
                 make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)));
  const uint32_t words[4] = {r.x, r.y, r.z, r.w};
  return words[index % 4];
}

template <class To, class From>
__device__ To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<To, __nv_bfloat16> && std::is_same_v<From, double>)
    return __double2bfloat16(x);
  else if constexpr (std::is_same_v<To, __nv_bfloat16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, __half> && std::is_same_v<From, double>)
    return __double2half(x);
  else if constexpr (std::is_same_v<To, __half>)
    return __float2half_rn(static_cast<float>(x));
  else if constexpr (std::is_same_v<From, double>)
    return static_cast<To>(x);
  else
    return static_cast<To>(static_cast<float>(x));
}

template <class F>
int of_float_type(DType type, const F& f) {
  switch (type) {
    case DType::f32: return f(float());
    case DType::f64: return f(double());
    case DType::bf16: return f(__nv_bfloat16());
    case DType::f16: return f(__half());
    default: return cudaErrorNotSupported;
  }
}

template <class To, class From>
int cast_elements(troupe_cuda_context* c, const kernels::Cast& o) {
  const From* in = static_cast<const From*>(o.in);
  To* out = static_cast<To*>(o.out);
  return each(c, o.n, [=] __device__(int64_t i) { out[i] = convert<To>(in[i]); });
}

struct Factors {
  float keep, beta1, rest1, beta2, rest2, rate, root2, epsilon, scale, limit;
};

Factors factors_of(const kernels::AdamW& o) {
  const double t = static_cast<double>(o.step), largest = std::numeric_limits<float>::max();
  Factors f{};
  f.keep = static_cast<float>(1.0 - static_cast<double>(o.rate) * o.decay);
  f.beta1 = o.beta1;
  f.rest1 = 1.0f - o.beta1;
  f.beta2 = o.beta2;
  f.rest2 = 1.0f - o.beta2;
  f.rate = static_cast<float>(static_cast<double>(o.rate) /
                              (1.0 - std::pow(static_cast<double>(o.beta1), t)));
  f.root2 = static_cast<float>(std::sqrt(1.0 - std::pow(static_cast<double>(o.beta2), t)));
  f.epsilon = o.epsilon;
  f.scale = o.gradient_scale;
  f.limit = static_cast<float>(std::min(0.999 * std::sqrt(largest / f.rest2), largest));
  return f;
}

__device__ float clamp_finite(float x, float limit) {
  const float size = fabsf(x);
  return size > limit && size <= 3.402823466e+38f ? copysignf(limit, x) : x;
}

__device__ void adamw_element(const kernels::AdamW& o, const Factors& f, int64_t i) {
  constexpr float kLargest = 3.402823466e+38f;
  const float g = clamp_finite(__fmul_rn(o.gradients[i], f.scale), f.limit);
  const float square = __fmul_rn(g, g);
  const float part =
      square <= kLargest ? __fmul_rn(f.rest2, square) : __fmul_rn(__fmul_rn(f.rest2, g), g);
  const float m = __fadd_rn(__fmul_rn(f.beta1, o.m[i]), __fmul_rn(f.rest1, g));
  const float sum = __fadd_rn(__fmul_rn(f.beta2, o.v[i]), part);
  const float v = sum > kLargest ? kLargest : sum;
  o.m[i] = m;
  o.v[i] = v;
  const float divisor = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), f.root2), f.epsilon);
  o.weights[i] =
      __fsub_rn(__fmul_rn(o.weights[i], f.keep), __fdiv_rn(__fmul_rn(f.rate, m), divisor));
}

__device__ void sgd_element(const kernels::Sgd& o, int64_t i) {
  const float w = o.weights[i];
  float g = __fadd_rn(__fmul_rn(o.gradients[i], o.gradient_scale), __fmul_rn(o.decay, w));
  if (o.momentum != 0.0f) {
    const float m = o.first ? g : __fadd_rn(__fmul_rn(o.momentum, o.m[i]), g);
    o.m[i] = m;
    g = o.nesterov ? __fadd_rn(g, __fmul_rn(o.momentum, m)) : m;
  }
  o.weights[i] = __fsub_rn(w, __fmul_rn(o.rate, g));
}

/// Rotates pair i of all heads, where i counts (row, pair).
template <class T>
__device__ void rope_element(const kernels::Rope& o, int64_t i) {
  const int64_t half = o.head_size / 2, row = i / half, pair = i % half;
  const double frequency = pow(static_cast<double>(o.theta),
                               -2.0 * static_cast<double>(pair) / static_cast<double>(o.head_size));
  const int64_t position = o.first_position + row % o.time;
  double sine = 0, cosine = 0;
  sincos(static_cast<double>(o.inverse ? -position : position) * frequency, &sine, &cosine);
  const float s = static_cast<float>(sine), c = static_cast<float>(cosine);
  T* x = static_cast<T*>(o.x) + row * o.row + pair;
  for (int64_t h = 0; h < o.heads; ++h, x += o.head_size) {
    const float a = widen(x[0]), b = widen(x[half]);
    store<T>(x, 0, a * c - b * s);
    store<T>(x, half, b * c + a * s);
  }
}

template <class T>
int activate_as(troupe_cuda_context* c, const kernels::Activate& o) {
  return each(c, o.n, [=] __device__(int64_t i) {
    store<T>(o.out, i, value_of(o.activation, load<T>(o.in, i)));
  });
}

template <class T>
int activate_backward_as(troupe_cuda_context* c, const kernels::ActivateBackward& o) {
  return each(c, o.n, [=] __device__(int64_t i) {
    const float d = gradient_of(o.activation, load<T>(o.in, i), load<T>(o.dout, i));
    store<T>(o.din, i, o.add ? load<T>(o.din, i) + d : d);
  });
}

template <class T>
int gated_silu_as(troupe_cuda_context* c, const kernels::GatedSilu& o) {
  return each(c, o.rows * o.columns, [=] __device__(int64_t i) {
    const int64_t at = apart(i, o.columns, o.row_in);
    const float gate = load<T>(o.gate, at);
    store<T>(o.out, i, gate * sigmoid(gate).value * load<T>(o.up, at));
  });
}

template <class T>
int gated_silu_backward_as(troupe_cuda_context* c, const kernels::GatedSilu& o) {
  return each(c, o.rows * o.columns, [=] __device__(int64_t i) {
    const int64_t at = apart(i, o.columns, o.row_in);
    const float gate = load<T>(o.gate, at), up = load<T>(o.up, at), dout = load<T>(o.dout, i);
    const Sigmoid s = sigmoid(gate);
    store<T>(o.dup, at, dout * (gate * s.value));
    store<T>(o.dgate, at, dout * (up * (s.value * (1.0f + gate * s.rest))));
  });
}

template <class T>
int rope_as(troupe_cuda_context* c, const kernels::Rope& o) {
  return each(c, o.rows * (o.head_size / 2), [=] __device__(int64_t i) { rope_element<T>(o, i); });
}

/// As Dropout of operations.hpp, with `samples` in memory of the device, or null.
template <class T>
int dropout_as(troupe_cuda_context* c, const kernels::Dropout& o, const int64_t* samples) {
  const auto limit = static_cast<uint32_t>(std::ceil(static_cast<double>(o.p) * 0x1.0p24));
  const float factor = static_cast<float>(1.0 / (1.0 - static_cast<double>(o.p)));
  return each(c, o.rows * o.columns, [=] __device__(int64_t i) {
    const int64_t row = o.first_row + i / o.columns;
    const int64_t sample = samples == nullptr ? row / o.time : samples[row / o.time];
    const int64_t index =
        (sample * o.time + row % o.time) * o.all_columns + o.first_column + i % o.columns;
    const bool keep = philox_bits(o.seed, o.stream, static_cast<uint64_t>(index)) >> 8 >= limit;
    store<T>(o.out, i, keep ? load<T>(o.in, i) * factor : 0.0f);
  });
}

template <class T>
int add_as(troupe_cuda_context* c, const kernels::Elementwise& o) {
  const float factor = static_cast<float>(o.factor);
  return each(c, o.n, [=] __device__(int64_t i) {
    store<T>(o.out, i, __fadd_rn(load<T>(o.a, i), __fmul_rn(factor, load<T>(o.b, i))));
  });
}

template <class T>
int scale_as(troupe_cuda_context* c, const kernels::Elementwise& o) {
  const float factor = static_cast<float>(o.factor);
  return each(c, o.n, [=] __device__(int64_t i) { store<T>(o.out, i, factor * load<T>(o.a, i)); });
}

template <class T>
int fill_as(troupe_cuda_context* c, const kernels::Elementwise& o) {
  const float value = static_cast<float>(o.factor);
  return each(c, o.n, [=] __device__(int64_t i) { store<T>(o.out, i, value); });
}

}  // namespace

int activate(troupe_cuda_context* c, const kernels::Activate& o) {
  return of_type(o.type, [&]<class T>(T) { return activate_as<T>(c, o); });
}

int activate_backward(troupe_cuda_context* c, const kernels::ActivateBackward& o) {
  return of_type(o.type, [&]<class T>(T) { return activate_backward_as<T>(c, o); });
}

int gated_silu(troupe_cuda_context* c, const kernels::GatedSilu& o) {
  return of_type(o.type, [&]<class T>(T) { return gated_silu_as<T>(c, o); });
}

int gated_silu_backward(troupe_cuda_context* c, const kernels::GatedSilu& o) {
  return of_type(o.type, [&]<class T>(T) { return gated_silu_backward_as<T>(c, o); });
}

int rope(troupe_cuda_context* c, const kernels::Rope& o) {
  return of_type(o.type, [&]<class T>(T) { return rope_as<T>(c, o); });
}

int dropout(troupe_cuda_context* c, const kernels::Dropout& o) {
  void* numbers = nullptr;
  if (o.samples != nullptr && o.rows > 0) {  // copied, since it may be memory of the host
    const int64_t end = o.first_row + o.rows;
    const size_t bytes = static_cast<size_t>((end + o.time - 1) / o.time) * sizeof(int64_t);
    if (const int error = scratch(c, bytes, &numbers)) return error;
    if (const int error = cudaMemcpyAsync(numbers, o.samples, bytes, cudaMemcpyDefault, c->stream))
      return error;
  }
  const auto* samples = static_cast<const int64_t*>(numbers);
  return of_type(o.type, [&]<class T>(T) { return dropout_as<T>(c, o, samples); });
}

int add(troupe_cuda_context* c, const kernels::Elementwise& o) {
  return of_type(o.type, [&]<class T>(T) { return add_as<T>(c, o); });
}

int scale(troupe_cuda_context* c, const kernels::Elementwise& o) {
  return of_type(o.type, [&]<class T>(T) { return scale_as<T>(c, o); });
}

int fill(troupe_cuda_context* c, const kernels::Elementwise& o) {
  return of_type(o.type, [&]<class T>(T) { return fill_as<T>(c, o); });
}

int cast(troupe_cuda_context* c, const kernels::Cast& o) {
  return of_float_type(o.from, [&]<class From>(From) {
    return of_float_type(o.to, [&]<class To>(To) { return cast_elements<To, From>(c, o); });
  });
}

int adamw(troupe_cuda_context* c, const kernels::AdamW& o) {
  const Factors f = factors_of(o);
  return each(c, o.n, [=] __device__(int64_t i) { adamw_element(o, f, i); });
}

int sgd(troupe_cuda_context* c, const kernels::Sgd& o) {
  return each(c, o.n, [=] __device__(int64_t i) { sgd_element(o, i); });
}

int philox_normal(troupe_cuda_context* c, float* out, int64_t n, uint64_t seed, uint64_t stream_id,
                  uint64_t from, float mean, float deviation) {
  return each(c, n, [=] __device__(int64_t i) {
    const uint64_t index = from + static_cast<uint64_t>(i), pair = index & ~uint64_t{1};
    const double u = (philox_bits(seed, stream_id, pair) + 0.5) * 0x1.0p-32;
    const double angle = 6.283185307179586 * (philox_bits(seed, stream_id, pair + 1) * 0x1.0p-32);
    const double radius = sqrt(-2.0 * log(u));
    out[i] = mean + deviation * static_cast<float>(radius * (index & 1 ? sin(angle) : cos(angle)));
  });
}

}  // namespace troupe_cuda
