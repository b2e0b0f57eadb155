// Layer and RMS norm, a team of threads per row; the second pass of weight gradients is
// columns.cuh's. Rows whose moments f32 cannot hold are computed in f64, as on the CPU.
#include "columns.cuh"
#include "internal.cuh"

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

/// Of a row, in W, by all threads of the team.
template <class W>
__device__ Moments<W> moments_of(const Norm& o, const float* x) {
  const W count = static_cast<W>(o.columns);
  W total = 0, squares = 0;
  if (!o.rms)
    for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) total += static_cast<W>(x[c]);
  const W mean = o.rms ? W(0) : team_sum(total) / count;
  for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) {
    const W d = static_cast<W>(x[c]) - mean;
    squares += d * d;
  }
  return {mean, W(1) / sqrt(team_sum(squares) / count + static_cast<W>(o.epsilon))};
}

template <class W>
__device__ void normalise(const Norm& o, const float* x, float* y, Moments<W> m) {
  for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) {
    const W bias = o.bias == nullptr ? W(0) : static_cast<W>(floats(o.bias)[c]);
    const W weight = static_cast<W>(floats(o.weight)[c]);
    y[c] = static_cast<float>((static_cast<W>(x[c]) - m.mean) * m.rstd * weight + bias);
  }
}

__global__ void forward_kernel(Norm o) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x) {
    const float* x = floats(o.in) + r * o.columns;
    float* y = floats(o.out) + r * o.columns;
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

template <class W>
__device__ void input_row(const NormBackward& o, int64_t r, Moments<W> m) {
  const Norm& f = o.forward;
  const float *x = floats(f.in) + r * f.columns, *dy = floats(o.dout) + r * f.columns;
  const float* weight = floats(f.weight);
  float* dx = floats(o.din) + r * f.columns;
  const W count = static_cast<W>(f.columns);
  W average = 0, slope = 0;
  for (int64_t c = threadIdx.x; c < f.columns; c += blockDim.x) {
    const W scaled = static_cast<W>(weight[c]) * static_cast<W>(dy[c]);
    average += scaled;
    slope += scaled * ((static_cast<W>(x[c]) - m.mean) * m.rstd);
  }
  average = f.rms ? W(0) : team_sum(average) / count;
  slope = team_sum(slope) / count;
  for (int64_t c = threadIdx.x; c < f.columns; c += blockDim.x) {
    const W scaled = static_cast<W>(weight[c]) * static_cast<W>(dy[c]);
    const W normal = (static_cast<W>(x[c]) - m.mean) * m.rstd;
    const float d = static_cast<float>((scaled - average - normal * slope) * m.rstd);
    dx[c] = o.add ? dx[c] + d : d;
  }
}

__device__ Moments<float> saved_moments(const Norm& o, int64_t r) {
  return {o.rms ? 0.0f : floats(o.mean)[r], floats(o.rstd)[r]};
}

__global__ void input_kernel(NormBackward o) {
  const Norm& f = o.forward;
  for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
    const Moments<float> m = saved_moments(f, r);
    if (is_extreme(m.mean, m.rstd))
      input_row(o, r, moments_of<double>(f, floats(f.in) + r * f.columns));
    else
      input_row(o, r, m);
  }
}

/// The moments of all rows, in f64 where f32 cannot hold them: columns are summed by threads that
/// do not see whole rows.
__global__ void moments_kernel(Norm o, Moments<double>* all) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x) {
    const Moments<float> m = saved_moments(o, r);
    Moments<double> wide{m.mean, m.rstd};
    if (is_extreme(m.mean, m.rstd)) wide = moments_of<double>(o, floats(o.in) + r * o.columns);
    if (threadIdx.x == 0) all[r] = wide;
  }
}

/// What row r adds to the gradients of weight and bias c.
struct WeightTerm {
  const float *in, *dout;
  const Moments<double>* moments;
  int64_t columns;
  __device__ float2 operator()(int64_t r, int64_t c) const {
    const float x = in[r * columns + c], dy = dout[r * columns + c];
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
  forward_kernel<<<teams_for(o.rows), team_for(o.columns), 0, c->stream>>>(o);
  return launched();
}

int norm_backward_input(troupe_cuda_context* c, const NormBackward& o) {
  const Norm& f = o.forward;
  if (f.rows <= 0 || f.columns <= 0) return 0;
  input_kernel<<<teams_for(f.rows), team_for(f.columns), 0, c->stream>>>(o);
  return launched();
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
  moments_kernel<<<teams_for(f.rows), team_for(f.columns), 0, c->stream>>>(f, all);
  return sum_columns(c, f.rows, f.columns, WeightTerm{floats(f.in), floats(o.dout), all, f.columns},
                     partials, floats(o.dweight), floats(o.dbias));
}

}  // namespace troupe_cuda
