// Column sums, and the sums of squares for a global norm.
#include "columns.cuh"
#include "internal.cuh"
#include "numbers.cuh"

namespace troupe_cuda {
namespace {

template <class T>
struct ColumnTerm {
  const void* in;
  int64_t columns;
  __device__ float2 operator()(int64_t r, int64_t c) const {
    return {load<T>(in, r * columns + c), 0.0f};
  }
};

__global__ void squares_kernel(kernels::ChunkSquares o, int64_t chunks, double* out) {
  for (int64_t i = blockIdx.x; i < chunks; i += gridDim.x) {
    const int64_t end = (i + 1) * o.chunk < o.n ? (i + 1) * o.chunk : o.n;
    double total = 0;
    for (int64_t at = i * o.chunk + threadIdx.x; at < end; at += blockDim.x)
      total += static_cast<double>(o.x[at]) * o.x[at];
    total = team_sum(total);
    if (threadIdx.x == 0) out[i] = total;
  }
}

}  // namespace

int column_sum(troupe_cuda_context* c, const kernels::ColumnSum& o) {
  if (o.rows <= 0 || o.columns <= 0) return 0;
  void* partials = nullptr;
  if (const int error = scratch(c, partial_bytes(o.rows, o.columns), &partials)) return error;
  return of_type(o.type, [&]<class T>(T) {
    return sum_columns(c, o.rows, o.columns, ColumnTerm<T>{o.in, o.columns}, floats(partials),
                       floats(o.out), nullptr);
  });
}

int chunk_squares(troupe_cuda_context* c, const kernels::ChunkSquares& o) {
  if (o.n <= 0) return 0;
  const int64_t chunks = (o.n + o.chunk - 1) / o.chunk;
  const size_t bytes = static_cast<size_t>(chunks) * sizeof(double);
  void* out = nullptr;
  if (const int error = scratch(c, bytes, &out)) return error;
  squares_kernel<<<teams_for(chunks), kThreads, 0, c->stream>>>(o, chunks,
                                                                static_cast<double*>(out));
  if (const int error = launched()) return error;
  return cudaMemcpyAsync(o.out, out, bytes, cudaMemcpyDefault, c->stream);
}

}  // namespace troupe_cuda
