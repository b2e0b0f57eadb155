// Embedding. The backward pass sorts rows by token and cuts the sorted rows into chunks. It first
// sums each token's rows within a chunk, in parallel. Then it adds the pieces of tokens whose rows
// lie in several chunks, in ascending order. This needs no atomics, and no thread reads all rows.
#include "internal.cuh"
#include "numbers.cuh"

#include <cub/device/device_radix_sort.cuh>

namespace troupe_cuda {
namespace {

using kernels::Embedding;

constexpr int64_t kChunk = 64;  ///< sorted rows per chunk

template <class T>
int forward(troupe_cuda_context* c, const Embedding& o) {
  return each(c, o.rows * o.columns, [=] __device__(int64_t i) {
    const int64_t r = i / o.columns, column = i % o.columns, row = o.tokens[r] - o.first;
    float value = 0;
    if (row >= 0 && row < o.table_rows) value = load<T>(o.table, row * o.columns + column);
    if (o.positions != nullptr) value += load<T>(o.positions, r % o.time * o.columns + column);
    store<T>(o.out, i, value);
  });
}

/// Rows sorted by token. Tokens of other ranks count as token table_rows and come last. A run is
/// the rows of one token; a piece is the part of a run that lies in one chunk.
struct Sorted {
  int32_t *tokens, *rows;
  float* pieces;  ///< [2 * chunks, columns]: per chunk, its first piece and its last
  int64_t n;
  __device__ bool begins_run(int64_t i) const { return i == 0 || tokens[i - 1] != tokens[i]; }
  __device__ bool ends_run(int64_t end) const { return end == n || tokens[end] != tokens[end - 1]; }
  /// Returns the end of the piece that holds i.
  __device__ int64_t end_of(int64_t i) const {
    int64_t end = i + 1;
    while (end < n && end % kChunk != 0 && tokens[end] == tokens[i]) ++end;
    return end;
  }
  __device__ int64_t slot_of(int64_t i) const { return 2 * (i / kChunk) + (i % kChunk != 0); }
};

template <class T>
__global__ void pieces_kernel(Embedding o, Sorted s) {
  for (int64_t i = blockIdx.x; i < s.n; i += gridDim.x) {
    if (s.tokens[i] >= o.table_rows || (i % kChunk != 0 && !s.begins_run(i))) continue;
    const int64_t end = s.end_of(i);
    const bool whole = s.begins_run(i) && s.ends_run(end);
    float* to =
        whole ? floats(o.dtable) + s.tokens[i] * o.columns : s.pieces + s.slot_of(i) * o.columns;
    for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) {
      float total = 0;
      for (int64_t at = i; at < end; ++at) total += load<T>(o.dout, s.rows[at] * o.columns + c);
      to[c] = whole ? to[c] + total : total;
    }
  }
}

__global__ void runs_kernel(Embedding o, Sorted s) {
  for (int64_t i = blockIdx.x; i < s.n; i += gridDim.x) {
    if (s.tokens[i] >= o.table_rows || !s.begins_run(i) || s.ends_run(s.end_of(i))) continue;
    float* to = floats(o.dtable) + s.tokens[i] * o.columns;
    for (int64_t c = threadIdx.x; c < o.columns; c += blockDim.x) {
      float total = s.pieces[s.slot_of(i) * o.columns + c];
      for (int64_t next = (i / kChunk + 1) * kChunk; next < s.n && s.tokens[next] == s.tokens[i];
           next += kChunk)
        total += s.pieces[s.slot_of(next) * o.columns + c];
      to[c] += total;
    }
  }
}

size_t padded(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int bits_of(int64_t number) {
  int bits = 1;
  while (bits < 31 && number >> bits != 0) ++bits;
  return bits;
}

/// The layout of the scratch memory: tokens and rows before and after the sort, pieces, and the
/// sort's own memory.
struct Memory {
  size_t numbers, pieces, own = 0;
  explicit Memory(const Embedding& o)
      : numbers(padded(static_cast<size_t>(o.rows) * sizeof(int32_t))),
        pieces(padded(static_cast<size_t>(2 * ((o.rows + kChunk - 1) / kChunk) * o.columns) *
                      sizeof(float))) {}
  size_t bytes() const { return 4 * numbers + pieces + own; }
};

int sort(troupe_cuda_context* c, const Embedding& o, Sorted& sorted) {
  Memory memory(o);
  const int bits = bits_of(o.table_rows), n = static_cast<int>(o.rows);
  int32_t* none = nullptr;
  if (const int error = cub::DeviceRadixSort::SortPairs(nullptr, memory.own, none, none, none, none,
                                                        n, 0, bits, c->stream))
    return error;
  void* base = nullptr;
  if (const int error = scratch(c, memory.bytes(), &base)) return error;
  auto* at = static_cast<char*>(base);
  auto* tokens = reinterpret_cast<int32_t*>(at);
  auto* rows = reinterpret_cast<int32_t*>(at + memory.numbers);
  sorted = {reinterpret_cast<int32_t*>(at + 2 * memory.numbers),
            reinterpret_cast<int32_t*>(at + 3 * memory.numbers),
            reinterpret_cast<float*>(at + 4 * memory.numbers), o.rows};
  const auto fill = [=] __device__(int64_t i) {
    const int64_t row = o.tokens[i] - o.first;
    tokens[i] = static_cast<int32_t>(row < 0 || row > o.table_rows ? o.table_rows : row);
    rows[i] = static_cast<int32_t>(i);
  };
  if (const int error = each(c, o.rows, fill)) return error;
  return cub::DeviceRadixSort::SortPairs(at + 4 * memory.numbers + memory.pieces, memory.own,
                                         tokens, sorted.tokens, rows, sorted.rows, n, 0, bits,
                                         c->stream);
}

template <class T>
int table_backward(troupe_cuda_context* c, const Embedding& o) {
  Sorted sorted{};
  if (const int error = sort(c, o, sorted)) return error;
  const unsigned team = o.columns < kThreads ? kWarp : kThreads;
  pieces_kernel<T><<<teams_for(o.rows), team, 0, c->stream>>>(o, sorted);
  runs_kernel<<<teams_for(o.rows), team, 0, c->stream>>>(o, sorted);
  return launched();
}

template <class T>
int positions_backward(troupe_cuda_context* c, const Embedding& o) {
  return each(c, o.time * o.columns, [=] __device__(int64_t i) {
    float total = floats(o.dpositions)[i];
    for (int64_t r = i / o.columns; r < o.rows; r += o.time)
      total += load<T>(o.dout, r * o.columns + i % o.columns);
    floats(o.dpositions)[i] = total;
  });
}

template <class T>
int backward(troupe_cuda_context* c, const Embedding& o) {
  if (o.dtable != nullptr)
    if (const int error = table_backward<T>(c, o)) return error;
  return o.dpositions == nullptr ? 0 : positions_backward<T>(c, o);
}

}  // namespace

int embedding(troupe_cuda_context* c, const Embedding& o) {
  return of_type(o.type, [&]<class T>(T) { return forward<T>(c, o); });
}

int embedding_backward(troupe_cuda_context* c, const Embedding& o) {
  if (o.rows <= 0 || o.columns <= 0) return 0;
  return of_type(o.type, [&]<class T>(T) { return backward<T>(c, o); });
}

}  // namespace troupe_cuda
