// Layer and RMS norm, with a team of threads per row. Gradients of weights are summed by
// columns.cuh. Rows whose moments f32 cannot hold are computed in f64, as on the CPU.
#include "columns.cuh"
#include "internal.cuh"
#include "numbers.cuh"

namespace troupe_cuda {
namespace {

using kernels::Norm;
using kernels::NormBackward;

template <class W>
struct Moments {
  W mean, rstd;
};

__host__ __device__ bool is_extreme(float mean, float rstd) {
  return !(rstd >= 1.17549435e-38f && rstd <= 3.402823466e+38f && fabsf(mean) * rstd <= 64.0f);
}

/// Computes the moments of a row in type W. All threads of the team must call it.
template <class W, class T>
__device__ Moments<W> moments_of(const Norm& o, const T* x) {
  const W count = static_cast<W>(o.columns);
  W total = 0, squares = 0;
  if (!o.rms)
    for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x)
      total += static_cast<W>(widen(x[c]));
  const W mean = o.rms ? W(0) : team_sum(total) / count;
  for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) {
    const W d = static_cast<W>(widen(x[c])) - mean;
    squares += d * d;
  }
  return {mean, W(1) / sqrt(team_sum(squares) / count + static_cast<W>(o.epsilon))};
}

template <class W, class T>
__device__ void normalise(const Norm& o, const T* x, T* y, Moments<W> m) {
  for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) {
    const W bias = o.bias == nullptr ? W(0) : static_cast<W>(load<T>(o.bias, c));
    const W weight = static_cast<W>(load<T>(o.weight, c));
    const W normal = (static_cast<W>(widen(x[c])) - m.mean) * m.rstd;
    store<T>(y, c, static_cast<float>(normal * weight + bias));
  }
}

template <class T>
__global__ void forward_kernel(Norm o) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x) {
    const T* x = static_cast<const T*>(o.in) + r * o.columns;
    T* y = static_cast<T*>(o.out) + r * o.columns;
    Moments<float> m = moments_of<float>(o, x);
    if (is_extreme(m.mean, m.rstd)) {
      const Moments<double> wide = moments_of<double>(o, x);
      normalise(o, x, y, wide);
      m = {static_cast<float>(wide.mean), static_cast<float>(wide.rstd)};
    } else {
      normalise(o, x, y, m);
    }
    if (threadIdx.x != 0) continue;
    if (!o.rms) floats(o.mean)[r] = m.mean;
    floats(o.rstd)[r] = m.rstd;
  }
}

template <class T, class W>
__device__ void input_row(const NormBackward& o, int64_t r, Moments<W> m) {
  const Norm& f = o.forward;
  const T* x = static_cast<const T*>(f.in) + r * f.columns;
  const T* dy = static_cast<const T*>(o.dout) + r * f.columns;
  const T* weight = static_cast<const T*>(f.weight);
  T* dx = static_cast<T*>(o.din) + r * f.columns;
  const W count = static_cast<W>(f.columns);
  W average = 0, slope = 0;
  for (int64_t c = threadIdx.x; c < f.columns; c += blockDim.x) {
    const W scaled = static_cast<W>(widen(weight[c])) * static_cast<W>(widen(dy[c]));
    average += scaled;
    slope += scaled * ((static_cast<W>(widen(x[c])) - m.mean) * m.rstd);
  }
  average = f.rms ? W(0) : team_sum(average) / count;
  slope = team_sum(slope) / count;
  for (int64_t c = threadIdx.x; c < f.columns; c += blockDim.x) {
    const W scaled = static_cast<W>(widen(weight[c])) * static_cast<W>(widen(dy[c]));
    const W normal = (static_cast<W>(widen(x[c])) - m.mean) * m.rstd;
    const float d = static_cast<float>((scaled - average - normal * slope) * m.rstd);
    store<T>(dx, c, o.add ? widen(dx[c]) + d : d);
  }
}

__device__ Moments<float> saved_moments(const Norm& o, int64_t r) {
  return {o.rms ? 0.0f : floats(o.mean)[r], floats(o.rstd)[r]};
}

template <class T>
__global__ void input_kernel(NormBackward o) {
  const Norm& f = o.forward;
  for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
    const Moments<float> m = saved_moments(f, r);
    if (is_extreme(m.mean, m.rstd))
      input_row<T>(o, r, moments_of<double>(f, static_cast<const T*>(f.in) + r * f.columns));
    else
      input_row<T>(o, r, m);
  }
}

/// Writes the moments of all rows, computed in f64 where f32 cannot hold them. The threads that sum
/// columns afterwards do not read whole rows and could not compute them.
template <class T>
__global__ void moments_kernel(Norm o, Moments<double>* all) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x) {
    const Moments<float> m = saved_moments(o, r);
    Moments<double> wide{m.mean, m.rstd};
    if (is_extreme(m.mean, m.rstd))
      wide = moments_of<double>(o, static_cast<const T*>(o.in) + r * o.columns);
    if (threadIdx.x == 0) all[r] = wide;
  }
}

/// Returns what row r adds to the gradients of weight c and bias c.
template <class T>
struct WeightTerm {
  const void *in, *dout;
  const Moments<double>* moments;
  int64_t columns;
  __device__ float2 operator()(int64_t r, int64_t c) const {
    const float x = load<T>(in, r * columns + c), dy = load<T>(dout, r * columns + c);
    const Moments<double> m = moments[r];
    const float mean = static_cast<float>(m.mean), rstd = static_cast<float>(m.rstd);
    const float normal = is_extreme(mean, rstd)
                             ? static_cast<float>((static_cast<double>(x) - m.mean) * m.rstd)
                             : (x - mean) * rstd;
    return {dy * normal, dy};
  }
};

}  // namespace

int norm(troupe_cuda_context* c, const Norm& o) {
  if (o.rows <= 0 || o.columns <= 0) return 0;
  return of_type(o.type, [&]<class T>(T) {
    forward_kernel<T><<<teams_for(o.rows), team_for(o.columns), 0, c->stream>>>(o);
    return launched();
  });
}

int norm_backward_input(troupe_cuda_context* c, const NormBackward& o) {
  const Norm& f = o.forward;
  if (f.rows <= 0 || f.columns <= 0) return 0;
  return of_type(f.type, [&]<class T>(T) {
    input_kernel<T><<<teams_for(f.rows), team_for(f.columns), 0, c->stream>>>(o);
    return launched();
  });
}

int norm_backward_weight(troupe_cuda_context* c, const NormBackward& o) {
  const Norm& f = o.forward;
  if (f.rows <= 0 || f.columns <= 0) return 0;
  const size_t moments = static_cast<size_t>(f.rows) * sizeof(Moments<double>);
  void* memory = nullptr;
  if (const int error = scratch(c, moments + partial_bytes(f.rows, f.columns), &memory))
    return error;
  auto* all = static_cast<Moments<double>*>(memory);
  float* partials = floats(static_cast<void*>(static_cast<char*>(memory) + moments));
  return of_type(f.type, [&]<class T>(T) {
    moments_kernel<T><<<teams_for(f.rows), team_for(f.columns), 0, c->stream>>>(f, all);
    return sum_columns(c, f.rows, f.columns, WeightTerm<T>{f.in, o.dout, all, f.columns}, partials,
                       floats(o.dweight), floats(o.dbias));
  });
}

}  // namespace troupe_cuda
