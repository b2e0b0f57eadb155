// Kernels with a sum along a row (one warp a row) or down a column (one thread a column).
#include "internal.cuh"

namespace troupe_cuda {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr int32_t kIgnore = -1;

__global__ void add_bias_backward_kernel(float* dbias, const float* dout, int64_t rows,
                                         int64_t columns) {
  for (int64_t c = first(); c < columns; c += stride()) {
    float total = dbias[c];
    for (int64_t r = 0; r < rows; ++r) total += dout[r * columns + c];
    dbias[c] = total;
  }
}

__global__ void layernorm_forward_kernel(float* out, float* mean, float* rstd, const float* in,
                                         const float* weight, const float* bias, int64_t rows,
                                         int64_t channels) {
  for (int64_t r = first_row(); r < rows; r += row_stride()) {
    const float* x = in + r * channels;
    float total = 0, squares = 0;
    for (int64_t i = lane(); i < channels; i += kWarp) total += x[i];
    const float m = warp_sum(total) / static_cast<float>(channels);
    for (int64_t i = lane(); i < channels; i += kWarp) squares += (x[i] - m) * (x[i] - m);
    const float s = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(channels) + kEpsilon);
    for (int64_t i = lane(); i < channels; i += kWarp)
      out[r * channels + i] = (x[i] - m) * s * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
    if (lane() == 0) {
      mean[r] = m;
      rstd[r] = s;
    }
  }
}

__global__ void layernorm_backward_input_kernel(float* din, const float* dout, const float* in,
                                                const float* weight, const float* mean,
                                                const float* rstd, int64_t rows, int64_t channels) {
  for (int64_t r = first_row(); r < rows; r += row_stride()) {
    const float *x = in + r * channels, *dy = dout + r * channels;
    const float m = mean[r], s = rstd[r];
    float average = 0, slope = 0;
    for (int64_t i = lane(); i < channels; i += kWarp) {
      average += weight[i] * dy[i];
      slope += weight[i] * dy[i] * ((x[i] - m) * s);
    }
    average = warp_sum(average) / static_cast<float>(channels);
    slope = warp_sum(slope) / static_cast<float>(channels);
    for (int64_t i = lane(); i < channels; i += kWarp)
      din[r * channels + i] += (weight[i] * dy[i] - average - (x[i] - m) * s * slope) * s;
  }
}

__global__ void layernorm_backward_weight_kernel(float* dweight, float* dbias, const float* dout,
                                                 const float* in, const float* mean,
                                                 const float* rstd, int64_t rows,
                                                 int64_t channels) {
  for (int64_t c = first(); c < channels; c += stride()) {
    float dw = dweight[c], db = dbias == nullptr ? 0.0f : dbias[c];
    for (int64_t r = 0; r < rows; ++r) {
      const float dy = dout[r * channels + c];
      dw += dy * ((in[r * channels + c] - mean[r]) * rstd[r]);
      db += dy;
    }
    dweight[c] = dw;
    if (dbias != nullptr) dbias[c] = db;
  }
}

__global__ void embedding_forward_kernel(float* out, const int32_t* tokens, const float* wte,
                                         const float* wpe, int64_t rows, int64_t time,
                                         int64_t channels) {
  for (int64_t i = first(); i < rows * channels; i += stride()) {
    const int64_t row = i / channels, c = i % channels;
    out[i] = wte[tokens[row] * channels + c] + wpe[row % time * channels + c];
  }
}

/// One thread owns a channel of every row of the table: no atomics, rows ascending.
__global__ void token_backward_kernel(float* dwte, const float* dout, const int32_t* tokens,
                                      int64_t rows, int64_t channels) {
  for (int64_t c = first(); c < channels; c += stride())
    for (int64_t row = 0; row < rows; ++row)
      dwte[tokens[row] * channels + c] += dout[row * channels + c];
}

__global__ void position_backward_kernel(float* dwpe, const float* dout, int64_t batch,
                                         int64_t plane) {
  for (int64_t i = first(); i < plane; i += stride()) {
    float total = dwpe[i];
    for (int64_t b = 0; b < batch; ++b) total += dout[b * plane + i];
    dwpe[i] = total;
  }
}

