// Softmax cross-entropy, whole and in two parts, with a team of threads per row.
#include "internal.cuh"
#include "numbers.cuh"

namespace troupe_cuda {
namespace {

using kernels::CrossEntropy;
constexpr int32_t kIgnore = -1;

struct Stats {
  float maximum, sum, target_logit;
};

/// Returns the number to subtract from logits before their powers: the maximum, or 0 if all logits
/// are -infinity, since -infinity minus -infinity would be NaN.
__device__ float offset(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}
__device__ float loss(const Stats& s) {
  return logf(s.sum) + (s.maximum - s.target_logit);
}
/// Returns the place of the row's target among this rank's classes, or -1.
__device__ int64_t local_target(const CrossEntropy& o, int64_t r) {
  const int64_t target = o.targets[r] - o.first;
  return o.targets[r] == kIgnore || target < 0 || target >= o.classes ? -1 : target;
}

template <class T>
__device__ Stats stats_of(const CrossEntropy& o, int64_t r) {
  const T* row = static_cast<const T*>(o.logits) + r * o.row;
  const int64_t target = local_target(o, r);
  float top = -INFINITY, total = 0;
  for (int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) top = fmaxf(top, widen(row[c]));
  top = team_max(top);
  const float base = offset(top);
  for (int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) total += expf(widen(row[c]) - base);
  return {top, team_sum(total), target < 0 ? -INFINITY : widen(row[target])};
}

/// Writes the loss and the gradient of a row. The barrier makes sure that all threads have read the
/// logits that stats_of() needs, before any of them overwrites one.
template <class T>
__device__ void finish_row(const CrossEntropy& o, int64_t r, const Stats& s) {
  const bool ignored = o.targets[r] == kIgnore;
  if (threadIdx.x == 0) floats(o.losses)[r] = ignored ? 0.0f : loss(s);
  if (!o.gradient) return;
  __syncthreads();
  T* row = static_cast<T*>(o.logits) + r * o.row;
  const int64_t target = local_target(o, r);
  const float scale = static_cast<float>(o.scale), factor = scale / s.sum, base = offset(s.maximum);
  for (int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) {
    const float p = expf(widen(row[c]) - base) * factor;
    store<T>(row, c, ignored ? 0.0f : c == target ? p - scale : p);
  }
}

template <class T>
__global__ void whole_kernel(CrossEntropy o) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x) finish_row<T>(o, r, stats_of<T>(o, r));
}

template <class T>
__global__ void stats_kernel(CrossEntropy o) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x) {
    const Stats s = stats_of<T>(o, r);
    if (threadIdx.x != 0) continue;
    floats(o.maximum)[r] = s.maximum;
    floats(o.sum)[r] = s.sum;
    floats(o.target_logit)[r] = s.target_logit;
  }
}

template <class T>
__global__ void finish_kernel(CrossEntropy o) {
  for (int64_t r = blockIdx.x; r < o.rows; r += gridDim.x)
    finish_row<T>(o, r, {floats(o.maximum)[r], floats(o.sum)[r], floats(o.target_logit)[r]});
}

}  // namespace

int combine_stats(troupe_cuda_context* c, const kernels::CombineStats& o) {
  if (o.type != DType::f32) return cudaErrorNotSupported;
  return each(c, o.rows, [=] __device__(int64_t r) {
    const float* in = floats(o.in);
    float top = -INFINITY, target = -INFINITY, total = 0;
    for (int p = 0; p < o.parts; ++p) {
      top = fmaxf(top, in[3 * p * o.rows + r]);
      target = fmaxf(target, in[(3 * p + 2) * o.rows + r]);
    }
    const float base = offset(top);
    for (int p = 0; p < o.parts; ++p)
      total += in[(3 * p + 1) * o.rows + r] * expf(in[3 * p * o.rows + r] - base);
    floats(o.out)[r] = top;
    floats(o.out)[o.rows + r] = total;
    floats(o.out)[2 * o.rows + r] = target;
  });
}

int cross_entropy(troupe_cuda_context* c, const CrossEntropy& o) {
  if (o.rows <= 0) return 0;
  return of_type(o.type, [&]<class T>(T) {
    whole_kernel<T><<<teams_for(o.rows), team_for(o.classes), 0, c->stream>>>(o);
    return launched();
  });
}

int cross_entropy_stats(troupe_cuda_context* c, const CrossEntropy& o) {
  if (o.rows <= 0) return 0;
  return of_type(o.type, [&]<class T>(T) {
    stats_kernel<T><<<teams_for(o.rows), team_for(o.classes), 0, c->stream>>>(o);
    return launched();
  });
}

int cross_entropy_finish(troupe_cuda_context* c, const CrossEntropy& o) {
  if (o.rows <= 0) return 0;
  return of_type(o.type, [&]<class T>(T) {
    finish_kernel<T><<<teams_for(o.rows), team_for(o.classes), 0, c->stream>>>(o);
    return launched();
  });
}

}  // namespace troupe_cuda
