#include "troupe/kernels/gemm/gemm.hpp"

#include "troupe/kernels/internal/simd.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace troupe::kernels {
namespace {

constexpr std::int64_t kMr = 8;    // rows of a tile of c, which is held in registers
constexpr std::int64_t kNr = 32;   // columns of that tile
constexpr std::int64_t kKc = 256;  // depth of a panel: a tile of b fits the first-level cache
constexpr std::int64_t kMc = 128;  // rows of a block of a, which fits the second-level cache
constexpr std::int64_t kNc = 1024;

struct View {
  const float* data;
  std::int64_t row, column;  // strides
  float at(std::int64_t i, std::int64_t j) const { return data[i * row + j * column]; }
};

View view(Op op, const float* data, std::int64_t ld) {
  return op == Op::none ? View{data, ld, 1} : View{data, 1, ld};
}

/// Copies a[i0.., p0..] into tiles of kMr rows, column by column, zero-padded.
void pack_a(const View& a, std::int64_t i0, std::int64_t rows, std::int64_t p0, std::int64_t depth,
            float* out) {
  for (std::int64_t i = 0; i < rows; i += kMr)
    for (std::int64_t p = 0; p < depth; ++p)
      for (std::int64_t r = 0; r < kMr; ++r)
        *out++ = i + r < rows ? a.at(i0 + i + r, p0 + p) : 0.0f;
}

/// Copies b[p0.., j0..] into tiles of kNr columns, row by row, zero-padded.
void pack_b(const View& b, std::int64_t p0, std::int64_t depth, std::int64_t j0,
            std::int64_t columns, float* out) {
  for (std::int64_t j = 0; j < columns; j += kNr)
    for (std::int64_t p = 0; p < depth; ++p)
      for (std::int64_t q = 0; q < kNr; ++q)
        *out++ = j + q < columns ? b.at(p0 + p, j0 + j + q) : 0.0f;
}

// Half a row of a tile. It is a vector type, since not every compiler keeps an array in registers.
using Wide = float __attribute__((vector_size(64)));
static_assert(kNr == 2 * sizeof(Wide) / sizeof(float));

/// tile[kMr, kNr] += a tile * b tile, p ascending.
TROUPE_KERNEL void multiply_tile(const float* __restrict a, const float* __restrict b,
                                 std::int64_t depth, float* __restrict tile) {
  Wide sum[kMr][2];
  std::memcpy(sum, tile, sizeof sum);
  for (std::int64_t p = 0; p < depth; ++p) {
    Wide left, right;
    std::memcpy(&left, b + p * kNr, sizeof left);
    std::memcpy(&right, b + p * kNr + kNr / 2, sizeof right);
    for (std::int64_t r = 0; r < kMr; ++r) {
      sum[r][0] += a[p * kMr + r] * left;
      sum[r][1] += a[p * kMr + r] * right;
    }
  }
  std::memcpy(tile, sum, sizeof sum);
}

/// Loads a tile of c, padded with zeros, adds the product, and stores it back.
void update_tile(const float* a, const float* b, std::int64_t depth, float* c, std::int64_t ldc,
                 std::int64_t rows, std::int64_t columns) {
  alignas(64) float tile[kMr * kNr] = {};
  const auto bytes = static_cast<std::size_t>(columns) * sizeof(float);
  for (std::int64_t r = 0; r < rows; ++r) std::memcpy(tile + r * kNr, c + r * ldc, bytes);
  multiply_tile(a, b, depth, tile);
  for (std::int64_t r = 0; r < rows; ++r) std::memcpy(c + r * ldc, tile + r * kNr, bytes);
}

void apply_beta(float beta, std::int64_t m, std::int64_t n, float* c, std::int64_t ldc) {
  if (beta == 1.0f) return;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      c[i * ldc + j] = beta == 0.0f ? 0.0f : c[i * ldc + j] * beta;
}

std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

/// Grows a thread's scratch buffer if needed. The thread keeps it, so that small products do not
/// allocate.
float* scratch(std::vector<float>& buffer, std::int64_t size) {
  if (buffer.size() < static_cast<std::size_t>(size)) buffer.resize(static_cast<std::size_t>(size));
  return buffer.data();
}

}  // namespace

void builtin_gemm(Op a_op, Op b_op, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                  std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                  std::int64_t ldc) {
  thread_local std::vector<float> a_buffer, b_buffer;
  const View a_view = view(a_op, a, lda), b_view = view(b_op, b, ldb);
  apply_beta(beta, m, n, c, ldc);
  for (std::int64_t j0 = 0; j0 < n; j0 += kNc) {
    const std::int64_t columns = std::min(kNc, n - j0);
    for (std::int64_t p0 = 0; p0 < k; p0 += kKc) {
      const std::int64_t depth = std::min(kKc, k - p0);
      float* b_pack = scratch(b_buffer, round_up(columns, kNr) * depth);
      pack_b(b_view, p0, depth, j0, columns, b_pack);
      for (std::int64_t i0 = 0; i0 < m; i0 += kMc) {
        const std::int64_t rows = std::min(kMc, m - i0);
        float* a_pack = scratch(a_buffer, round_up(rows, kMr) * depth);
        pack_a(a_view, i0, rows, p0, depth, a_pack);
        for (std::int64_t j = 0; j < columns; j += kNr)
          for (std::int64_t i = 0; i < rows; i += kMr)
            update_tile(a_pack + i * depth, b_pack + j * depth, depth, c + (i0 + i) * ldc + j0 + j,
                        ldc, std::min(kMr, rows - i), std::min(kNr, columns - j));
      }
    }
  }
}

}  // namespace troupe::kernels
