/// Column sums in two stages: chunks of rows in parallel, then the chunks of each column in
/// ascending order. The order of a sum depends only on the number of rows.
#pragma once

#include "internal.cuh"

namespace troupe_cuda {

constexpr int64_t kMostChunks = 256;
constexpr int kDown = 8;  ///< threads of a block that share a column

struct Chunks {
  int64_t rows, count;
};
inline Chunks chunks_of(int64_t rows) {
  int64_t size = (rows + kMostChunks - 1) / kMostChunks;
  if (size < 64) size = 64;
  return {size, (rows + size - 1) / size};
}
/// Returns the bytes that sum_columns() needs for `partials`.
inline size_t partial_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(2 * chunks_of(rows).count * columns) * sizeof(float);
}

/// The first stage: f(row, column) returns two numbers, and partials[chunk][which][column] are
/// their sums over the chunk's rows.
template <class F>
__global__ void chunk_kernel(int64_t rows, int64_t columns, int64_t chunk_rows, F f,
                             float* partials) {
  __shared__ float2 sums[kDown][kWarp];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t from = static_cast<int64_t>(blockIdx.y) * chunk_rows;
  const int64_t end = from + chunk_rows < rows ? from + chunk_rows : rows;
  float2 sum{0.0f, 0.0f};
  if (c < columns)
    for (int64_t r = from + threadIdx.y; r < end; r += kDown) {
      const float2 term = f(r, c);
      sum.x += term.x;
      sum.y += term.y;
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= columns) return;
  for (int i = 1; i < kDown; ++i) {
    sum.x += sums[i][threadIdx.x].x;
    sum.y += sums[i][threadIdx.x].y;
  }
  partials[2 * blockIdx.y * columns + c] = sum.x;
  partials[(2 * blockIdx.y + 1) * columns + c] = sum.y;
}

/// Adds the sums of f's two numbers over all rows to out[c] and second[c]; `second` may be null.
template <class F>
int sum_columns(troupe_cuda_context* c, int64_t rows, int64_t columns, const F& f, float* partials,
                float* out, float* second) {
  const Chunks chunks = chunks_of(rows);
  const dim3 grid(static_cast<unsigned>((columns + kWarp - 1) / kWarp),
                  static_cast<unsigned>(chunks.count));
  chunk_kernel<<<grid, dim3(kWarp, kDown), 0, c->stream>>>(rows, columns, chunks.rows, f, partials);
  if (const int error = launched()) return error;
  const int64_t count = chunks.count;
  return each(c, columns, [=] __device__(int64_t column) {
    float a = 0, b = 0;
    for (int64_t i = 0; i < count; ++i) {
      a += partials[2 * i * columns + column];
      b += partials[(2 * i + 1) * columns + column];
    }
    out[column] += a;
    if (second != nullptr) second[column] += b;
  });
}

}  // namespace troupe_cuda