template <bool gradient>
__global__ void cross_entropy_kernel(float* losses, const float* logits, float* dlogits,
                                     const int32_t* targets, int64_t rows, int64_t classes,
                                     float scale) {
  for (int64_t r = first_row(); r < rows; r += row_stride()) {
    const float* row = logits + r * classes;
    const int32_t target = targets[r];
    float top = -INFINITY, total = 0;
    for (int64_t i = lane(); i < classes; i += kWarp) top = fmaxf(top, row[i]);
    top = warp_max(top);
    for (int64_t i = lane(); i < classes; i += kWarp) total += expf(row[i] - top);
    total = warp_sum(total);
    if (lane() == 0) losses[r] = target == kIgnore ? 0.0f : logf(total) + top - row[target];
    if (!gradient) continue;
    __syncwarp();  // row[target] is read before it is overwritten
    for (int64_t i = lane(); i < classes; i += kWarp)
      dlogits[r * classes + i] =
          target == kIgnore ? 0.0f
                            : scale * (expf(row[i] - top) / total - (i == target ? 1.0f : 0.0f));
  }
}

}  // namespace

int add_bias_backward(troupe_cuda_context* c, float* dbias, const float* dout, int64_t rows,
                      int64_t columns) {
  add_bias_backward_kernel<<<blocks_for(columns), kThreads, 0, c->stream>>>(dbias, dout, rows,
                                                                            columns);
  return launched();
}

int layernorm_forward(troupe_cuda_context* c, float* out, float* mean, float* rstd, const float* in,
                      const float* weight, const float* bias, int64_t rows, int64_t channels) {
  layernorm_forward_kernel<<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(
      out, mean, rstd, in, weight, bias, rows, channels);
  return launched();
}

int layernorm_backward_input(troupe_cuda_context* c, float* din, const float* dout, const float* in,
                             const float* weight, const float* mean, const float* rstd,
                             int64_t rows, int64_t channels) {
  layernorm_backward_input_kernel<<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(
      din, dout, in, weight, mean, rstd, rows, channels);
  return launched();
}

int layernorm_backward_weight(troupe_cuda_context* c, float* dweight, float* dbias,
                              const float* dout, const float* in, const float* mean,
                              const float* rstd, int64_t rows, int64_t channels) {
  layernorm_backward_weight_kernel<<<blocks_for(channels), kThreads, 0, c->stream>>>(
      dweight, dbias, dout, in, mean, rstd, rows, channels);
  return launched();
}

int embedding_forward(troupe_cuda_context* c, float* out, const int32_t* tokens, const float* wte,
                      const float* wpe, int64_t batch, int64_t time, int64_t channels) {
  embedding_forward_kernel<<<blocks_for(batch * time * channels), kThreads, 0, c->stream>>>(
      out, tokens, wte, wpe, batch * time, time, channels);
  return launched();
}

int embedding_backward(troupe_cuda_context* c, float* dwte, float* dwpe, const float* dout,
                       const int32_t* tokens, int64_t batch, int64_t time, int64_t channels) {
  token_backward_kernel<<<blocks_for(channels), kThreads, 0, c->stream>>>(dwte, dout, tokens,
                                                                          batch * time, channels);
  position_backward_kernel<<<blocks_for(time * channels), kThreads, 0, c->stream>>>(
      dwpe, dout, batch, time * channels);
  return launched();
}

int cross_entropy_forward(troupe_cuda_context* c, float* losses, const float* logits,
                          const int32_t* targets, int64_t rows, int64_t classes) {
  cross_entropy_kernel<false><<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(
      losses, logits, nullptr, targets, rows, classes, 0.0f);
  return launched();
}

int cross_entropy_fused(troupe_cuda_context* c, float* losses, float* logits,
                        const int32_t* targets, int64_t rows, int64_t classes, float scale) {
  cross_entropy_kernel<true><<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(
      losses, logits, logits, targets, rows, classes, scale);
  return launched();
}

}  // namespace troupe_cuda
